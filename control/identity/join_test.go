package identity_test

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/control/enroll"
	"isobar.dev/source/antrea"
)

// watching starts a Source of an agent, which ends with the test.
func watching(t *testing.T, id *enroll.Identity) *antrea.Source {
	t.Helper()
	source, err := antrea.New(id.Endpoint(), id.Of().String(), antrea.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return source
}

// policiesOf waits for what a Source knows.
func policiesOf(t *testing.T, s *site, source *antrea.Source) (names []string) {
	t.Helper()
	select {
	case <-source.Synced():
	case <-time.After(2 * time.Minute):
		t.Fatalf("nothing is known: %+v\n%s", source.Status(), s.log)
	}
	for _, p := range source.State().Policies {
		names = append(names, p.UID)
	}
	return names
}

// From nothing to enforcing: a token, a certificate, and what the controller has computed for this VM, and
// no other.
func TestJoinAndWatch(t *testing.T) {
	s := newSite(t)
	a := s.join("a")
	if got, want := policiesOf(t, s, watching(t, a)), []string{"uid-a"}; !slices.Equal(got, want) {
		t.Errorf("the agent knows %v, want %v", got, want)
	}
}

func refusedWith(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s = %v, want that it is refused with %q", what, err, want)
	}
}

// A token is good once, for one machine, for its time, and for who knows its secret.
func TestTokens(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	join := func(token enroll.Token, dir string) error {
		_, err := enroll.Join(ctx, s.request(token, dir), enroll.Options{})
		return err
	}
	s.machine("a")
	token := s.token("a", time.Hour)
	dir := filepath.Join(t.TempDir(), "a")
	forged, err := enroll.NewToken(s.ns, "a")
	if err != nil {
		t.Fatal(err)
	}
	refusedWith(t, "another secret", join(forged, dir), "there is none like it")
	if err := join(token, dir); err != nil {
		t.Fatal(err)
	}
	first := s.identity("a").Status
	if len(first.Keys) != 1 || first.UsedToken != token.Hash() || first.UsedBy != first.Keys[0].Fingerprint || first.JoinTime == nil {
		t.Errorf("after joining: %+v", first)
	}
	if life := time.Until(first.Keys[0].NotAfter.Time); life > 24*time.Hour || life < 23*time.Hour {
		t.Errorf("a certificate for %v", life)
	}
	refusedWith(t, "the second use", join(token, filepath.Join(t.TempDir(), "thief")), "has been used already")
	refusedWith(t, "to join where one has", join(token, dir), "has joined already")

	// The answer was lost: the key is there, and the identity is not.
	lost := filepath.Join(t.TempDir(), "lost")
	s.machine("b")
	token = s.token("b", time.Hour)
	cut, cancel := context.WithCancel(ctx)
	hasKey := func() bool { return len(s.identity("b").Status.Keys) > 0 }
	if _, err = enroll.Join(cut, s.request(token, lost), enroll.Options{Dial: losing(hasKey, cancel)}); err == nil || !hasKey() {
		t.Fatalf("an answer that was lost: %v", err)
	}
	if err := join(token, lost); err != nil {
		t.Errorf("to ask again by the same key: %v", err)
	}

	s.machine("late")
	refusedWith(t, "an expired token", join(s.token("late", -time.Second), filepath.Join(t.TempDir(), "x")), "has expired")
	refusedWith(t, "a token without an ExternalNode", join(s.token("nobody", time.Hour), filepath.Join(t.TempDir(), "x")), "no ExternalNode")
	token = s.token("late", time.Hour)
	if err := s.dyn.Resource(identities).Namespace(s.ns).Delete(ctx, "late", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, "a token that was taken back", join(token, filepath.Join(t.TempDir(), "x")), "there is none like it")

	// Many at once: one has it.
	token = s.token("late", time.Hour)
	var won atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		dir := filepath.Join(t.TempDir(), "x")
		all.Go(func() {
			switch err := join(token, dir); {
			case err == nil:
				won.Add(1)
			case !strings.Contains(err.Error(), "has been used already"):
				t.Errorf("of eight at once: %v", err)
			}
		})
	}
	all.Wait()
	if won.Load() != 1 || len(s.identity("late").Status.Keys) != 1 {
		t.Errorf("%d have joined by one token; %+v", won.Load(), s.identity("late").Status)
	}
	for _, secret := range []string{secretOf(token), secretOf(forged)} {
		if strings.Contains(s.log.String(), secret) {
			t.Error("a secret is in the log")
		}
	}
	if !strings.Contains(s.log.String(), "has been used already") || !strings.Contains(s.log.String(), "joined") {
		t.Errorf("the log says nothing of it: %s", s.log)
	}
}

// losing dials connections of which nothing more is read once a server has done what it was asked for.
func losing(isDone func() bool, cut func()) enroll.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &losingConn{c, isDone, cut}, err
	}
}

type losingConn struct {
	net.Conn
	isDone func() bool
	cut    func()
}

func (c *losingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.isDone() {
		c.cut()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// Nobody is sent the token who is not known by the hash, or not by his name.
func TestServersAreVerifiedFirst(t *testing.T) {
	token, err := enroll.NewToken("ns", "a")
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan *http.Request, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r }))
	defer server.Close()
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	own := enroll.Fingerprint(server.Certificate().RawSubjectPublicKeyInfo)
	other := enroll.Fingerprint([]byte("another"))
	port := server.URL[strings.LastIndexByte(server.URL, ':'):]
	for _, tt := range []struct{ url, hash, want string }{
		{server.URL, other, "not the one of --ca-hash"},
		{"https://localhost" + port, own, "not localhost"},
		{"http://127.0.0.1" + port, own, "is no server"},
		{server.URL + "?x=y", own, "is no server"},
		{server.URL, strings.TrimPrefix(own, "sha256:"), "is no hash"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		_, err := enroll.Join(ctx, enroll.Request{Servers: []string{tt.url}, Token: token, CAHashes: []string{tt.hash}, Dir: t.TempDir()}, enroll.Options{})
		cancel()
		refusedWith(t, tt.url+" "+tt.hash, err, tt.want)
		if err != nil && strings.Contains(err.Error(), secretOf(token)) {
			t.Errorf("the secret is in the error %v", err)
		}
	}
	select {
	case r := <-asked:
		t.Errorf("the token was sent to %s", r.Host)
	default:
	}
}
