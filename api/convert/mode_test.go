package convert_test

import (
	"strings"
	"testing"

	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

func TestMode(t *testing.T) {
	for _, tt := range []struct {
		annotations map[string]string
		want        policy.Mode
		problem     string
	}{
		{nil, policy.Enforce, ""},
		{map[string]string{"isobar.dev/mode": "Enforce"}, policy.Enforce, ""},
		{map[string]string{"isobar.dev/mode": "Stage"}, policy.Stage, ""},
		{map[string]string{"isobar.dev/mode": "stage"}, policy.Enforce, `"stage": want Enforce or Stage; it is enforced`},
		{map[string]string{"isobar.dev/mode": "Stage "}, policy.Enforce, `"Stage ": want`},
		{map[string]string{"isobar.dev/mode": ""}, policy.Enforce, `"": want`},
		{map[string]string{"isobar.dev/Mode": "Stage", "mode": "Stage"}, policy.Enforce, ""}, // others' names
	} {
		got, problems := convert.Mode(tt.annotations)
		said := ""
		for _, p := range problems {
			if p.Warning {
				t.Errorf("Mode(%v): %v is a warning", tt.annotations, p)
			}
			said += p.String()
		}
		if got != tt.want || (said == "") != (tt.problem == "") || !strings.Contains(said, tt.problem) {
			t.Errorf("Mode(%v) = %v, %q; want %v, %q", tt.annotations, got, said, tt.want, tt.problem)
		}
	}
}
