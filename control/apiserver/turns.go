package apiserver

import (
	"context"
	"net/http"
	"sync"
)

// reviewedAtOnce is how many requests at a time find out who asks, and what he may. Each
// asks the API server up to twice, which takes a millisecond or two. When a thousand agents
// begin at once, more would open a connection for each that does not fit into one, and time out
// there together; this way the first have their answer soon, and the others wait here.
const reviewedAtOnce = 64

// turns lets requests in by turns, until each has had its reviews.
type turns struct {
	next http.Handler
	free chan struct{} // holds one for each request that is under review
}

// turnKey is the key of the func() in a request's context that ends its turn. The reviews are made by handlers
// of package apiserver in between, so there is no other way to tell.
type turnKey struct{}

func newTurns(next http.Handler) *turns {
	return &turns{next: next, free: make(chan struct{}, reviewedAtOnce)}
}

// ServeHTTP comes first of all handlers.
func (t *turns) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	select {
	case t.free <- struct{}{}:
	case <-req.Context().Done():
		return
	}
	end := sync.OnceFunc(func() { <-t.free })
	defer end()
	t.next.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), turnKey{}, end)))
}

// endTurn is for the handler that comes after the reviews.
func endTurn(ctx context.Context) {
	if end, ok := ctx.Value(turnKey{}).(func()); ok {
		end()
	}
}
