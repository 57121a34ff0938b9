package console

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"isobar.dev/api/verdict"
	"isobar.dev/policy"
)

// unseen is in place of a reason that is not told.
const unseen = "not visible to you"

// explain says why a flow passes or not.
func explain(_ context.Context, r *request) (any, error) {
	all, err := r.flag("all")
	if err != nil {
		return nil, err
	}
	ask := verdict.Ask{From: r.text("from"), To: r.text("to"), ToName: r.text("toName")}
	if err := ask.ParseTraffic(r.text("port")); err != nil {
		return nil, apierrors.NewBadRequest("port: " + clip(err.Error()))
	}
	flow, err := ask.Flow()
	if err != nil {
		return nil, apierrors.NewBadRequest(clip(err.Error()))
	}
	for _, e := range []policy.Endpoint{flow.From, flow.To} {
		if w, ok := r.Workloads.Get(e.Workload); e.Workload != "" && (!ok || !r.sees(w)) {
			return nil, errNotThere(e.Workload)
		}
	}
	x, err := verdict.Explain(r.Snapshot, ask, all || !r.seesAllPolicies())
	if err != nil {
		if !r.seesAllAt(flow.From.Addr) || !r.seesAllAt(flow.To.Addr) {
			return nil, apierrors.NewBadRequest("it is not clear who has these addresses: name workloads")
		}
		return nil, apierrors.NewBadRequest(clip(err.Error()))
	}
	r.hide(&x, all)
	return x, nil
}

// errNotThere is the answer about what is not there and about what is not seen alike.
func errNotThere(id string) error {
	err := apierrors.NewNotFound(rightsResource, clip(id))
	err.ErrStatus.Message = fmt.Sprintf("%q is not there, or you may not see it", clip(id))
	return err
}

// seesAllAt says whether the viewer sees whoever has an address.
func (r *request) seesAllAt(a netip.Addr) bool {
	if !a.IsValid() {
		return true
	}
	for _, w := range r.Workloads.All() {
		if slices.Contains(w.Addrs, a.Unmap()) && !r.sees(w) {
			return false
		}
	}
	return true
}

// hide leaves out of an explanation what the viewer may not see.
func (r *request) hide(x *verdict.Explained, all bool) {
	for _, e := range []*verdict.End{&x.From, &x.To} {
		if !r.seesID(e.Workload) {
			e.Workload = ""
		}
		e.Peers = slices.DeleteFunc(e.Peers, func(id string) bool { return !r.seesID(id) })
	}
	for _, w := range []*verdict.Walk{&x.Egress, &x.Ingress} {
		if w.Subject != "" && !r.seesID(w.Subject) {
			*w = verdict.Walk{Decision: verdict.Decision{Verdict: w.Verdict, Reason: unseen, Hidden: true}, Needs: w.Needs, Steps: []verdict.Step{}}
			continue
		}
		r.hideDecision(&w.Decision)
		w.Steps, w.Listed = r.seenSteps(w.Steps), r.seenSteps(w.Listed)
		if w.Without != nil {
			r.hideDecision(w.Without)
		}
		if !r.seesAllPolicies() {
			w.Others = len(w.Listed)
		}
		if !all {
			w.Listed = nil
		}
	}
	if x.Staged == nil {
		return
	}
	for _, at := range []struct {
		walk *verdict.Walk
		says *verdict.Decision
	}{{&x.Egress, &x.Staged.Egress}, {&x.Ingress, &x.Staged.Ingress}} {
		if at.walk.Hidden && at.walk.Reason == unseen {
			*at.says = verdict.Decision{Verdict: at.says.Verdict, Reason: unseen, Hidden: true}
		}
		r.hideDecision(at.says)
	}
	x.Staged.By = slices.DeleteFunc(x.Staged.By, func(id string) bool { return !r.seesPolicyID(id) })
}

// seesID says whether the viewer sees the workload of an ID; nobody is seen by everybody.
func (r *request) seesID(id string) bool {
	w, ok := r.Workloads.Get(id)
	return id == "" || ok && r.sees(w)
}

func (r *request) seesPolicyID(id string) bool {
	p, ok := r.policy(id)
	return ok && r.seesPolicy(p)
}

// hideDecision leaves out a policy that the viewer may not see.
func (r *request) hideDecision(d *verdict.Decision) {
	if id := d.PolicyID(); id != "" && !r.seesPolicyID(id) {
		*d = verdict.Decision{Verdict: d.Verdict, Reason: d.Reason, Ties: d.Ties, Hidden: true}
	}
	d.Ties = slices.DeleteFunc(slices.Clone(d.Ties), func(id string) bool { return !r.seesPolicyID(id) })
}

// seenSteps returns the steps without those of policies that the viewer may not see: of one that has
// a say, that there is one.
func (r *request) seenSteps(steps []verdict.Step) []verdict.Step {
	out := []verdict.Step{}
	for _, st := range steps {
		switch {
		case r.seesPolicyID(st.Policy):
			out = append(out, st)
		case st.Outcome == policy.Decided.String(), st.Outcome == policy.Passed.String():
			out = append(out, verdict.Step{Direction: st.Direction, Action: st.Action, Outcome: st.Outcome, Hidden: true})
		}
	}
	return out
}
