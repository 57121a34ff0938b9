package policy_test

import (
	"strings"
	"testing"

	"isobar.dev/policy"
)

func TestParsePorts(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want policy.Ports
		ok   bool
	}{
		{"80", policy.Ports{First: 80, Last: 80}, true},
		{"80-443", policy.Ports{First: 80, Last: 443}, true},
		{"1-65535", policy.Ports{First: 1, Last: 65535}, true},
		{"443-80", policy.Ports{}, false}, // reversed
		{"65536", policy.Ports{}, false},  // one too many
		{"0", policy.Ports{}, false},
		{"0-80", policy.Ports{}, false},
		{"", policy.Ports{}, false},
		{"-", policy.Ports{}, false},
		{"80-", policy.Ports{}, false},
		{"-80", policy.Ports{}, false},
		{"+80", policy.Ports{}, false},
		{" 80", policy.Ports{}, false},
		{"80-90-100", policy.Ports{}, false},
		{"http", policy.Ports{}, false},
	} {
		got, err := policy.ParsePorts(tt.in)
		if got != tt.want || (err == nil) != tt.ok {
			t.Errorf("ParsePorts(%q) = %v, %v; want %v, ok %t", tt.in, got, err, tt.want, tt.ok)
		}
	}
}

func FuzzParsePorts(f *testing.F) {
	for _, s := range []string{"80", "80-443", "443-80", "65536", "0", "-", "1-65535"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := policy.ParsePorts(s)
		if err != nil {
			if !strings.Contains(err.Error(), "ports ") {
				t.Errorf("ParsePorts(%q): the error %q does not say what of", s, err)
			}
			return
		}
		if p.IsAll() || p.First == 0 || p.First > p.Last {
			t.Errorf("ParsePorts(%q) = %v, which is no range", s, p)
		}
		if again, err := policy.ParsePorts(p.String()); again != p {
			t.Errorf("%q: %v became %v (%v)", s, p, again, err)
		}
	})
}

func TestMatchesName(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"db.example.com", "db.example.com", true},
		{"DB.example.com.", "db.EXAMPLE.com", true},
		{"db.example.com", "xdb.example.com", false},
		{"*.example.com", "a.b.example.com", true},
		{"*.example.com", "example.com", false},
		{"*example.com", "example.com", true},
		{"*", "anything.at.all", true},
		{"a*b*c", "abc", true},
		{"a*b*c", "axbxbxc", true},
		{"a*b*c", "acb", false},
		{"ab*bc", "abc", false}, // the ends may not overlap
		{"a*a", "a", false},
		{"**", "", true},
		{"", "", true},
		{"", "x", false},
	} {
		if got := policy.MatchesName(tt.pattern, tt.name); got != tt.want {
			t.Errorf("MatchesName(%q, %q) = %t, want %t", tt.pattern, tt.name, got, tt.want)
		}
	}
}

// MatchesName is compared with a matcher that tries every length of each star.
func FuzzMatchesName(f *testing.F) {
	f.Add("*.example.com", "a.b.example.com")
	f.Add("a*b*c", "axbxbxc")
	f.Add("ab*bc", "abc")
	f.Fuzz(func(t *testing.T, pattern, name string) {
		if len(pattern) > 12 || len(name) > 40 {
			return // the slow one is exponential
		}
		norm := func(s string) string { return strings.ToLower(strings.TrimSuffix(s, ".")) }
		if got, want := policy.MatchesName(pattern, name), slowly(norm(pattern), norm(name)); got != want {
			t.Errorf("MatchesName(%q, %q) = %t, want %t", pattern, name, got, want)
		}
	})
}

func slowly(pattern, name string) bool {
	switch {
	case pattern == "":
		return name == ""
	case pattern[0] == '*':
		return slowly(pattern[1:], name) || name != "" && slowly(pattern, name[1:])
	}
	return name != "" && pattern[0] == name[0] && slowly(pattern[1:], name[1:])
}

// Equal canonical forms must mean equal matching: what could be mistaken for
// something else is quoted.
func TestCanonicalFormsDiffer(t *testing.T) {
	in := func(values ...string) policy.Selector {
		return policy.Selector{{Key: "k", Op: policy.In, Values: values}}
	}
	forms := map[string]string{}
	for name, form := range map[string]string{
		"two values":                 in("a", "b").String(),
		"one value with a comma":     in("a,b").String(),
		"no value":                   in().String(),
		"the empty value":            in("").String(),
		"a value with a parenthesis": in("a),x in (b").String(),
		"two requirements":           append(in("a"), policy.Requirement{Key: "x", Op: policy.In, Values: []string{"b"}}).String(),
		"nothing":                    policy.NoLabels.String(),
		"a key that looks so":        policy.Selector{{Key: "<nothing>", Op: policy.Exists}}.String(),
		"not a key":                  policy.Selector{{Key: "k", Op: policy.DoesNotExist}}.String(),
		"a key that looks so too":    policy.Selector{{Key: "!k", Op: policy.Exists}}.String(),
		"a port":                     policy.Traffic{Protocol: policy.TCP, Ports: policy.Ports{First: 80, Last: 80}}.String(),
		"a name that looks so":       policy.Traffic{Protocol: policy.TCP, PortName: "80"}.String(),
		"a source port":              policy.Traffic{Protocol: policy.TCP, PortName: "x", SourcePorts: policy.Ports{First: 1, Last: 1}}.String(),
		"a name that looks so, too":  policy.Traffic{Protocol: policy.TCP, PortName: "x from 1"}.String(),
	} {
		if other, ok := forms[form]; ok {
			t.Errorf("%s and %s have the same form %q", name, other, form)
		}
		forms[form] = name
	}
	if a, b := in("a", "b", "a").String(), in("b", "a").String(); a != b {
		t.Errorf("the same values in another order have the forms %q and %q", a, b)
	}
}
