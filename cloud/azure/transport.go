package azure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// transport is an HTTP client whose answers are not longer than a bound, and that
// follows no redirect.
type transport struct{ http.Client }

// maxAnswer bounds an answer, in bytes; an NSG with a thousand rules is about 1 MB,
// and a page has some hundred.
const maxAnswer = 128 << 20

func newTransport(o Options) *transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &transport{http.Client{
		Timeout: 2 * time.Minute,
		Transport: &http.Transport{
			Proxy: o.Proxy, DialContext: dialer.DialContext, TLSClientConfig: o.TLS, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
			ResponseHeaderTimeout: time.Minute, MaxResponseHeaderBytes: 1 << 20,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Do sends a request. The SDK would have an answer that is cut short or not JSON be
// an answer without the fields that it lacks.
func (t *transport) Do(r *http.Request) (*http.Response, error) {
	resp, err := t.Client.Do(r)
	if err != nil {
		return nil, err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{&limited{resp.Body, maxAnswer}, resp.Body}
	return resp, nil
}

// limited is a body that fails when it is too long, where a LimitReader would
// look like an end.
type limited struct {
	io.Reader
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("the answer is longer than %d bytes", int64(maxAnswer))
	}
	return n, err
}

// pinned lets a client call one host and those below it: Azure tells in its
// answers where to ask next, and a token goes with each request.
type pinned struct{ scheme, host string }

// Do passes a request on that goes where it may.
func (p pinned) Do(req *policy.Request) (*http.Response, error) {
	u := req.Raw().URL
	if u.Scheme != p.scheme || !strings.EqualFold(u.Host, p.host) && !strings.HasSuffix(strings.ToLower(u.Host), "."+strings.ToLower(p.host)) {
		return nil, final{errors.New("an answer leads to another host, which is not called")}
	}
	return req.Next()
}

// isObject says whether a body is one JSON object.
func isObject(b []byte) bool {
	b = bytes.TrimSpace(b)
	return len(b) > 1 && b[0] == '{' && b[len(b)-1] == '}'
}
