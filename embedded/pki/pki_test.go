package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"isobar.dev/embedded/pki"
)

// files is a Store in memory.
type files map[string][]byte

func (f files) ReadFile(name string) ([]byte, error) {
	data, ok := f[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return bytes.Clone(data), nil
}

func (f files) WriteFile(name string, data []byte) error {
	f[name] = bytes.Clone(data)
	return nil
}

var (
	names = pki.Names{DNS: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}
	birth = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

const day = 24 * time.Hour

func ensure(t *testing.T, f files, names pki.Names, now time.Time) {
	t.Helper()
	if err := pki.Ensure(f, names, now); err != nil {
		t.Fatal(err)
	}
}

// changed are the files that differ between two states.
func changed(before, after files) []string {
	var all []string
	for name, data := range after {
		if !bytes.Equal(before[name], data) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

func TestEnsureMakesWhatIsMissingAndRenewsWhatEnds(t *testing.T) {
	everything := []string{pki.Admin, pki.Server, pki.CACert, pki.CA, pki.FrontProxyCACert, pki.FrontProxyCA, pki.FrontProxy, pki.ServiceAccount}
	leaves := []string{pki.Admin, pki.Server, pki.FrontProxy}
	authorities := []string{pki.CACert, pki.CA, pki.FrontProxyCACert, pki.FrontProxyCA}
	for _, tt := range []struct {
		name   string
		change func(files)
		names  pki.Names
		now    time.Time
		want   []string
	}{
		{"first start", func(f files) { clear(f) }, names, birth, everything},
		{"next day", func(files) {}, names, birth.Add(day), nil},
		{"still 91 days", func(files) {}, names, birth.Add((365 - 91) * day), nil},
		{"only 89 days", func(files) {}, names, birth.Add((365 - 89) * day), leaves},
		{"years later", func(files) {}, names, birth.Add(10 * 365 * day), append(slices.Clone(leaves), authorities...)},
		{"another address", func(files) {}, pki.Names{DNS: names.DNS, IPs: []net.IP{net.IPv4(10, 0, 0, 1)}}, birth, []string{pki.Server}},
		{"another name", func(files) {}, pki.Names{DNS: []string{"host"}, IPs: names.IPs}, birth, []string{pki.Server}},
		{"lost certificate", func(f files) { delete(f, pki.Admin) }, names, birth, []string{pki.Admin}},
		{"lost authority", func(f files) { delete(f, pki.CA) }, names, birth, []string{pki.Admin, pki.Server, pki.CACert, pki.CA}},
		{"crash between authority and its certificate", func(f files) { delete(f, pki.CACert) }, names, birth, nil}, // as it was
		{"clock was in the future", func(files) {}, names, birth.Add(-30 * day), append(slices.Clone(leaves), authorities...)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := files{}
			ensure(t, f, names, birth)
			original := maps.Clone(f)
			tt.change(f)
			ensure(t, f, tt.names, tt.now)
			want := slices.Sorted(slices.Values(tt.want))
			if got := changed(original, f); !slices.Equal(got, want) {
				t.Errorf("Ensure() wrote %v, want %v", got, want)
			}
			verify(t, f, tt.names, tt.now)
		})
	}
}

// An authority that is renewed keeps its key: clients with the old
// certificate go on.
func TestRenewedAuthorityIsTrustedByOldClients(t *testing.T) {
	f := files{}
	ensure(t, f, names, birth)
	old := pool(t, f, pki.CACert)
	late := birth.Add(10*365*day - 80*day)
	ensure(t, f, names, late)
	if _, err := leaf(t, f, pki.Server).Verify(x509.VerifyOptions{Roots: old, DNSName: "localhost", CurrentTime: late}); err != nil {
		t.Errorf("old client refuses the new certificate: %v", err)
	}
}

func TestEnsureNeverReplacesWhatItCannotRead(t *testing.T) {
	for _, name := range []string{pki.CA, pki.FrontProxyCA, pki.Server, pki.Admin, pki.FrontProxy, pki.ServiceAccount} {
		for _, broken := range []string{"", "garbage", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
			f := files{}
			ensure(t, f, names, birth)
			f[name] = []byte(broken)
			err := pki.Ensure(f, names, birth)
			if err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s = %q: Ensure() = %v, want an error that names it", name, broken, err)
			}
			if string(f[name]) != broken {
				t.Errorf("%s was replaced", name)
			}
		}
	}
	f := files{}
	ensure(t, f, names, birth)
	cert, _, err := pki.Split(f, pki.Admin)
	if err != nil {
		t.Fatal(err)
	}
	_, key, err := pki.Split(f, pki.Server)
	if err != nil {
		t.Fatal(err)
	}
	f[pki.Admin] = append(cert, key...)
	if err := pki.Ensure(f, names, birth); err == nil {
		t.Error("a certificate with another's key was taken")
	}
}

// verify uses the files as a server and its clients do.
func verify(t *testing.T, f files, names pki.Names, now time.Time) {
	t.Helper()
	for _, name := range []string{pki.Server, pki.Admin, pki.FrontProxy, pki.CA, pki.FrontProxyCA} {
		if _, err := tls.X509KeyPair(f[name], f[name]); err != nil {
			t.Errorf("%s is no key pair: %v", name, err)
		}
	}
	server := leaf(t, f, pki.Server)
	for _, host := range append(slices.Clone(names.DNS), names.IPs[0].String()) {
		if _, err := server.Verify(x509.VerifyOptions{Roots: pool(t, f, pki.CACert), DNSName: host, CurrentTime: now}); err != nil {
			t.Errorf("server's certificate for %s: %v", host, err)
		}
	}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	admin := leaf(t, f, pki.Admin)
	if _, err := admin.Verify(x509.VerifyOptions{Roots: pool(t, f, pki.CACert), KeyUsages: client, CurrentTime: now}); err != nil {
		t.Errorf("administrator's certificate: %v", err)
	}
	if !slices.Equal(admin.Subject.Organization, []string{"system:masters"}) {
		t.Errorf("administrator is of %v", admin.Subject.Organization)
	}
	front := leaf(t, f, pki.FrontProxy)
	if _, err := front.Verify(x509.VerifyOptions{Roots: pool(t, f, pki.FrontProxyCACert), KeyUsages: client, CurrentTime: now}); err != nil {
		t.Errorf("front proxy's certificate: %v", err)
	}
	// Else the front proxy's certificate would be a user's, and a user's the front proxy's.
	if _, err := front.Verify(x509.VerifyOptions{Roots: pool(t, f, pki.CACert), KeyUsages: client, CurrentTime: now}); err == nil {
		t.Error("both authorities are one")
	}
}

func leaf(t *testing.T, f files, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(f[name], f[name])
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func pool(t *testing.T, f files, name string) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	if !p.AppendCertsFromPEM(f[name]) {
		t.Fatalf("%s has no certificate", name)
	}
	return p
}
