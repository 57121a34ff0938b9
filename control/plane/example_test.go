package plane_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"isobar.dev/control/plane"
)

func ExampleStart() {
	ctx := context.Background()
	p, err := plane.Start(ctx, plane.Options{
		DataDir: filepath.Join(os.TempDir(), "isobar-example"),
		Search:  plane.Search{Progress: func(line string) { fmt.Fprintln(os.Stderr, line) }},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("kubectl --kubeconfig", p.Kubeconfig(), "get namespaces")
	if err := p.Stop(ctx); err != nil {
		log.Fatal(err)
	}
}
