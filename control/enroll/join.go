package enroll

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
)

// Request is what it takes to join.
type Request struct {
	// Servers are URLs as https://isobar.example.com:10443; any of them will do.
	Servers []string
	Token   Token
	// CAHashes are the fingerprints of authorities, by any of which a server is known.
	CAHashes []string
	// Dir keeps the identity.
	Dir string
	// Again: an identity that is there is replaced, once the new one has come.
	Again bool
}

const (
	askTimeout = 30 * time.Second
	maxAnswer  = 64 << 10
	firstWait  = time.Second
	longestTry = 30 * time.Second
)

// Join makes a key, has a certificate of it issued by a server, and keeps both. The token is sent to nobody but a server
// that is known by one of the hashes. What may pass is tried again until ctx is done.
func Join(ctx context.Context, r Request, o Options) (*Identity, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if _, err := Open(r.Dir, o); err == nil && !r.Again {
		return nil, fmt.Errorf("this machine has joined already: %s has its identity", r.Dir)
	} else if err != nil && !errors.Is(err, ErrNotJoined) && !r.Again {
		return nil, err
	}
	key, err := pendingKey(r.Dir, r.Token.Hash())
	if err != nil {
		return nil, err
	}
	for wait, n := firstWait, 0; ; n++ {
		server := r.Servers[n%len(r.Servers)]
		s, err := r.try(ctx, server, key, o)
		if err == nil {
			return keep(r.Dir, s, o)
		}
		if isFinal(err) || ctx.Err() != nil {
			return nil, fmt.Errorf("join by %s: %w", server, err)
		}
		select {
		case <-time.After(jitter(wait)):
		case <-ctx.Done():
			return nil, fmt.Errorf("join by %s: %w", server, err)
		}
		if n%len(r.Servers) == len(r.Servers)-1 {
			wait = min(2*wait, longestTry)
		}
	}
}

func (r Request) check() error {
	if len(r.Servers) == 0 || len(r.CAHashes) == 0 || r.Dir == "" || r.Token.Name == "" {
		return errors.New("join: it takes a server, a token, the hash of its authority, and a folder")
	}
	for _, h := range r.CAHashes {
		if err := checkHash(h); err != nil {
			return err
		}
	}
	for _, s := range r.Servers {
		if _, err := parseServer(s); err != nil {
			return err
		}
	}
	return nil
}

// parseServer reads the URL of a server.
func parseServer(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" || u.Opaque != "" {
		return nil, fmt.Errorf("%q is no server: want as https://isobar.example.com:10443", text)
	}
	return u, nil
}

// Hosts are the names and addresses in URLs of servers, which their certificates must have.
func Hosts(servers []string) ([]string, error) {
	var out []string
	for _, s := range servers {
		u, err := parseServer(s)
		if err != nil {
			return nil, err
		}
		out = append(out, u.Hostname())
	}
	return out, nil
}

// jitter is about d.
func jitter(d time.Duration) time.Duration { return d*4/5 + mathrand.N(d*2/5+1) }

// errUntrusted is that a server is not known by any of the hashes. To ask it again is of no use.
var errUntrusted = errors.New("the server is not the one of --ca-hash: none of the authorities that it shows has that hash")

// isFinal says whether an error stays when the same is tried again.
func isFinal(err error) bool {
	return errors.Is(err, errUntrusted) || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

func (r Request) try(ctx context.Context, server string, key crypto.Signer, o Options) (*state, error) {
	u, err := parseServer(server)
	if err != nil {
		return nil, err
	}
	var authority []*x509.Certificate
	t := newTransport(&tls.Config{
		MinVersion: tls.VersionTLS12,
		// Verified below: all that is known of the authority is its hash.
		InsecureSkipVerify: true,
		VerifyConnection: func(c tls.ConnectionState) (err error) {
			authority, err = knownBy(c.PeerCertificates, u.Hostname(), r.CAHashes)
			return err
		},
	}, o.Dial)
	defer t.CloseIdleConnections()
	answer, err := ask(ctx, t, u, r.Token.Namespace, r.Token.Name, key, r.Token.Reveal())
	if err != nil {
		return nil, err
	}
	if answer.CABundle == "" {
		for _, c := range authority {
			answer.CABundle += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
		}
	}
	return newState(kept{Namespace: r.Token.Namespace, Name: r.Token.Name, Servers: r.Servers}, answer, key)
}

// knownBy returns the authority of a server's certificate that has one of the hashes.
func knownBy(shown []*x509.Certificate, host string, hashes []string) ([]*x509.Certificate, error) {
	roots, others := x509.NewCertPool(), x509.NewCertPool()
	var known []*x509.Certificate
	for _, c := range shown {
		others.AddCert(c)
		for _, h := range hashes {
			if c.IsCA && Fingerprint(c.RawSubjectPublicKeyInfo) == h {
				roots.AddCert(c)
				known = append(known, c)
			}
		}
	}
	if len(known) == 0 {
		return nil, errUntrusted
	}
	if _, err := shown[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: others, DNSName: host}); err != nil {
		return nil, aboutClock(err)
	}
	return known, nil
}

