package clouds

import (
	"net/http"
	"net/url"
	"testing"
)

// What is next to us is asked without a proxy, whatever the environment says. There is no
// exported form: the environment is read once in a process.
func TestBeyond(t *testing.T) {
	proxy := &url.URL{Scheme: "http", Host: "proxy:3128"}
	choose := beyond(func(*http.Request) (*url.URL, error) { return proxy, nil })
	for target, want := range map[string]*url.URL{
		"https://ec2.us-east-1.amazonaws.com/":     proxy,
		"http://10.0.0.1:8080/":                    proxy,
		"http://127.0.0.1:4566/":                   nil,
		"http://[::1]:4566/":                       nil,
		"http://169.254.169.254/latest/meta-data/": nil,
		"http://169.254.170.23/v1/credentials":     nil,
		"http://[fd00:ec2::254]/latest/meta-data/": nil,
		"http://[fd00:ec3::254]/":                  proxy,
		"https://sts.amazonaws.com/":               proxy,
	} {
		r, err := http.NewRequest(http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := choose(r); got != want || err != nil {
			t.Errorf("proxy of %s = %v, %v; want %v", target, got, err, want)
		}
	}
}
