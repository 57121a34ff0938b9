package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/control/apiserver"
	"isobar.dev/control/console"
	"isobar.dev/control/plane"
	"isobar.dev/control/replica"
	"isobar.dev/control/webhook"
	"isobar.dev/deploy/crd"
)

// controllerUser alone may change built-in tiers.
const controllerUser = "isobar-controller"

// resident is a control plane of this machine with the one replica of the controller: what `isobar up`
// and `isobar server` have in common.
type resident struct {
	dataDir string // of all state
	log     *slog.Logger
	plane   *plane.Plane
	config  *rest.Config

	background
}

// planeDir is the folder of the control plane in a data directory.
func planeDir(dataDir string) string { return filepath.Join(dataDir, "control-plane") }

// startPlane starts the API server, and gives it our definitions.
func (r *resident) startPlane(ctx context.Context, o plane.Options) error {
	o.DataDir = planeDir(r.dataDir)
	var err error
	if r.plane, err = plane.Start(ctx, o); err != nil {
		return err
	}
	if r.config, err = r.plane.Config(); err != nil {
		return err
	}
	return plane.ApplyCRDs(ctx, r.config, crd.FS)
}

// startReplica runs the controller with its servers. What keeps the authorities, and where the API server
// finds the servers, is added to the options.
func (r *resident) startReplica(ctx context.Context, o replica.Options, started func(*replica.Replica) error) error {
	tiers := rest.CopyConfig(r.config) // the built-in tiers are repaired as the one user who may
	tiers.Impersonate = rest.ImpersonationConfig{UserName: controllerUser, Groups: []string{"system:masters"}}
	o.Controller.Log = r.log
	o.Webhook = webhook.Options{Dir: filepath.Join(r.dataDir, "webhook"), Controller: controllerUser, Log: r.log}
	o.API.Dir = filepath.Join(r.dataDir, "runtime-api")
	o.APITarget, o.ControlPlane, o.Tiers = apiserver.DefaultTarget, true, tiers
	client, err := kubernetes.NewForConfig(r.config)
	if err != nil {
		return err
	}
	if err := console.Grant(ctx, client); err != nil {
		return err
	}
	made, err := replica.New(ctx, r.config, o)
	if err != nil {
		return err
	}
	if started != nil {
		if err := started(made); err != nil {
			return err
		}
	}
	return made.Start(ctx, func(name string, part func(context.Context) error) { r.spawn(ctx, name, part) })
}

// wait returns when ctx ends, and with an error when a part has ended before.
func (r *resident) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-r.failed:
		return err
	case <-r.plane.Done():
		return errors.New("the control plane ended; see " + planeDir(r.dataDir))
	}
}

// stop waits for the parts, whose context has ended, and ends the control plane.
func (r *resident) stop() error {
	r.parts.Wait()
	if r.plane == nil {
		return nil
	}
	grace, done := context.WithTimeout(context.Background(), 20*time.Second)
	defer done()
	return r.plane.Stop(grace)
}
