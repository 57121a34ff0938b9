package controller_test

import (
	"fmt"
	"strings"
	"testing"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/control/console"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

// The console is shown what the loops have found, and by a revision that it is something else.
func TestShown(t *testing.T) {
	e := newEnv(t)
	e.estate()
	c := e.start()
	first, changed := c.Revision()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("db", "db", 5432))
	e.eventually("policy", e.phaseIs("db", antreav1beta1.PolicyRealized))
	<-changed
	if now, _ := c.Revision(); now == first {
		t.Errorf("the revision is %s, as at first", now)
	}

	id := policy.PolicyID(policy.AntreaNetworkPolicy, e.ns, "db")
	e.eventually("state of the policy", func() string {
		p, ok := c.World().Policies.Get(id)
		if !ok {
			return "it is not there"
		}
		s := c.PolicyState(p)
		if s.Phase != console.Realized || len(s.Targets) != 1 || s.Targets[0].Phase != console.Realized || !strings.HasSuffix(s.Targets[0].Name, "/us-east-1/vpca") || len(s.Refusals)+len(s.Problems) > 0 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
	e.eventually("state of the workloads", func() string {
		for n, want := range map[int]console.Phase{1: "", 2: console.Realized} { // web and db
			w, ok := c.World().Workloads.Get(policy.WorkloadID(policy.KindExternal, e.ns, entityName("vpca", n)))
			if !ok {
				return "it is not there"
			}
			if s := c.WorkloadState(w); s.Phase != want {
				return fmt.Sprintf("%d: %+v, want %q", n, s, want)
			}
			objects := c.CloudObjects(w)
			if len(objects) < 2 || objects[0].Kind != "virtualmachine" || objects[1].ID != nic("vpca", n) || objects[0].Account != e.ns+"/account" && !strings.HasPrefix(objects[0].Account, e.ns+"/") {
				return fmt.Sprintf("%+v", objects)
			}
		}
		return ""
	})
	e.eventually("accounts", func() string {
		all := c.Accounts()
		if len(all) != 1 || all[0].Namespace != e.ns || all[0].Problem != "" || all[0].VMs != 3 || len(all[0].Regions) != 2 || all[0].Regions[0].LastPoll.IsZero() || len(all[0].Targets) != 2 || all[0].Targets[0].Phase != "Synced" {
			return fmt.Sprintf("%+v", all)
		}
		return ""
	})
	if loops := c.Loops(); len(loops) == 0 || loops[0].Name == "" {
		t.Errorf("loops: %+v", loops)
	}

	_, changed = c.Revision()
	e.setPort("db", 5433)
	<-changed

	before, after, notices, err := c.Lay([]kube.Write{{Delete: true, Manifest: fmt.Appendf(nil, `{"apiVersion":"crd.antrea.io/v1beta1","kind":"NetworkPolicy","metadata":{"namespace":%q,"name":"db"}}`, e.ns)}})
	if err != nil || len(notices) != 1 || notices[0] != nil || before.Policies.Len() != after.Policies.Len()+1 {
		t.Errorf("without the policy: %d of %d, %v, %v", after.Policies.Len(), before.Policies.Len(), notices, err)
	}
}
