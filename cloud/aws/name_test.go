package aws_test

import (
	"testing"

	"isobar.dev/cloud/aws"
	"isobar.dev/policy"
	sim "isobar.dev/sim/aws"
)

// relabel returns s with other values of the label app.
func relabel(s policy.Snapshot, apps map[string]string) policy.Snapshot {
	for vm, app := range apps {
		w, _ := s.Workloads.Get("ee/shop/" + vm)
		c := *w
		c.Labels = policy.LabelsOf(map[string]string{"app": app})
		s.Workloads = s.Workloads.Put(c.ID, &c)
	}
	return s
}

// open returns a policy that lets a port in from everywhere.
func open(name string, port uint16, apps ...string) *policy.Policy {
	return &policy.Policy{Name: name, AppliedTo: app(apps...), Ingress: []policy.Rule{allow(policy.Peers{All: true}, tcp(port))}}
}

// The VMs of a class keep their security group when they come under other
// policies together, whoever comes or goes meanwhile: no flow is cut that both
// states allow, and nobody has rules for a moment that are of neither.
func TestClassesKeepTheirGroups(t *testing.T) {
	web, more, db := open("web", 80, "web"), open("more", 443, "web"), open("db", 5432, "db")
	extra := open("extra", 8443, "db")
	other := open("web", 22, "web")
	for _, tt := range []struct {
		name     string
		from, to policy.Snapshot
		most     map[string]int
	}{
		{"a policy comes", with(shop(), web, db), with(shop(), web, more, db), map[string]int{"AuthorizeSecurityGroupIngress": 1}},
		{"a policy goes", with(shop(), web, more, db), with(shop(), web, db), map[string]int{"RevokeSecurityGroupIngress": 1}},
		{"a policy is replaced", with(shop(), web, db), with(shop(), more, db), map[string]int{"AuthorizeSecurityGroupIngress": 1, "RevokeSecurityGroupIngress": 1}},
		{"a VM goes to another class meanwhile", with(shop(), web, db), with(relabel(shop(), map[string]string{"vm-0": "db"}), more, db),
			map[string]int{"AuthorizeSecurityGroupIngress": 1, "RevokeSecurityGroupIngress": 1, "ModifyNetworkInterfaceAttribute": 1}},
		{"a VM comes from another class meanwhile", with(shop(), web, db), with(relabel(shop(), map[string]string{"vm-3": "web"}), more, db),
			map[string]int{"AuthorizeSecurityGroupIngress": 1, "RevokeSecurityGroupIngress": 1, "ModifyNetworkInterfaceAttribute": 1}},
		{"a VM goes the way that rules go", with(shop(), web, db), with(relabel(shop(), map[string]string{"vm-0": "db"}), other, extra),
			map[string]int{"AuthorizeSecurityGroupIngress": 2, "RevokeSecurityGroupIngress": 2, "ModifyNetworkInterfaceAttribute": 1}},
		// No order of calls would do without a new group: the smaller class takes one.
		{"VMs change places", with(shop(), web, db), with(relabel(shop(), map[string]string{"vm-0": "db", "vm-3": "web"}), other, extra),
			map[string]int{"CreateSecurityGroup": 1, "DeleteSecurityGroup": 1, "AuthorizeSecurityGroupIngress": 2, "RevokeSecurityGroupIngress": 1, "ModifyNetworkInterfaceAttribute": 3}},
		{"a class is torn in two", with(shop(), web, db), with(relabel(shop(), map[string]string{"vm-0": "batch"}), more, db, open("same", 80, "batch")),
			map[string]int{"CreateSecurityGroup": 1, "AuthorizeSecurityGroupIngress": 2, "RevokeSecurityGroupIngress": 1, "CreateTags": 1, "ModifyNetworkInterfaceAttribute": 2}},
		{"two classes become one", with(shop(), web, db), with(shop(), open("all", 80, "web", "db")),
			map[string]int{"RevokeSecurityGroupIngress": 1, "ModifyNetworkInterfaceAttribute": 2, "DeleteSecurityGroup": 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := verdicts(t, map[string]policy.Snapshot{"from": tt.from, "to": tt.to})
			e := serve(t, estate(shop(), sim.Quotas{}), sim.Options{NoThrottle: true})
			a := e.account(t, aws.Options{ManyPeers: 9})
			e.sync(t, a, tt.from)
			e.ResetCalls()
			end := e.watch(want["from"], want["to"])
			e.sync(t, a, tt.to)
			if err := end(); err != nil {
				t.Error(err)
			}
			got := e.calls()
			for action, n := range got {
				if n > tt.most[action] && !(action == "RevokeSecurityGroupEgress" && n <= got["CreateSecurityGroup"]) && action != "AuthorizeSecurityGroupEgress" {
					t.Errorf("%d calls of %s; want at most %d", n, action, tt.most[action])
				}
			}
			if err := differ(e.flows(), e.passes(), want["to"]); err != nil {
				t.Error(err)
			}
			e.sync(t, a, tt.to)
			e.sync(t, e.account(t, aws.Options{ManyPeers: 9}), tt.to)
			if got := e.calls(); len(got) > 0 {
				t.Errorf("%v when nothing has changed", got)
			}
		})
	}
}
