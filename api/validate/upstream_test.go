package validate_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/validate"
)

// decision is one line of the record of upstream's webhook.
type decision struct {
	ID, Operation, Reason       string
	Object, OldObject, Existing json.RawMessage
	Allowed                     bool
}

// circumstances are what the record leaves out: who asked, which features were
// on, and objects that upstream's tests put straight into the controller.
func circumstances(id string, r *validate.Request, w *world) {
	switch id {
	case "antrea-validate-L7NetworkPolicy-disabled":
		w.noLayer7 = true
	case "antrea-validate-update-tier-allowed":
		r.FromController = true
	case "antrea-validate-over-max-tier":
		// The six built-in ones are there too.
		for i := range int32(antreav1beta1.MaxTiers - 6) {
			w.objects = append(w.objects, tier(fmt.Sprintf("tier-priority-%d", i), i))
		}
	case "antrea-validate-overlap-tier":
		w.objects = append(w.objects, tier("other", 1))
	case "antrea-validate-delete-annp-ref-tier":
		p := &antreav1beta1.NetworkPolicy{}
		p.Spec.Tier = "tier-annp-ref"
		w.objects = append(w.objects, p)
	}
}

func tier(name string, priority int32) *antreav1beta1.Tier {
	return &antreav1beta1.Tier{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: antreav1beta1.TierSpec{Priority: priority}}
}

// TestUpstreamDecisions takes every decision that upstream's webhook took.
func TestUpstreamDecisions(t *testing.T) {
	n := 0
	lines(t, "admission-antrea.jsonl", func(line []byte) {
		n++
		var d decision
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatal(err)
		}
		r := validate.Request{Operation: validate.Operation(d.Operation), Object: read(t, string(d.Object)), Old: read(t, string(d.OldObject))}
		w := &world{}
		var many []json.RawMessage
		if json.Unmarshal(d.Existing, &many) != nil {
			many = []json.RawMessage{d.Existing}
		}
		for _, raw := range many {
			w.objects = append(w.objects, read(t, string(raw)))
		}
		circumstances(d.ID, &r, w)
		errs, warnings := validate.Validate(r, w)
		if (len(errs) == 0) != d.Allowed {
			t.Errorf("%s: Validate(%s %s) = %v, want allowed %t (upstream: %s)", d.ID, d.Operation, d.Object, errs, d.Allowed, d.Reason)
		}
		for _, e := range errs {
			if e.Field == "" || e.Field == "<nil>" {
				t.Errorf("%s: %v names no field", d.ID, e)
			}
		}
		if d.ID == "antrea-validate-acnp-appliedto-node-with-loglabel" && (len(warnings) != 1 || !strings.Contains(warnings[0], "spec.ingress[0].logLabel")) {
			t.Errorf("%s: warnings %q, want one about spec.ingress[0].logLabel", d.ID, warnings)
		}
		if testing.Verbose() {
			t.Logf("%s\n  upstream: %s\n  ours:     %v %q", d.ID, d.Reason, errs.ToAggregate(), warnings)
		}
	})
	if n < 104 {
		t.Errorf("read %d decisions, want at least 104", n)
	}
}

// TestPublicPoliciesAreAdmitted takes the policies of the public suites, which
// upstream admits.
func TestPublicPoliciesAreAdmitted(t *testing.T) {
	for _, name := range []string{"antrea-v4.jsonl", "antrea-v6.jsonl", "clusternetworkpolicy-v4.jsonl", "clusternetworkpolicy-v6.jsonl"} {
		lines(t, name, func(line []byte) {
			var c struct {
				ID    string
				Steps []struct{ Policies []json.RawMessage }
			}
			if err := json.Unmarshal(line, &c); err != nil {
				t.Fatal(err)
			}
			for i, step := range c.Steps {
				w := world{}
				for _, raw := range step.Policies {
					if !bytes.Contains(raw, []byte(`"networking.k8s.io/v1"`)) {
						w.objects = append(w.objects, read(t, string(raw)))
					}
				}
				for _, o := range w.objects {
					validate.Default(o)
					if errs, _ := validate.Validate(validate.Request{Operation: validate.Create, Object: o}, w); len(errs) > 0 {
						t.Errorf("%s step %d: %v", c.ID, i+1, errs.ToAggregate())
					}
				}
			}
		})
	}
}

// lines calls each with the lines of a file of public data, which lies beside the
// checkout or not at all.
func lines(t *testing.T, name string, each func([]byte)) {
	t.Helper()
	dir := os.Getenv("ISOBAR_SHARED")
	if dir == "" {
		var err error
		if dir, err = filepath.Abs("../../../shared"); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(filepath.Join(dir, "conformance", name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("missing: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		each(s.Bytes())
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
}
