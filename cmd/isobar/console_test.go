package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// startConsole runs `isobar console`, and returns where it is, and what ends it.
func startConsole(t *testing.T, c *consoleRun) (url string, out *output, stop func() error) {
	t.Helper()
	out = &output{}
	c.out, c.errOut = out, out
	if c.flags.addr == "" {
		c.flags.addr = "127.0.0.1:0"
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.run(ctx) }()
	var err error
	done := false
	stop = func() error {
		cancel()
		if !done {
			done, err = true, <-ended
		}
		return err
	}
	t.Cleanup(func() { _ = stop() })
	deadline := time.After(time.Minute)
	for !strings.Contains(out.String(), "Ctrl-C ends it") {
		select {
		case err = <-ended:
			done = true
			t.Fatalf("the console ended: %v\n%s", err, out)
		case <-deadline:
			t.Fatalf("the console is not there:\n%s", out)
		case <-time.After(10 * time.Millisecond):
		}
	}
	m := regexp.MustCompile(`The console is at (http://\S+)`).FindStringSubmatch(out.String())
	if m == nil {
		t.Fatalf("it does not say where it is:\n%s", out)
	}
	return m[1], out, stop
}

// codeIn returns the last code that was printed.
func codeIn(t *testing.T, out fmt.Stringer) string {
	t.Helper()
	all := regexp.MustCompile(`code to log in with: (\S+)`).FindAllStringSubmatch(out.String(), -1)
	if len(all) == 0 {
		t.Fatalf("there is no code in:\n%s", out)
	}
	return all[len(all)-1][1]
}

// page is a browser with a page of the console.
type page struct {
	t         *testing.T
	url, csrf string
	cookie    *http.Cookie
	transport http.RoundTripper // nil means the usual one
}

func (p *page) do(method, path, body string, headers ...string) (int, string) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", p.url)
	r.Header.Set("X-Isobar-CSRF", p.csrf)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	if p.cookie != nil {
		r.AddCookie(p.cookie)
	}
	client := http.Client{Transport: p.transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	got, err := client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range got.Cookies() {
		p.cookie = c
	}
	return got.StatusCode, string(text)
}

func (p *page) logIn(field, secret string) {
	p.t.Helper()
	code, text := p.do("POST", "/api/session", fmt.Sprintf(`{%q:%q}`, field, secret))
	var s struct{ CSRF string }
	if err := json.Unmarshal([]byte(text), &s); err != nil || code != http.StatusOK {
		p.t.Fatalf("log in: %d %s", code, text)
	}
	p.csrf = s.CSRF
}

const consoleWorld = `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {containers: [{name: c, image: i}]}
status: {phase: Running, podIP: 10.0.0.1}
`

