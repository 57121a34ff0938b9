package replica

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"isobar.dev/control/controller"
)

// check is one thing that a probe asks for.
type check struct {
	name string
	err  error
}

// answerWithin bounds a probe: one that is not answered in time has an answer.
const answerWithin = 5 * time.Second

// Health serves /healthz, which fails when a loop is stuck: it is in one round for
// longer than all its calls together may take, so nothing but a restart helps. A
// cloud or an API server that is away does not make it fail. /readyz fails until
// there is something to serve. Both list their parts with ?verbose, and have one
// of each under their own path.
func (r *Replica) Health() http.Handler {
	mux := http.NewServeMux()
	for path, checks := range map[string]func() []check{"/healthz": func() []check { return live(r.controller) }, "/readyz": r.ready} {
		h := probe(path, checks)
		mux.Handle("GET "+path, h)
		mux.Handle("GET "+path+"/{name...}", h)
	}
	return mux
}

// live has one check for all loops of a kind.
func live(c interface {
	Health() []controller.LoopHealth
}) []check {
	stuck := map[string][]error{"accounts": nil, "entities": nil, "nodes": nil, "policies": nil, "regions": nil, "selectors": nil, "targets": nil, "world": nil}
	now := time.Now()
	for _, h := range c.Health() {
		kind, _, _ := strings.Cut(h.Name, " ")
		if kind == "region" || kind == "target" {
			kind += "s"
		}
		if h.IsStuck(now) {
			stuck[kind] = append(stuck[kind], fmt.Errorf("%s is stuck for %v", h.Name, now.Sub(h.Busy).Round(time.Second)))
		}
	}
	var out []check
	for kind, errs := range stuck {
		out = append(out, check{kind, errors.Join(errs...)})
	}
	return out
}

var errNotRead = errors.New("not all has been read yet")

func (r *Replica) ready() []check {
	inventory := errNotRead
	select {
	case <-r.controller.Runtime().Synced():
		inventory = nil
	default:
	}
	out := []check{{"inventory", inventory}, {"webhooks", hasBundle(r.hooks.CABundle())}, {"runtime-api", hasBundle(r.api.CABundle())}}
	return out
}

// Live is the error of /healthz; nil when no loop is stuck.
func (r *Replica) Live() error {
	var errs []error
	for _, c := range live(r.controller) {
		errs = append(errs, c.err)
	}
	return errors.Join(errs...)
}

// WaitReady returns when a Replica that was started answers /readyz with yes, or with ctx's error.
func (r *Replica) WaitReady(ctx context.Context) error {
	select {
	case <-r.controller.Runtime().Synced(): // certificates there are since New
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WaitTold returns when this Replica, which leads and has a ControlPlane, has told by which URLs and authorities machines
// outside the cluster can join, or with ctx's error.
func (r *Replica) WaitTold(ctx context.Context) error {
	select {
	case <-r.told:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func hasBundle(bundle []byte) error {
	if len(bundle) == 0 {
		return errors.New("there is no certificate yet")
	}
	return nil
}

// probe answers 200 when all checks, or the one that is named, are met, and else 503.
func probe(path string, checks func() []check) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, in *http.Request) {
		ctx, cancel := context.WithTimeout(in.Context(), answerWithin)
		defer cancel()
		answer := make(chan []check, 1)
		go func() { answer <- checks() }()
		var all []check
		select {
		case all = <-answer:
		case <-ctx.Done(): // a lock is never given back
			http.Error(out, "no answer in "+answerWithin.String(), http.StatusServiceUnavailable)
			return
		}
		name := strings.TrimPrefix(strings.TrimPrefix(in.URL.Path, path), "/")
		status, lines := http.StatusNotFound, []string{}
		for _, c := range all {
			if name != "" && c.name != name {
				continue
			}
			if status == http.StatusNotFound {
				status = http.StatusOK
			}
			sign, text := "[+]", "ok"
			if c.err != nil {
				sign, text, status = "[-]", c.err.Error(), http.StatusServiceUnavailable
			}
			lines = append(lines, sign+c.name+" "+text)
		}
		slices.Sort(lines)
		out.Header().Set("Content-Type", "text/plain; charset=utf-8")
		out.Header().Set("X-Content-Type-Options", "nosniff")
		out.WriteHeader(status)
		if status == http.StatusOK && !in.URL.Query().Has("verbose") {
			fmt.Fprintln(out, "ok")
			return
		}
		fmt.Fprintln(out, strings.Join(lines, "\n"))
	})
}
