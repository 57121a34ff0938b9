package antrea_test

import (
	"context"
	"fmt"

	"k8s.io/client-go/rest"

	"isobar.dev/source/antrea"
)

// Follow a controller: wait for the first State, then for each change, and say what has
// been realized of it.
func ExampleSource() {
	follow := func(ctx context.Context, config *rest.Config) error {
		s, err := antrea.New(antrea.Fixed(config), "node-1", antrea.Options{Dir: "/var/lib/isobar"})
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
			state := s.State()
			var realized []antrea.Realized
			for _, p := range state.Policies {
				realized = append(realized, antrea.Realized{UID: p.UID, Generation: p.Generation})
			}
			fmt.Println(len(state.Rules))
			s.SetRealized(realized)
			select {
			case <-s.Changed():
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	_ = follow // which needs a controller
}
