package azure

import (
	"fmt"
	"strings"

	"isobar.dev/policy"
)

// Azure takes names of up to 80 letters, digits, dots, dashes and underscores.
const (
	maxName  = 80
	maxAbout = 50
)

// nameOf names the n-th of the rules that are written for a rule of a policy, so that
// it keeps its name, and its priority, when what it says changes.
func nameOf(policyID string, d policy.Direction, of string, n int) string {
	begin := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '_':
			return r
		}
		return '-'
	}, policyID)
	if begin == "" {
		begin = "isobar"
	}
	tail := "-" + hash(d.String(), of, fmt.Sprint(n))
	return begin[:min(len(begin), maxName-len(tail))] + tail
}

// about is what the description of a rule says of its policy.
func about(policyID string) string {
	var b strings.Builder
	for _, r := range policyID {
		if b.Len()+len(string(r)) > maxAbout {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
