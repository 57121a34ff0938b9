package enroll

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// What a folder has: the identity, and a key for which a certificate was asked. Each is one file,
// replaced as a whole: a certificate is never beside the key of another.
const (
	identityFile = "identity.json"
	pendingFile  = "pending.json"
	maxFile      = 1 << 20
)

// ErrNotJoined is that a folder has no identity.
var ErrNotJoined = errors.New("this machine has not joined: `isobar token create` prints how")

// kept is what is in the file.
type kept struct {
	Namespace   string   `json:"namespace"`
	Name        string   `json:"name"`
	Servers     []string `json:"servers"`
	CABundle    string   `json:"caBundle"`
	Certificate string   `json:"certificate"`
	Key         string   `json:"key"`
	// Received is when the certificate came, by this machine's clock, and Issued the same by the
	// server's.
	Received time.Time `json:"received"`
	Issued   time.Time `json:"issued"`
}

// pending is a key whose certificate has not come. It is kept so that an answer which was lost can be
// asked for again.
type pending struct {
	For string `json:"for"` // what it was asked by: the hash of a token, or the fingerprint of the key before
	Key string `json:"key"`
}

// state is an identity, read. It is never changed.
type state struct {
	kept
	pair        tls.Certificate
	roots       *x509.CertPool
	fingerprint string
}

// Options configure an Identity. The zero value is ready to use.
type Options struct {
	// Dial makes connections; nil means as net.Dialer does.
	Dial DialFunc
	Log  *slog.Logger // nil means slog.Default()
}

// Identity is by what the agent of this machine is known. It may be used by several goroutines.
type Identity struct {
	dir string
	o   Options

	mu      sync.Mutex
	now     *state
	loaded  time.Time     // with a monotonic reading
	age     time.Duration // of the certificate when it was loaded, by the clock; less than 0 if that was set back
	last    error         // of the last try to renew
	refused bool
	turn    int
}

// Open reads the identity in a folder. ErrNotJoined is that there is none.
func Open(dir string, o Options) (*Identity, error) {
	text, err := readFile(filepath.Join(dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotJoined
	}
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	s, err := parseIdentity(text)
	if err != nil {
		return nil, fmt.Errorf("identity %s: %w", filepath.Join(dir, identityFile), err)
	}
	i := &Identity{dir: dir, o: o}
	if i.o.Log == nil {
		i.o.Log = slog.Default()
	}
	i.use(s)
	return i, nil
}

// use has a state be that of now.
func (i *Identity) use(s *state) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.now, i.loaded, i.last, i.refused = s, time.Now(), nil, false
	i.age = i.loaded.Round(0).Sub(s.Received)
}

func (i *Identity) state() *state {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.now
}

// Of returns namespace and name of the machine's ExternalNode.
func (i *Identity) Of() types.NamespacedName {
	s := i.state()
	return types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
}

// Status says how an identity fares.
type Status struct {
	// Servers are the URLs.
	Servers []string
	// Expires is when the certificate ends, by this machine's clock as far as that has not been set since.
	Expires time.Time
	// Expired: it has ended. To join anew takes a new token.
	Expired bool
	// Refused: a server has said that it does not believe the certificate (any more).
	Refused bool
	// Err is why the last try to renew has failed; nil after a success.
	Err error
}

// Status says how the identity fares.
func (i *Identity) Status() Status {
	i.mu.Lock()
	defer i.mu.Unlock()
	left := i.now.life() - i.elapsed(time.Now())
	return Status{Servers: i.now.Servers, Expires: time.Now().Add(left), Expired: left <= 0, Refused: i.refused, Err: i.last}
}

// life is how long the certificate was good for when it came.
func (s *state) life() time.Duration { return s.pair.Leaf.NotAfter.Sub(s.Issued) }

func parseIdentity(text []byte) (*state, error) {
	s := &state{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s.kept); err != nil {
		return nil, errors.New("it cannot be read") // the error may have a part of the key
	}
	var err error
	if s.pair, err = tls.X509KeyPair([]byte(s.Certificate), []byte(s.Key)); err != nil {
		return nil, errors.New("the certificate is not of the key")
	}
	certs, err := parseBundle([]byte(s.CABundle))
	if err != nil {
		return nil, err
	}
	s.roots = x509.NewCertPool()
	for _, c := range certs {
		s.roots.AddCert(c)
	}
	s.fingerprint = Fingerprint(s.pair.Leaf.RawSubjectPublicKeyInfo)
	if want := userPrefix + s.Namespace + "/" + s.Name; s.pair.Leaf.Subject.CommonName != want {
		return nil, fmt.Errorf("the certificate is of %q: want %q", s.pair.Leaf.Subject.CommonName, want)
	}
	if len(s.Servers) == 0 {
		return nil, errors.New("it names no server")
	}
	for _, u := range s.Servers {
		if _, err := parseServer(u); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// userPrefix begins the names in certificates of agents.
const userPrefix = "isobar:vm:"

// pendingKey returns the key that was made for the same question before, or a new one, which is kept.
func pendingKey(dir, question string) (crypto.Signer, error) {
	path := filepath.Join(dir, pendingFile)
	var p pending
	if text, err := readFile(path); err == nil && json.Unmarshal(text, &p) == nil && p.For == question {
		if key, err := parseKey(p.Key); err == nil {
			return key, nil
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	text, err := formatKey(key)
	if err != nil {
		return nil, err
	}
	if err := writeJSON(path, pending{For: question, Key: text}); err != nil {
		return nil, fmt.Errorf("keep a key: %w", err)
	}
	return key, nil
}

func parseKey(text string) (crypto.Signer, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("a key is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("a key cannot be read")
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("a key signs nothing")
	}
	return signer, nil
}

func formatKey(key crypto.Signer) (string, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", errors.New("a key cannot be written")
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}

// readFile reads a file of at most maxFile bytes that others may not read.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, maxFile)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%s has the mode %o: others may read it; join anew, and chmod 600 it until then", path, info.Mode().Perm())
	}
	return os.ReadFile(path)
}

// writeJSON replaces a file as a whole, for its owner alone, so that it outlives a loss of power.
func writeJSON(path string, v any) (err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*") // with mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
