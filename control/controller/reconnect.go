package controller

import (
	"context"
	"errors"
)

// errReconnected is why a call is given up whose account has another client now, or none.
var errReconnected = errors.New("the account is reached in another way now")

// reconnect gives up what is under way by the client that the account no longer has: it
// may wait for answers that never come. Unless that was lost, the one of now tries at once.
func (t *target) reconnect(isLost bool) {
	t.mu.Lock()
	goesOn := t.pinned != nil || isLost && t.retired // nobody else can clean up
	if t.abandon != nil && !goesOn {
		t.abandon(errReconnected)
	}
	t.mu.Unlock()
	if !isLost {
		t.poke()
	}
}

// abandonable returns a context for a call, which reconnect ends.
func (t *target) abandonable(ctx context.Context) context.Context {
	ctx, abandon := context.WithCancelCause(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.abandon = abandon
	return ctx
}
