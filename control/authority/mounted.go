package authority

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Mounted is a serving certificate that others make, and put into a directory
// as tls.crt, tls.key and ca.crt, as cert-manager does.
type Mounted struct {
	dir     string
	hasNoCA bool // whoever is shown it believes it by other means

	mu      sync.Mutex
	serving *tls.Certificate
	bundle  []byte
}

// NewMounted returns the certificate in dir. It reads nothing yet; call Refresh.
func NewMounted(dir string) *Mounted { return &Mounted{dir: dir} }

// NewMountedPair is NewMounted of a directory that need not have a ca.crt. Its Bundle is empty.
func NewMountedPair(dir string) *Mounted { return &Mounted{dir: dir, hasNoCA: true} }

// Refresh reads the files. An error leaves what was read before.
func (m *Mounted) Refresh(context.Context) error {
	serving, err := tls.LoadX509KeyPair(filepath.Join(m.dir, "tls.crt"), filepath.Join(m.dir, "tls.key"))
	if err != nil {
		return fmt.Errorf("serving certificate: %w", err)
	}
	var bundle []byte
	if !m.hasNoCA {
		if bundle, err = os.ReadFile(filepath.Join(m.dir, "ca.crt")); err != nil {
			return fmt.Errorf("serving certificate: %w", err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serving, m.bundle = &serving, bundle
	return nil
}

// Bundle is what ca.crt has.
func (m *Mounted) Bundle() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bundle
}

// Certificate is a tls.Config's GetCertificate.
func (m *Mounted) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.serving == nil {
		return nil, errors.New("the serving certificate has not been read yet")
	}
	return m.serving, nil
}
