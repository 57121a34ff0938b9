package kube_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"isobar.dev/source/kube"
)

// Follow an API server: wait for the first whole world, then for each change.
func ExampleSource() {
	follow := func(ctx context.Context, config *rest.Config) error {
		s, err := kube.New(config, kube.Options{})
		if err != nil {
			return err
		}
		go s.Run(ctx)
		select {
		case <-s.Synced():
		case <-ctx.Done():
			return ctx.Err()
		}
		for {
			fmt.Println(s.Snapshot().Workloads.Len())
			select {
			case <-s.Changed():
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	_ = follow // which needs an API server
}
