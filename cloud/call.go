package cloud

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Client is an HTTP client whose answers are not longer than a bound, and that follows no redirect.
type Client struct{ http.Client }

// maxAnswer bounds an answer, in bytes; EC2's page of 1,000 security groups with 240 rules each is
// about 60 MB, and some hundred of Azure's NSGs with 1,000 rules each as much.
const maxAnswer = 128 << 20

// NewClient returns a Client. No proxy means none, whatever the environment says, and no config the
// system's certificates.
func NewClient(proxy func(*http.Request) (*url.URL, error), config *tls.Config) *Client {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &Client{http.Client{
		Timeout: 2 * time.Minute,
		Transport: &http.Transport{
			Proxy: proxy, DialContext: dialer.DialContext, TLSClientConfig: config, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
			ResponseHeaderTimeout: time.Minute, MaxResponseHeaderBytes: 1 << 20,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Do sends a request. To read more of its answer than the bound is an error.
func (c *Client) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.Client.Do(r)
	if err != nil {
		return nil, err
	}
	resp.Body = &limited{resp.Body, maxAnswer}
	return resp, nil
}

// limited is a body that fails when it is too long, where a LimitReader would look like an end.
type limited struct {
	io.ReadCloser
	left int64
}

func (l *limited) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, fmt.Errorf("the answer is longer than %d bytes", int64(maxAnswer))
	}
	return n, err
}

// atOnce bounds the calls of one VPC or VNet that are under way. EC2 answers in some tenths of a second,
// Azure takes seconds and lets us make about three calls in each: so many use up what both give.
const atOnce = 16

// Each calls f for all, up to 16 at once, and returns when all calls have returned.
func Each[T any](list []T, f func(T)) {
	var wg sync.WaitGroup
	next := make(chan T)
	for range min(atOnce, len(list)) {
		wg.Go(func() {
			for x := range next {
				f(x)
			}
		})
	}
	for _, x := range list {
		next <- x
	}
	close(next)
	wg.Wait()
}