// aboutClock says what this machine takes for the time, where that may be what is wrong.
func aboutClock(err error) error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return fmt.Errorf("%w (the clock of this machine says %s)", err, time.Now().UTC().Format(time.RFC3339))
	}
	return err
}

// ask posts the request for a certificate of a key. An empty token means that the connection says who asks.
func ask(ctx context.Context, t http.RoundTripper, server *url.URL, namespace, name string, key crypto.Signer, token string) (isobarv1alpha1.AgentCertificateStatus, error) {
	var none isobarv1alpha1.AgentCertificateStatus
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: userPrefix + namespace + "/" + name}}, key)
	if err != nil {
		return none, fmt.Errorf("make a request: %w", err)
	}
	body, err := json.Marshal(isobarv1alpha1.AgentCertificate{
		TypeMeta:   metav1.TypeMeta{APIVersion: isobarv1alpha1.GroupVersion.String(), Kind: "AgentCertificate"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       isobarv1alpha1.AgentCertificateSpec{Request: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))},
	})
	if err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	u := server.JoinPath("apis", isobarv1alpha1.GroupVersion.Group, isobarv1alpha1.GroupVersion.Version, "namespaces", namespace, isobarv1alpha1.ResourceAgentCertificates)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return none, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "isobar-agent")
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	// Not by a client that follows: nobody else is to have the token.
	answer, err := t.RoundTrip(request)
	if err != nil {
		return none, aboutClock(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer+1))
	if err != nil {
		return none, err
	}
	if len(text) > maxAnswer {
		return none, errors.New("the answer is too long")
	}
	if answer.StatusCode != http.StatusCreated {
		return none, refusal(answer.StatusCode, text)
	}
	var out isobarv1alpha1.AgentCertificate
	if err := json.Unmarshal(text, &out); err != nil {
		return none, fmt.Errorf("the answer cannot be read: %w", err)
	}
	return out.Status, nil
}

// refusal is what a server has said.
func refusal(code int, text []byte) error {
	s := metav1.Status{}
	if json.Unmarshal(text, &s) != nil || s.Status != metav1.StatusFailure {
		s = metav1.Status{Status: metav1.StatusFailure, Message: http.StatusText(code)}
		switch code {
		case http.StatusUnauthorized:
			s.Reason = metav1.StatusReasonUnauthorized
		case http.StatusForbidden:
			s.Reason = metav1.StatusReasonForbidden
		}
	}
	s.Code = int32(code)
	return &apierrors.StatusError{ErrStatus: s}
}

// newState checks an answer: it is of the key, and for whom it was asked.
func newState(k kept, answer isobarv1alpha1.AgentCertificateStatus, key crypto.Signer) (*state, error) {
	text, err := formatKey(key)
	if err != nil {
		return nil, err
	}
	k.Certificate, k.CABundle, k.Key = answer.Certificate, answer.CABundle, text
	// What is told are whole seconds: the later one has the certificate not seem to last for longer.
	k.Received, k.Issued = time.Now().Round(0), answer.Time.Add(time.Second)
	out, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	s, err := parseIdentity(out)
	if err != nil {
		return nil, fmt.Errorf("the answer is of no use: %w", err)
	}
	if s.life() <= 0 || s.Issued.Before(s.pair.Leaf.NotBefore) {
		return nil, errors.New("the answer is of no use: the certificate has ended before it began")
	}
	return s, nil
}

// keep writes an identity down, in place of another.
func keep(dir string, s *state, o Options) (*Identity, error) {
	if err := writeJSON(filepath.Join(dir, identityFile), s.kept); err != nil {
		return nil, fmt.Errorf("keep the identity: %w", err)
	}
	// It is that of the identity now; it would be of no harm.
	_ = os.Remove(filepath.Join(dir, pendingFile))
	return Open(dir, o)
}
