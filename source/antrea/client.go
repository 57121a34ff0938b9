package antrea

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kfields "k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

// Endpoint says how a controller is reached. It is asked again where a connection
// failed, since the controller may have another address or certificate then.
type Endpoint func(context.Context) (*rest.Config, error)

// Fixed is an Endpoint that stays: that of a kubeconfig.
func Fixed(config *rest.Config) Endpoint {
	return func(context.Context) (*rest.Config, error) { return config, nil }
}

// maxAnswer bounds what is read of an answer that is not a watch.
const maxAnswer = 64 << 10

// client speaks to one address of a controller.
type client struct {
	http *http.Client
	base *url.URL // of the group and version

	isReached atomic.Bool
	first     chan struct{} // holds one for who makes the first connection
}

// newClient returns a client; apart says that it is to have connections that it shares with no
// other client of config.
func newClient(config *rest.Config, apart bool) (*client, error) {
	c := rest.CopyConfig(config)
	if apart && c.Proxy == nil && c.Transport == nil {
		c.Proxy = http.ProxyFromEnvironment // as without it, but that client-go does not share the transport
	}
	c.Timeout = 0 // which would end watches
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	// Another host must not be shown our credentials.
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	hasTLS := len(c.CAData) > 0 || c.CAFile != "" || c.Insecure || c.CertFile != "" || len(c.CertData) > 0
	base, path, err := rest.DefaultServerURL(c.Host, "/apis", controlplanev1beta2.GroupVersion, hasTLS)
	if err != nil {
		return nil, err
	}
	base.Path = path
	return &client{http: h, base: base, first: make(chan struct{}, 1)}, nil
}

// close closes the connections on which nothing is under way.
func (c *client) close() { utilnet.CloseIdleConnectionsFor(c.http.Transport) }

// do sends a request. Until something has been answered it is one at a time: three watches that begin together would
// make a connection each, of which all but one are thrown away again, and a controller has a thousand
// agents that begin.
func (c *client) do(request *http.Request) (*http.Response, error) {
	if !c.isReached.Load() {
		select {
		case c.first <- struct{}{}:
		case <-request.Context().Done():
			return nil, request.Context().Err()
		}
		if done := func() { <-c.first }; c.isReached.Load() {
			done()
		} else {
			defer done()
		}
	}
	answer, err := c.http.Do(request)
	if err == nil {
		c.isReached.Store(true)
	}
	return answer, err
}

// watch begins the watch of a resource for a Node. Who has its frames closes it.
func (c *client) watch(ctx context.Context, resource, node string) (io.Closer, frames, error) {
	u := c.base.JoinPath(resource)
	// The bookmarks of an Isobar are of Moments; upstream's controller knows of none.
	u.RawQuery = url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "fieldSelector": {kfields.OneTermEqualSelector("nodeName", node).String()}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, nil, err
	}
	request.Header.Set("Accept", runtime.ContentTypeProtobuf+", "+runtime.ContentTypeJSON)
	answer, err := c.do(request)
	if err != nil {
		return nil, nil, err
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, nil, refusal(answer)
	}
	frames, err := newFrames(answer.Header.Get("Content-Type"), answer.Body)
	if err != nil {
		answer.Body.Close()
		return nil, nil, err
	}
	return answer.Body, frames, nil
}

// create posts an object to a path below the group and version.
func (c *client) create(ctx context.Context, kind string, object interface{ Marshal() ([]byte, error) }, path ...string) error {
	raw, err := object.Marshal()
	if err != nil {
		return err
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: controlplanev1beta2.GroupVersion.String(), Kind: kind}, Raw: raw}
	body, err := envelope.Marshal()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base.JoinPath(path...).String(), bytes.NewReader(append(bytes.Clone(envelopeMark), body...)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
	request.Header.Set("Accept", runtime.ContentTypeJSON)
	answer, err := c.do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return refusal(answer)
	}
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer) // so that the connection can be used again
	return nil
}

// refusal returns what a server says that it will not do, as client-go has it.
func refusal(answer *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil && len(text) == 0 {
		return fmt.Errorf("%s: %w", answer.Status, err)
	}
	status := metav1.Status{}
	unknown := runtime.Unknown{}
	if body, ok := bytes.CutPrefix(text, envelopeMark); ok && unknown.Unmarshal(body) == nil {
		_ = status.Unmarshal(unknown.Raw)
	} else {
		_ = json.Unmarshal(text, &status)
	}
	if status.Status != metav1.StatusFailure {
		status = metav1.Status{Status: metav1.StatusFailure, Message: answer.Status}
	}
	status.Code, status.Message = int32(answer.StatusCode), cut(status.Message)
	return &apierrors.StatusError{ErrStatus: status}
}

// isAnswer says whether err is what a controller has said, and not that none was reached.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}
