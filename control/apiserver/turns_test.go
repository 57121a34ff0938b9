package apiserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
)

// No more requests than that are under review at a time; one that has been reviewed may last as long as it
// likes, and one that is refused or given up makes room too.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inReview, reviewed := make(chan struct{}, 10*reviewedAtOnce), make(chan struct{}, 10*reviewedAtOnce)
		answers, end := make(chan bool), make(chan struct{})
		h := newTurns(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
			inReview <- struct{}{}
			if allowed := <-answers; !allowed {
				return
			}
			endTurn(req.Context())
			endTurn(req.Context()) // is no second turn
			reviewed <- struct{}{}
			<-end
		}))
		ask := func(ctx context.Context) {
			go h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		}
		gone, leave := context.WithCancel(t.Context())
		for range reviewedAtOnce {
			ask(t.Context())
		}
		synctest.Wait()
		for range 10 {
			ask(gone)
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		for range reviewedAtOnce + 5 {
			ask(t.Context())
		}
		synctest.Wait()
		if n := len(inReview); n != reviewedAtOnce {
			t.Errorf("%d requests are under review, want %d", n, reviewedAtOnce)
		}
		for i := range reviewedAtOnce + 5 { // those that were there first, and five more
			answers <- i%2 == 0
		}
		synctest.Wait()
		if n, m := len(inReview), len(reviewed); n != 2*reviewedAtOnce+5 || m != (reviewedAtOnce+5+1)/2 {
			t.Errorf("%d have been under review, of whom %d are through; want %d and %d", n, m, 2*reviewedAtOnce+5, (reviewedAtOnce+5+1)/2)
		}
		close(answers)
		close(end)
	})
	endTurn(t.Context()) // of a request that had none
}
