package controller_test

import (
	"fmt"
	"strings"
	"testing"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/policy"
)

// setMode sets the mode of a policy; "" takes the annotation away.
func (e *env) setMode(name, mode string) {
	e.t.Helper()
	update[antreav1beta1.NetworkPolicy](e, name, func(p *antreav1beta1.NetworkPolicy) {
		p.Annotations = map[string]string{"isobar.dev/mode": mode}
		if mode == "" {
			p.Annotations = nil
		}
	})
}

// stagedIs is a check of the condition Staged of a policy, and of how it is counted. It has none
// where want is "".
func (e *env) stagedIs(name, want string) func() string {
	return func() string {
		p, err := get[antreav1beta1.NetworkPolicy](e, name)
		if err != nil {
			return err.Error()
		}
		got := ""
		for _, c := range p.Status.Conditions {
			if c.Type == antreav1beta1.ConditionStaged {
				got = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
			}
		}
		if want == "" && got != "" || !strings.HasPrefix(got, want) || want != "" && p.Status.DesiredNodesRealized != 0 {
			return fmt.Sprintf("%+v; want the condition Staged to be %q", p.Status, want)
		}
		return ""
	}
}

// A policy that is staged writes nothing to any cloud and is told of nowhere as enforced;
// it is withdrawn when it becomes so, and comes back.
func TestStaged(t *testing.T) {
	e := newEnv(t)
	e.estate()
	e.start()
	staged := e.allow("db", "db", 5432)
	staged.Annotations = map[string]string{"isobar.dev/mode": "Stage"}
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything), e.allow("web", "web", 80))
	e.eventually("enforced", all(e.has("vpca", 1, "80"), e.phaseIs("web", antreav1beta1.PolicyRealized), e.accountIs("", "Enforced", "True Enforced")))

	const would = "True NotEnforced nothing enforces it; it would apply to 1 workload"
	before := e.cloudWrites()
	e.create(staged)
	e.eventually("staged", all(e.phaseIs("db", antreav1beta1.PolicyPending), e.stagedIs("db", would), e.hasEvent("db", "it is not enforced, and what it would do is shown")))
	e.setPort("db", 5433)
	e.eventually("another generation", all(e.phaseIs("db", antreav1beta1.PolicyPending), e.stagedIs("db", would)))
	if n := e.running.Staged(); len(n) != 1 || n[policy.AntreaNetworkPolicy] != 1 {
		t.Errorf("%v are staged", n)
	}
	e.quietly("nothing is written", func() string {
		return all(e.has("vpca", 2, ""), e.tells("vpca", 2), func() string {
			if n := e.cloudWrites() - before; n > 0 {
				return fmt.Sprintf("%d writes in the cloud for what is staged", n)
			}
			return ""
		})()
	})
	p, err := get[antreav1beta1.NetworkPolicy](e, "db")
	if err != nil || !strings.Contains(p.Status.Conditions[0].Message, "and give access to 0 pairs of them and take it from ") {
		t.Errorf("%+v, %v; want how many pairs", p.Status, err)
	}

	e.setMode("db", "")
	e.eventually("enforced", all(e.has("vpca", 2, "5433"), e.phaseIs("db", antreav1beta1.PolicyRealized), e.stagedIs("db", ""),
		e.tells("vpca", 2, "SUCCESS", "db SUCCESS"), e.hasEvent("db", "it was staged, and is enforced now")))

	e.cloud.with(func(f *fakeCloud) { f.refuse["vpca"] = fmt.Errorf("Denied") })
	e.setMode("db", "Stage")
	e.eventually("it cannot be withdrawn", all(e.phaseIs("db", antreav1beta1.PolicyPending), e.stagedIs("db", "False Withdrawing it is being withdrawn from aws/"+e.ns+"/acct/us-east-1/vpca"), e.has("vpca", 2, "5433")))
	e.cloud.with(func(f *fakeCloud) { f.refuse = map[string]error{} })
	e.eventually("withdrawn", all(e.has("vpca", 2, ""), e.has("vpca", 1, "80"), e.phaseIs("db", antreav1beta1.PolicyPending), e.stagedIs("db", would),
		e.tells("vpca", 2), e.hasEvent("db", "it is withdrawn wherever it was enforced")))

	// What is said of it goes with a restart between, too.
	e.stop()
	e.setMode("db", "Enforce")
	e.start()
	e.eventually("enforced after a restart", all(e.has("vpca", 2, "5433"), e.phaseIs("db", antreav1beta1.PolicyRealized), e.stagedIs("db", "")))
	e.stop()
	e.setMode("db", "Stage")
	e.start()
	e.eventually("staged after a restart", all(e.has("vpca", 2, ""), e.phaseIs("db", antreav1beta1.PolicyPending), e.stagedIs("db", would)))

	// What it would be is known before: a part that cannot be read, and no mode at all.
	update[antreav1beta1.NetworkPolicy](e, "db", func(p *antreav1beta1.NetworkPolicy) {
		p.Spec.Ingress[0].From[0] = antreav1beta1.NetworkPolicyPeer{IPBlock: &antreav1beta1.IPBlock{CIDR: "10.0.0.0/99"}}
	})
	e.eventually("unreadable and staged", all(e.phaseIs("db", antreav1beta1.PolicyPending), e.stagedIs("db", would), e.hasEvent("db", "spec.ingress[0].from[0].ipBlock.cidr")))
	e.setPortAndMode("db", "web", 81, "staged")
	e.eventually("a mode that is none enforces, and is told", all(e.has("vpca", 2, "81"), e.phaseIs("db", antreav1beta1.PolicyFailed), e.stagedIs("db", ""),
		e.hasEvent("db", `metadata.annotations[isobar.dev/mode]: "staged": want Enforce or Stage; it is enforced`)))
}

// setPortAndMode sets whom a policy's only rule lets in, on which port, and its mode.
func (e *env) setPortAndMode(name, role string, port int, mode string) {
	e.t.Helper()
	spec := e.allow(name, "db", port).Spec
	spec.Ingress[0].From[0].ExternalEntitySelector.MatchLabels["nephe.antrea.io/tag-Role"] = role
	update[antreav1beta1.NetworkPolicy](e, name, func(p *antreav1beta1.NetworkPolicy) {
		p.Spec, p.Annotations = spec, map[string]string{"isobar.dev/mode": mode}
	})
}
