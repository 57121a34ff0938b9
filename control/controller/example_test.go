package controller_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"k8s.io/client-go/rest"

	"isobar.dev/control/controller"
)

func ExampleNew() {
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	c, err := controller.New(config, controller.Options{
		Clouds: map[string]controller.Factory{"aws": awsAccount},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := c.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
