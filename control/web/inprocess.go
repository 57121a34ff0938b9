package web

import (
	"errors"
	"io"
	"net/http"
	"sync"
)

// inProcess is a transport to a handler of this process. Answers come as they are written.
type inProcess struct{ handler http.Handler }

// RoundTrip is that of an http.RoundTripper.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	body, pipe := io.Pipe()
	a := &answering{header: http.Header{}, pipe: pipe, began: make(chan struct{})}
	asked := r.Clone(r.Context())
	asked.RequestURI = r.URL.RequestURI()
	if asked.Body == nil {
		asked.Body = http.NoBody
	}
	go func() {
		defer func() {
			err := io.EOF
			if v := recover(); v != nil {
				err = errors.New("the handler failed")
				if a.status == 0 {
					a.WriteHeader(http.StatusInternalServerError)
				}
			}
			a.WriteHeader(http.StatusOK)
			pipe.CloseWithError(err)
		}()
		p.handler.ServeHTTP(a, asked)
	}()
	select {
	case <-a.began:
	case <-r.Context().Done():
		body.CloseWithError(r.Context().Err())
		return nil, r.Context().Err()
	}
	return &http.Response{
		Status: http.StatusText(a.status), StatusCode: a.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: a.sent, Body: body, ContentLength: -1, Request: r,
	}, nil
}

// answering is the http.ResponseWriter of a handler.
type answering struct {
	header, sent http.Header
	pipe         *io.PipeWriter
	once         sync.Once
	status       int
	began        chan struct{} // closed when status and sent are there
}

func (a *answering) Header() http.Header { return a.header }

// WriteHeader counts the first time.
func (a *answering) WriteHeader(status int) {
	a.once.Do(func() {
		a.status, a.sent = status, a.header.Clone()
		close(a.began)
	})
}

func (a *answering) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.pipe.Write(p)
}

// Flush does nothing: what is written is there.
func (a *answering) Flush() { a.WriteHeader(http.StatusOK) }
