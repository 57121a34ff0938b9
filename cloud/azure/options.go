package azure

import (
	"crypto/tls"
	"net/http"
	"net/url"
	"time"
)

// Options are for what seldom changes. The zero value is ready to use.
type Options struct {
	// Proxy chooses a proxy, as [http.ProxyFromEnvironment] does. nil means none,
	// whatever the environment says.
	Proxy func(*http.Request) (*url.URL, error)
	TLS   *tls.Config // nil means the system's certificates
	// Unlimited: take no tokens of Azure's buckets; for a cloud that has none.
	Unlimited bool
	// Limits are shared by Accounts that may be of one subscription; nil means that no
	// other is.
	Limits *Limits
	// MayWrite is asked before each attempt of a call that changes anything; its error
	// becomes that of the call. nil means that all may be made.
	MayWrite func() error
	// Observe is told of each attempt of a call of Azure, from several goroutines. nil
	// means that nobody wants to know.
	Observe func(Attempt)
	// Attempts is how often a call is tried; 0 means 8.
	Attempts int
	// MaxBackoff is the longest wait before a call is tried again; 0 means a minute.
	MaxBackoff time.Duration
	// PollEvery is how long to wait between two questions whether an operation is done;
	// 0 means a second, which is the least that the SDK allows outside of tests.
	PollEvery time.Duration
	// ManyPeers and ManyClasses are those of a Place.
	ManyPeers, ManyClasses int
}
