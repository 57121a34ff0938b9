package replica

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"isobar.dev/control/controller"
)

type loops []controller.LoopHealth

func (l loops) Health() []controller.LoopHealth { return l }

func TestHealthz(t *testing.T) {
	now := time.Now()
	well := loops{
		{Name: "world", Last: now, Most: time.Minute},
		{Name: "accounts 0", Busy: now.Add(-time.Second), Most: time.Minute},
		{Name: "target aws/shop/prod/us-east-1/vpc-1", Last: now.Add(-24 * time.Hour), Err: "the cloud is away", Most: time.Minute},
		{Name: "region shop/prod/us-east-1", Busy: now.Add(-time.Minute), Err: "the cloud is away", Most: 3 * time.Minute},
	}
	stuck := append(loops{{Name: "accounts 1", Busy: now.Add(-time.Hour), Most: time.Minute}}, well...)
	for _, tt := range []struct {
		name   string
		loops  loops
		path   string
		status int
		body   string
	}{
		{"a cloud that is away", well, "/healthz", 200, "ok"},
		{"verbose", well, "/healthz?verbose", 200, "[+]targets ok"},
		{"stuck", stuck, "/healthz", 503, "[-]accounts accounts 1 is stuck for 1h"},
		{"another part", stuck, "/healthz/targets", 200, "ok"},
		{"the part", stuck, "/healthz/accounts", 503, "stuck"},
		{"no such part", stuck, "/healthz/moon", 404, ""},
	} {
		mux := http.NewServeMux()
		h := probe("/healthz", func() []check { return live(tt.loops) })
		mux.Handle("GET /healthz", h)
		mux.Handle("GET /healthz/{name...}", h)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tt.path, nil))
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) {
			t.Errorf("%s: %s = %d %q; want %d %q", tt.name, tt.path, w.Code, w.Body, tt.status, tt.body)
		}
	}
}
