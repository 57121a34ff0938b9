package webhook_test

import (
	"context"
	"net"

	"k8s.io/client-go/dynamic"

	"isobar.dev/control/webhook"
)

// Serve beside an API server on the same machine, and tell it where to ask.
func ExampleServer() {
	serve := func(ctx context.Context, client dynamic.Interface) error {
		s, err := webhook.New(client, webhook.Options{Dir: "webhook"})
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, l) }()
		if err := webhook.Install(ctx, client, webhook.Target{URL: "https://" + l.Addr().String(), CABundle: s.CABundle()}); err != nil {
			return err
		}
		return <-done
	}
	_ = serve // which needs an API server
}
