package main

import (
	"strings"
	"testing"
)

// What an agent knows of names is shown, as far as a pattern means it.
func TestAgentNames(t *testing.T) {
	const text = `[{"name":"a.example","addresses":[{"address":"10.0.0.1","until":"2027-01-01T00:00:00Z"},{"address":"fd00::1","until":"2027-01-01T00:00:00Z"}]},
		{"name":"b.org","addresses":[{"address":"10.0.0.2","until":"2027-01-01T00:00:00Z"}]}]`
	for _, tt := range []struct {
		pattern, output string
		want, not       string
	}{
		{"", "", "b.org      10.0.0.2", "json"},
		{"*.example", "", "a.example  fd00::1", "b.org"},
		{"*.org", "json", `"name": "b.org"`, "a.example"},
		{"none", "json", "[]", "example"},
	} {
		var out strings.Builder
		if err := printAgentNames(&out, []byte(text), tt.pattern, tt.output); err != nil || !strings.Contains(out.String(), tt.want) || strings.Contains(out.String(), tt.not) {
			t.Errorf("%q, %q: %v\n%s", tt.pattern, tt.output, err, out.String())
		}
	}
	if err := printAgentNames(&strings.Builder{}, []byte("<html>"), "", ""); err == nil {
		t.Error("no error of what cannot be read")
	}
	var out strings.Builder
	nameStatus{Names: 2, Addresses: 3, Answers: 4, Dropped: 1, LastDrop: "why", EvictedAddresses: 7}.print(&out)
	for _, want := range []string{"2 with 3", "4 answers seen", "1 answers, the last since: why", "0 names and 7 addresses"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing:\n%s", want, out.String())
		}
	}
}