// Offline, as a newcomer uses it: a browser that is logged in by a file, and one by the code that is printed.
func TestConsoleOfManifests(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "world.yaml")
	if err := os.WriteFile(file, []byte(consoleWorld), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string, 1)
	c := &consoleRun{flags: consoleFlags{files: []string{dir}}, open: func(file string) error { shown <- file; return nil }}
	url, out, stop := startConsole(t, c)

	// What a browser does with the file.
	link := <-shown
	info, err := os.Stat(link)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Dir(link)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its folder: %v, %v", info, err)
	}
	text, err := os.ReadFile(link)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`action="([^"]+)"[\s\S]*name="code" value="([^"]+)"`).FindStringSubmatch(string(text))
	if m == nil || m[1] != url+"/api/session" {
		t.Fatalf("the file has no form: %s", text)
	}
	if strings.Contains(out.String(), m[2]) {
		t.Errorf("the code of the file is printed:\n%s", out)
	}
	p := &page{t: t, url: url}
	form := []string{"Content-Type", "application/x-www-form-urlencoded", "Origin", "null", "Sec-Fetch-Site", "cross-site"}
	if code, _ := p.do("POST", "/api/session", "code="+m[2], form...); code != http.StatusSeeOther || p.cookie == nil {
		t.Fatalf("the form of the file: %d", code)
	}
	if code, text := p.do("GET", "/api/session", ""); code != 200 || !strings.Contains(text, `"user":"you"`) || !strings.Contains(text, `"readOnly":true`) || !strings.Contains(text, `"login":"code"`) {
		t.Errorf("session: %d %s", code, text)
	}
	if code, _ := (&page{t: t, url: url}).do("POST", "/api/session", "code="+m[2], form...); code != http.StatusUnauthorized {
		t.Errorf("the code of the file a second time: %d", code)
	}

	// The printed code, once.
	typed := codeIn(t, out)
	other := &page{t: t, url: url}
	other.logIn("code", strings.ToLower(typed))
	if code, _ := (&page{t: t, url: url}).do("POST", "/api/session", fmt.Sprintf(`{"code":%q}`, typed)); code != http.StatusUnauthorized {
		t.Errorf("the printed code a second time: %d", code)
	}
	if next := codeIn(t, out); next == typed {
		t.Error("no other code was printed")
	}

	var me struct {
		Workloads int
		Revision  string
	}
	read := func() (int, string) {
		code, text := other.do("GET", "/api/views/me", "")
		if err := json.Unmarshal([]byte(text), &me); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return code, text
	}
	if code, text := read(); code != 200 || me.Workloads != 1 {
		t.Errorf("me: %d %s", code, text)
	}
	if code, _ := other.do("POST", "/api/apply", `{"manifests":""}`); code != http.StatusNotFound {
		t.Errorf("apply to manifests: %d", code)
	}

	// The files change: another world, none that can be read, and the first again.
	eventually := func(what string, isSo func(int, string) bool) {
		t.Helper()
		if err := retry(t.Context(), time.Minute, func() error {
			if code, text := read(); !isSo(code, text) {
				return fmt.Errorf("%s: %d %s", what, code, text)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	more := strings.ReplaceAll(consoleWorld, "name: web", "name: db")
	more = strings.ReplaceAll(more, "10.0.0.1", "10.0.0.2")
	_, more, _ = strings.Cut(more, "---\n")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("more.yaml", more)
	eventually("a file more", func(code int, _ string) bool { return code == 200 && me.Workloads == 2 })
	write("more.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: [}\n")
	eventually("a file that cannot be read", func(code int, text string) bool {
		return code == http.StatusServiceUnavailable && strings.Contains(text, "more.yaml")
	})
	if err := os.Remove(filepath.Join(dir, "more.yaml")); err != nil {
		t.Fatal(err)
	}
	eventually("without it", func(code int, _ string) bool { return code == 200 && me.Workloads == 1 })

	if err := stop(); err != nil {
		t.Errorf("the end: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(link)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the file is left: %v", err)
	}
}

// Names that lead to the address, and addresses that are not of this machine alone.
func TestConsoleStaysHere(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "w.yaml"), []byte(consoleWorld), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:80", "[::]:0", "example.org:80", "127.0.0.1", "localhost:0"} {
		c := &consoleRun{flags: consoleFlags{files: []string{dir}, addr: addr}, out: io.Discard, errOut: io.Discard}
		if err := c.run(t.Context()); err == nil || !strings.Contains(err.Error(), "--addr") {
			t.Errorf("--addr %s: %v", addr, err)
		}
	}
	url, _, _ := startConsole(t, &consoleRun{flags: consoleFlags{files: []string{dir}}})
	at := strings.TrimPrefix(url, "http://")
	_, port, _ := strings.Cut(at, ":")
	for host, want := range map[string]int{at: 200, "localhost:" + port: 200, "evil.example:" + port: 403, "evil.example": 403, "127.0.0.1": 403, "127.0.0.1:1": 403, "127.0.0.1.:" + port: 403, "LOCALHOST.evil.example:" + port: 403} {
		for _, path := range []string{"/", "/map"} {
			if code, _ := (&page{t: t, url: url}).do("GET", path, "", "Host", host); code != want {
				t.Errorf("Host %s %s: %d, want %d", host, path, code, want)
			}
		}
		if code, _ := (&page{t: t, url: url}).do("GET", "/api/session", "", "Host", host); want == 403 && code != 403 {
			t.Errorf("Host %s /api/session: %d, want %d", host, code, want)
		}
	}
}
