package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"isobar.dev/control/metrics"
)

// background runs the parts of a command. The first error of one ends the run.
type background struct {
	parts  sync.WaitGroup
	failed chan error // holds one
}

// spawn runs a part until ctx ends. One that ends before has failed.
func (b *background) spawn(ctx context.Context, name string, part func(context.Context) error) {
	b.parts.Go(func() {
		err := part(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("ended by itself")
		}
		select {
		case b.failed <- fmt.Errorf("%s: %w", name, err):
		default: // an earlier one is told
		}
	})
}

// serve serves plain HTTP at an address until ctx ends; "0" is none.
func (b *background) serve(ctx context.Context, log *slog.Logger, name, addr string, paths map[string]http.Handler) error {
	if addr == "0" {
		return nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	mux := http.NewServeMux()
	for path, h := range paths {
		mux.Handle(path, h)
	}
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 16,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	b.spawn(ctx, name, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { server.Close() })()
		return server.Serve(l)
	})
	return nil
}

// metricsOf serves /metrics.
func metricsOf(told *metrics.Metrics) http.Handler {
	return promhttp.HandlerFor(told.Registry(), promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
