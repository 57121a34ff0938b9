package acceptance_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/control/plane/planetest"
	"isobar.dev/control/webhook"
)

func TestMain(m *testing.M) {
	if file := os.Getenv(scaleCloud); file != "" {
		serveScale(file) // this process is the cloud of a measurement
		return
	}
	// Worlds wait most of the time; the command line may still say otherwise.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	planetest.Main(m)
}

// house is the API server that worlds share, with CRDs, tiers and webhooks.
type house struct {
	env     *planetest.Env
	cluster string
}

// shared is made by the first world: the webhooks and tiers of an API server are one for all.
var shared struct {
	once    sync.Once
	cluster string
	err     error
}

func enter(t testing.TB) house {
	t.Helper()
	h := house{env: planetest.Start(t)}
	h.env.ApplyCRDs(t, "../deploy/crd")
	shared.once.Do(func() { shared.cluster, shared.err = furnish(context.Background(), h.env.Config()) })
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	h.cluster = shared.cluster
	return h
}

// furnish serves the webhooks as long as the process lives, makes the built-in tiers,
// and returns the cluster's ID.
func furnish(ctx context.Context, config *rest.Config) (cluster string, err error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", err
	}
	const user = "isobar-controller"
	hooks, err := webhook.New(client, webhook.Options{Controller: user, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = hooks.Run(ctx, l) }() // its end refuses all writes, which nobody can miss
	if err := webhook.Install(ctx, client, webhook.Target{URL: "https://" + l.Addr().String(), CABundle: hooks.CABundle()}); err != nil {
		return "", err
	}
	as := rest.CopyConfig(config)
	as.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	if client, err = dynamic.NewForConfig(as); err != nil {
		return "", err
	}
	if err := webhook.EnsureTiers(ctx, client); err != nil {
		return "", err
	}
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	system, err := core.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(system.UID), nil
}
