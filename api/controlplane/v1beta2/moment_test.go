package v1beta2_test

import (
	"strings"
	"testing"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

func FuzzParseMoment(f *testing.F) {
	for _, s := range []string{"a 7 1 7 0", "", "a 7 1 7", "a 7 8 1 1", "a -1 0 0 0", "a 07 1 1 1", " 7 1 1 1", strings.Repeat("a", 65) + " 1 1 1 1", "a 18446744073709551616 1 1 1", "a 7 1 7 0 "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := controlplanev1beta2.ParseMoment(s)
		if err != nil {
			return
		}
		if m.String() != s || m.Source == "" || m.Version < max(m.Last[0], m.Last[1], m.Last[2]) {
			t.Errorf("%q is %+v, and as text %q", s, m, m)
		}
	})
}

func TestParseMoment(t *testing.T) {
	for s, ok := range map[string]bool{"a 7 1 7 0": true, "a 7 1 7": false, "a 7 8 1 1": false, " 7 1 1 1": false, "a 07 1 1 1": false, "a 0 0 0 0": true} {
		if _, err := controlplanev1beta2.ParseMoment(s); (err == nil) != ok {
			t.Errorf("ParseMoment(%q) = %v, want ok %t", s, err, ok)
		}
	}
}
