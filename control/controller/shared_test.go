package controller_test

import (
	"fmt"
	"testing"
	"time"

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
			close(answer)
			e.eventually("both are listed", knows(c, 2))
			time.Sleep(100 * time.Millisecond)
			e.quietly("both are listed", unchanged)
		})
	}
}
