// Package sim is what the simulated clouds have in common: how they are kept in files, throttled, and
// shut off from all but this machine.
package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Duration is a time.Duration that JSON has as "150ms".
type Duration time.Duration

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Bucket is a token bucket: Burst calls at once, then PerSecond.
type Bucket struct {
	Burst     float64 `json:"burst"`
	PerSecond float64 `json:"perSecond"`
}

// Level is how full a bucket is. The zero value is full.
type Level struct {
	Tokens float64
	at     time.Time
}

// Take removes a token when there is one; else it returns the time until there is.
func (l *Level) Take(b Bucket, now time.Time) (wait time.Duration, ok bool) {
	if l.at.IsZero() {
		l.Tokens = b.Burst
	} else if d := now.Sub(l.at).Seconds(); d > 0 {
		l.Tokens = min(b.Burst, l.Tokens+d*b.PerSecond)
	}
	l.at = now
	if l.Tokens >= 1 {
		l.Tokens--
		return 0, true
	}
	if b.PerSecond <= 0 {
		return time.Minute, false
	}
	return time.Duration((1 - l.Tokens) / b.PerSecond * float64(time.Second)), false
}

// DecodeStrict decodes exactly one JSON document without unknown fields. Where the type is open, numbers
// stay as they are written.
func DecodeStrict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one document")
	}
	return nil
}

// Save writes v as JSON to the named file, readable by the owner only because estates hold secrets.
// A reader sees the old file or the new one, never a part.
func Save(name string, v any) error {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return fmt.Errorf("save estate: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".estate-*") // CreateTemp makes it 0600
	if err != nil {
		return fmt.Errorf("save estate: %w", err)
	}
	_, err = f.Write(append(b, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("save estate %s: %w", name, err)
	}
	return nil
}

// Keep saves soon after changes, at most once in every, and once more when ctx ends; that last save's
// error is its own, others are logged.
func Keep(ctx context.Context, every time.Duration, changed <-chan struct{}, save func() error, log *slog.Logger) error {
	for {
		select {
		case <-ctx.Done():
			return save()
		case <-changed:
		}
		select { // gather what comes together
		case <-ctx.Done():
		case <-time.After(every):
		}
		if err := save(); err != nil {
			log.LogAttrs(ctx, slog.LevelError, "state not saved", slog.Any("error", err))
		}
	}
}

// CheckLoopback refuses to listen elsewhere than on a loopback address.
func CheckLoopback(listen string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("listen %q: %w", listen, err)
	}
	if a, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !a.IsLoopback()) {
		return fmt.Errorf("listen %q: not a loopback address", listen)
	}
	return nil
}

// LoopbackOnly guards what opens a whole simulated cloud: it answers loopback peers only, and only by a
// loopback name, so that no page in a browser reaches it by a name that somebody else's DNS made up.
func LoopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !peer.Addr().Unmap().IsLoopback() || !loopbackName(r.Host) {
			http.Error(w, "only for loopback peers", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopbackName says whether a Host header names this machine by its loopback.
func loopbackName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// Hurry has the Shutdown of a server close connections on which nothing has been asked yet, for which
// net/http waits 5 seconds: clients dial some in store. It sets ConnState, before the server serves.
func Hurry(s *http.Server) {
	var mu sync.Mutex
	fresh, closing := map[net.Conn]bool{}, false
	s.ConnState = func(c net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		delete(fresh, c)
		switch {
		case state != http.StateNew:
		case closing: // it came as the listener was closed
			c.Close()
		default:
			fresh[c] = true
		}
	}
	s.RegisterOnShutdown(func() {
		mu.Lock()
		defer mu.Unlock()
		closing = true
		for c := range fresh {
			c.Close()
		}
	})
}
