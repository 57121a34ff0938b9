package controller_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

// After a restart nothing is written in a network that two accounts share until both have
// answered, whichever is late, and that they share it is not forgotten meanwhile.
func TestSharersWaitForOneAnother(t *testing.T) {
	for _, late := range []string{"acct", "second"} {
		t.Run(late, func(t *testing.T) {
			e := newEnv(t)
			e.estate()
			e.start()
			second := e.account("us-east-1")
			second.Name = "second"
			pick := func(name string) cloudv1alpha1.VirtualMachineSelector {
				return cloudv1alpha1.VirtualMachineSelector{VMMatch: []cloudv1alpha1.EntityMatch{{MatchName: name}}}
			}
			webs, dbs := e.selector("webs", pick("web1")), e.selector("dbs", pick("db1"))
			dbs.Spec.AccountName = "second"
			e.create(e.secret(rightKeys), e.account("us-east-1"), second, webs, dbs, e.allow("web", "web", 80), e.allow("db", "db", 5432))
			shares := func() string {
				cpa, err := get[cloudv1alpha1.CloudProviderAccount](e, "second")
				if err != nil {
					return err.Error()
				}
				return conditionIs(cpa.Status.Conditions, "Shared", "True EnforcedByAnother")
			}
			right := all(e.has("vpca", 1, "80"), e.has("vpca", 2, "5432"), e.phaseIs("db", antreav1beta1.PolicyRealized), shares)
			e.eventually("both are enforced", right)
			e.quiet()
			e.stop()

			writes, answer := e.cloudWrites(), make(chan struct{})
			e.cloud.with(func(f *fakeCloud) { f.silent[late] = answer })
			c := e.start()
			e.eventually("the other one is listed", func() string {
				if c.Stats().Polls < 3 {
					return fmt.Sprint(c.Stats().Polls, " listings")
				}
				return ""
			})
			unchanged := func() string {
				if n := e.cloudWrites() - writes; n != 0 {
					return fmt.Sprintf("%d writes", n)
				}
				return right()
			}
			e.quietly("one of them is listed", unchanged)
			e.cloud.with(func(f *fakeCloud) { f.latency = 200 * time.Millisecond }) // so that it is seen what is told meanwhile
			close(answer)
			e.eventually("both are listed", func() string {
				if wrong := unchanged(); wrong != "" {
					t.Fatalf("while both are listed: %s", wrong)
				}
				return knows(c, 2)()
			})
			e.quietly("both are listed", unchanged)
		})
	}
}

// Nothing is written in a network that a second account comes to share before that account's
// object says so: who starts after an end at any moment knows for whom to wait.
func TestSharedIsToldBeforeAnyWrite(t *testing.T) {
	for _, tt := range []struct {
		name       string
		isEnforced bool // by the first, before the second comes
	}{{"both are there from the start", false}, {"the second comes later", true}} {
		t.Run(tt.name, func(t *testing.T) {
			e := newEnv(t)
			e.estate()
			held := &heldStatus{of: "second", release: make(chan struct{})}
			config := rest.CopyConfig(e.config)
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { held.next = next; return held })
			e.config = config
			second := e.account("us-east-1")
			second.Name = "second"
			pick := func(name string) cloudv1alpha1.VirtualMachineSelector {
				return cloudv1alpha1.VirtualMachineSelector{VMMatch: []cloudv1alpha1.EntityMatch{{MatchName: name}}}
			}
			webs, dbs := e.selector("webs", pick("web1")), e.selector("dbs", pick("db1"))
			dbs.Spec.AccountName = "second"
			e.create(e.secret(rightKeys), e.account("us-east-1"), webs, e.allow("web", "web", 80), e.allow("db", "db", 5432))
			if tt.isEnforced {
				e.start()
				e.eventually("the first enforces", all(e.has("vpca", 1, "80"), e.phaseIs("web", antreav1beta1.PolicyRealized)))
				e.quiet()
			} else {
				time.Sleep(time.Second) // so that the second is younger: creation counts in seconds
			}
			writes := e.cloudWrites()
			e.create(second, dbs)
			if !tt.isEnforced {
				e.start()
			}
			e.eventually("it is about to be told", func() string {
				if held.asked.Load() == 0 {
					return "no status was written"
				}
				return ""
			})
			e.quietly("nothing is written", func() string {
				if n := e.cloudWrites() - writes; n > 0 {
					return fmt.Sprintf("%d writes", n)
				}
				return ""
			})
			close(held.release)
			e.eventually("both are enforced", all(e.has("vpca", 1, "80"), e.has("vpca", 2, "5432"), e.phaseIs("db", antreav1beta1.PolicyRealized), func() string {
				cpa, err := get[cloudv1alpha1.CloudProviderAccount](e, "second")
				if err != nil {
					return err.Error()
				}
				return conditionIs(cpa.Status.Conditions, "Shared", "True EnforcedByAnother")
			}))
		})
	}
}

// heldStatus holds up what writes into an account's status that it is shared.
type heldStatus struct {
	next    http.RoundTripper
	of      string
	asked   atomic.Int32
	release chan struct{}
}

// RoundTrip sends a request, once it may.
func (h *heldStatus) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/"+h.of+"/status") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte("EnforcedByAnother")) {
			h.asked.Add(1)
			select {
			case <-h.release:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
	}
	return h.next.RoundTrip(r)
}
