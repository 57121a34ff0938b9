package controller

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// The account says that there is room only when nothing is refused for a quota, by us or
// by the cloud, and that is known of all networks.
func TestQuotasCondition(t *testing.T) {
	usage := func(used int) []plan.Usage {
		return []plan.Usage{{Quota: "rules", Of: "group/e", Used: used, Limit: 60}}
	}
	fits, nearly := plan.Report{Usage: usage(20)}, plan.Report{Usage: usage(60)}
	refused := func(policies ...string) plan.Report {
		out := plan.Report{Usage: usage(60)}
		for _, p := range policies {
			out.Refusals = append(out.Refusals, policy.Refusal{Policy: p, Reason: policy.RefusedQuota, Message: "too many rules", Need: 75, Limit: 60})
		}
		return out
	}
	change := []plan.ChangeText{{Key: "group/e"}}
	other := plan.Report{Usage: usage(20), Refusals: []policy.Refusal{{Policy: "p", Reason: policy.RefusedReject}}}
	unplaced := plan.Report{Usage: usage(20), Refusals: []policy.Refusal{{Workloads: []string{"a"}, Reason: policy.RefusedQuota, Message: "no group is left", Need: 4, Limit: 3}}}
	full := func(code cloud.Cause) plan.Report {
		return plan.Report{Usage: usage(20), Changes: change, Failed: []plan.Failure{{Key: "group/e", Err: fmt.Errorf("write: %w", coded(code)), Workloads: plan.Workloads{IDs: []string{"b"}}}}}
	}
	type try struct {
		report plan.Report
		err    error
	}
	const a = "r/n1: "
	for _, tt := range []struct {
		why  string
		n1   []try
		n2   []try
		want string
	}{
		{"nothing is known", nil, nil, "Unknown Pending not all networks are known yet"},
		{"one is not known", []try{{fits, nil}}, nil, "Unknown Pending not all networks are known yet"},
		{"all fits", []try{{fits, nil}}, []try{{fits, nil}}, "True Ample there is room under all quotas"},
		{"another refusal is none of a quota's", []try{{other, nil}}, []try{{fits, nil}}, "True Ample there is room under all quotas"},
		{"nearly", []try{{nearly, nil}}, []try{{fits, nil}}, "False NearLimit " + a + "rules: 60 of 60 (group/e)"},
		{"a policy", []try{{refused("p"), nil}}, []try{{fits, nil}}, "False Exceeded " + a + "QuotaExceeded: too many rules (needs 75 of 60), for p"},
		{"many policies", []try{{refused("s", "r", "q", "p", "p"), nil}}, []try{{fits, nil}}, "False Exceeded " + a + "QuotaExceeded: too many rules (needs 75 of 60), for p, q, r and 1 more policies"},
		{"although the other is not known", []try{{refused("p"), nil}}, nil, "False Exceeded " + a + "QuotaExceeded: too many rules (needs 75 of 60), for p"},
		{"those of the workloads", []try{{unplaced, nil}}, []try{{fits, nil}}, "False Exceeded " + a + "QuotaExceeded: no group is left (needs 4 of 3), for p, q"},
		{"it is no more", []try{{refused("p"), nil}, {fits, nil}}, []try{{fits, nil}}, "True Ample there is room under all quotas"},
		{"what cannot be written is too much all the same", []try{{fits, nil}, {plan.Report{Changes: change, Refusals: refused("p").Refusals}, errBroken}}, []try{{fits, nil}},
			"False Exceeded " + a + "QuotaExceeded: too many rules (needs 75 of 60), for p"},
		{"the cloud says so", []try{{full(cloud.NoQuota), errBroken}}, []try{{fits, nil}}, "False Exceeded " + a + "group/e: write: code quota, for p"},
		{"asked too often is no quota of these", []try{{full(cloud.Throttled), errBroken}}, []try{{fits, nil}}, "True Ample there is room under all quotas"},
		{"it cannot be read once", []try{{fits, nil}, {plan.Report{}, errBroken}}, []try{{fits, nil}}, "True Ample there is room under all quotas"},
		{"nor twice", []try{{fits, nil}, {plan.Report{}, errBroken}, {plan.Report{}, errBroken}}, []try{{fits, nil}}, "Unknown ReadFailed " + a + "500"},
		{"which says nothing of the other", []try{{plan.Report{}, errBroken}, {plan.Report{}, errBroken}}, []try{{refused("p"), nil}}, "False Exceeded r/n2: QuotaExceeded: too many rules (needs 75 of 60), for p"},
	} {
		c := &Controller{targets: map[string]*target{}}
		for network, tries := range map[string][]try{"n1": tt.n1, "n2": tt.n2} {
			s := newStory(t)
			s.account, s.region, s.network, s.name = acct, "r", network, network
			s.put(on("a: p q", "b: p"))
			for _, x := range tries {
				s.try(x.report, x.err)
			}
			c.targets[network] = &s.target
		}
		got := c.quotasCondition(&account{key: acct, scrub: func(s string) string { return s }})
		if text := fmt.Sprint(got.Status, " ", got.Reason, " ", got.Message); text != tt.want {
			t.Errorf("%s: %q; want %q", tt.why, text, tt.want)
		}
	}
}

// However many there are, what is told of them is bounded.
func TestQuotasConditionIsBounded(t *testing.T) {
	c := &Controller{targets: map[string]*target{}}
	for i := range 50 {
		s := newStory(t)
		s.account, s.region, s.network, s.name = acct, "r", fmt.Sprint("n", i), fmt.Sprint("n", i)
		s.put(on("a: p"))
		s.try(plan.Report{Refusals: []policy.Refusal{{Policy: "p", Reason: policy.RefusedQuota, Message: strings.Repeat("x", 400), Need: 2, Limit: 1}}}, nil)
		c.targets[s.name] = &s.target
	}
	got := c.quotasCondition(&account{key: acct, scrub: func(s string) string { return s }})
	if len(bounded(got.Message)) > maxText+3 || !strings.HasSuffix(got.Message, "and 47 more") {
		t.Errorf("%d bytes: %s", len(got.Message), got.Message)
	}
	var none types.NamespacedName
	if got := c.quotasCondition(&account{key: none}); got.Status != "Unknown" {
		t.Errorf("an account without networks: %+v", got)
	}
}
