package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAgentStatus(t *testing.T) {
	for _, tt := range []struct {
		answer, want string
		exit         int
	}{
		{`{"node":"n","started":true,"known":true,"policies":2,"realized":2,"pods":3}`, "enforcing\n", 0},
		{`{"node":"n","started":true,"known":true,"kept":true,"policies":2,"realized":2}`, "what was kept", 0},
		{`{"node":"n","started":true,"known":true,"policies":2,"realized":1,"refusals":["p: no"]}`, "Refused:   p: no", 2},
		{`{"node":"n","started":true,"known":true,"policies":2,"realized":2,"error":"EBUSY"}`, "EBUSY", 2},
		{`{"node":"n","started":true,"known":true,"held":["x/a since t: it lags"]}`, "Closed:    x/a since t: it lags", 0},
		{`{"node":"n","started":true}`, "waiting", 2},
		{`{"node":"n"}`, "starting", 2},
		{`<html>`, "cannot be read", 1},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(tt.answer)) }))
		var out, errOut bytes.Buffer
		exit := run([]string{"agent", "status", "--health-addr", strings.TrimPrefix(s.URL, "http://")}, nil, &out, &errOut)
		s.Close()
		if exit != tt.exit || !strings.Contains(out.String()+errOut.String(), tt.want) {
			t.Errorf("%s: exit %d, %s%s", tt.answer, exit, out.String(), errOut.String())
		}
	}
}
