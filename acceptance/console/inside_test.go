package console

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"isobar.dev/control/console"
	"isobar.dev/control/web"
	"isobar.dev/policy"
)

// inside serves the console of a world in this process, as `isobar console -f` does, and returns its address and what
// to log in by.
func inside(t testing.TB, s policy.Snapshot) (url string, code func() string) {
	t.Helper()
	told := make(chan string, 16)
	server, err := web.New(web.InProcess(console.Handler(console.Fixed{Snapshot: s}, console.All("me")), "me", web.NewCodes(func(code string) { told <- code })),
		web.Options{Cluster: "a test", OnlyHere: true})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String(), func() string { return <-told }
}

// logIn logs in by what the login page asks for: a code or a token.
func (p *tab) logIn(secret string) {
	p.Helper()
	p.open("/login")
	p.do(chromedp.SendKeys(chromedp.CSS("form input"), secret), chromedp.Click(chromedp.CSS(`form button[type="submit"]`)))
	p.await("a page, after the login", `document.querySelector("nav") !== null && !location.pathname.startsWith("/login")`)
	if url := eval[string](p, "location.href"); strings.Contains(url, secret) {
		p.Errorf("the secret is in the address %s", url)
	}
}
