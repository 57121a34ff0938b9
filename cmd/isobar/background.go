package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
