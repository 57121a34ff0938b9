package identity_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"isobar.dev/control/enroll"
)

const controlplanePath = "/apis/controlplane.antrea.io/v1beta2/"

// send sends a request as an agent, and returns the body of the answer, or what it says is wrong.
func send(ctx context.Context, config *rest.Config, method, path, body string, more ...string) (io.ReadCloser, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(config.Host, "/")+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(more); i += 2 {
		request.Header.Add(more[i], more[i+1])
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode >= 200 && answer.StatusCode <= 299 {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	s := metav1.Status{}
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("%s: %s", answer.Status, text)
	}
	return nil, &apierrors.StatusError{ErrStatus: s}
}

// watchPath is that of a watch for a Node.
func watchPath(resource, node string) string {
	return controlplanePath + resource + "?watch=true&fieldSelector=" + url.QueryEscape("nodeName="+node)
}

// ping begins a watch, and ends it again.
func ping(ctx context.Context, id *enroll.Identity, resource string) error {
	return pingAt(ctx, id, "", resource)
}

func pingAt(ctx context.Context, id *enroll.Identity, server, resource string) error {
	config := id.Config()
	if server != "" {
		config.Host = server
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := send(ctx, config, http.MethodGet, watchPath(resource, id.Of().String()), "")
	if err == nil {
		body.Close()
	}
	return err
}

// opened is a watch.
type opened struct {
	lines *bufio.Reader
	first chan error
	ended chan struct{}
}

func openWatch(t *testing.T, id *enroll.Identity, resource string) *opened {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	body, err := send(ctx, id.Config(), http.MethodGet, watchPath(resource, id.Of().String()), "")
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	w := &opened{lines: bufio.NewReader(body), first: make(chan error, 1), ended: make(chan struct{})}
	t.Cleanup(func() { cancel(); body.Close() })
	go func() {
		defer close(w.ended)
		_, err := w.lines.ReadString('\n')
		w.first <- err
		_, _ = io.Copy(io.Discard, w.lines)
	}()
	return w
}

// event waits for the first event.
func (w *opened) event() (struct{}, error) { return struct{}{}, <-w.first }
