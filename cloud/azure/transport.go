package azure

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

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
