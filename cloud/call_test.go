package cloud

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

type denied struct{ error }

func (denied) Cause() Cause { return Denied }

// A secret is gone from the text and from all that can be had of the error, and what the error is is still told.
func TestScrub(t *testing.T) {
	inner := denied{errors.New("key AKIDEXAMPLE is not known")}
	err := Scrub(fmt.Errorf("list: %w", inner), "", "AKIDEXAMPLE")
	if err.Error() != "list: key *** is not known" {
		t.Error(err)
	}
	if CauseOf(err) != Denied || !errors.Is(err, inner) {
		t.Errorf("%v is %q", err, CauseOf(err))
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		if strings.Contains(fmt.Sprintf("%v %+v %#v", e, e, e.Error()), "AKIDEXAMPLE") {
			t.Errorf("%#v tells it", e)
		}
	}
	if plain := errors.New("no secret"); Scrub(plain, "AKIDEXAMPLE") != plain || Scrub(nil, "x") != nil {
		t.Error("an error without a secret is another one")
	}
}

// A long answer is an error, and never a shorter one; a redirect is not followed.
func TestClient(t *testing.T) {
	var asked atomic.Int32
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.URL.Path == "/away" {
			http.Redirect(w, r, "/", http.StatusFound)
			return
		}
		chunk := make([]byte, 1<<20)
		for range maxAnswer>>20 + 1 {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer s.Close()
	c := NewClient(nil, nil)
	get := func(path string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	if n, err := io.Copy(io.Discard, get("/").Body); err == nil || n > maxAnswer {
		t.Errorf("%d bytes, and %v", n, err)
	}
	if resp := get("/away"); resp.StatusCode != http.StatusFound || asked.Load() != 2 {
		t.Errorf("%s after %d requests", resp.Status, asked.Load())
	}
}

// All are called, no more than some at once.
func TestEach(t *testing.T) {
	for _, n := range []int{0, 1, 100} {
		var called, now, most atomic.Int32
		Each(make([]int, n), func(int) {
			most.Store(max(most.Load(), now.Add(1))) // a lower bound
			called.Add(1)
			now.Add(-1)
		})
		if called.Load() != int32(n) || most.Load() > atOnce {
			t.Errorf("%d: %d calls, %d at once", n, called.Load(), most.Load())
		}
	}
}
