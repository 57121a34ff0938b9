package controller

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/cloud"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// conditionWithinQuotas says of an account whether all that its policies ask for has
// a place under the cloud's quotas, with room to spare.
const conditionWithinQuotas = "WithinQuotas"

// Reasons of conditionWithinQuotas.
const (
	reasonAmple     = "Ample"
	reasonNearLimit = "NearLimit"
	reasonExceeded  = "Exceeded"
)

// nearPercent is from how much of a quota on it is told.
const nearPercent = 80

// quotasCondition tells which quotas of an account's networks are too small for what
// policies ask for or, where all has a place, are nearly used up. What one network
// lacks is told although nothing is known of another; that there is room is not.
func (c *Controller) quotasCondition(a *account) metav1.Condition {
	var exceeded, near, unread []string
	isKnown := true
	n := 0
	for _, t := range c.targetsOf(a.key) {
		fit, why, counts := t.quotas()
		if !counts {
			continue
		}
		n++
		where := t.region + "/" + t.network
		isKnown = isKnown && fit.given != nil
		if why != nil {
			unread = append(unread, where+": "+a.text(why))
		}
		for _, text := range append(fit.exceeded(), fit.refusedByCloud()...) {
			exceeded = append(exceeded, where+": "+text)
		}
		for _, u := range fit.report.Usage {
			if text := nearText(u); text != "" {
				near = append(near, where+": "+text)
			}
		}
	}
	slices.Sort(near)
	out := metav1.Condition{Type: conditionWithinQuotas, Status: metav1.ConditionTrue, Reason: reasonAmple, Message: "there is room under all quotas"}
	switch {
	case len(exceeded) > 0:
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, reasonExceeded, list(exceeded)
	case len(near) > 0:
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, reasonNearLimit, list(near)
	case len(unread) > 0:
		out.Status, out.Reason, out.Message = metav1.ConditionUnknown, "ReadFailed", list(unread)
	case n == 0 || !isKnown:
		out.Status, out.Reason, out.Message = metav1.ConditionUnknown, reasonPending, "not all networks are known yet"
	}
	return out
}

// quotas returns the last try that found what the target needs of its quotas, and why
// the last two of all did not, if they did not: most errors go away by themselves. One
// that is to be emptied does not count.
func (t *target) quotas() (fit outcome, why error, counts bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failures > 1 {
		why = t.unfit
	}
	return t.fit, why, !t.retired
}

// exceeded says of each quota that is too small what is needed of it, and for which
// policies.
func (o outcome) exceeded() []string {
	type quota struct {
		message     string
		need, limit int
	}
	policies := map[quota]map[string]bool{}
	var quotas []quota // in the order of the refusals, which is one
	for _, r := range o.report.Refusals {
		if r.Reason != policy.RefusedQuota {
			continue
		}
		q := quota{r.Message, r.Need, r.Limit}
		if policies[q] == nil {
			policies[q] = map[string]bool{}
			quotas = append(quotas, q)
		}
		for _, p := range o.policiesOf(r) {
			policies[q][p] = true
		}
	}
	slices.SortStableFunc(quotas, func(a, b quota) int { return (b.need - b.limit) - (a.need - a.limit) })
	var out []string
	for _, q := range quotas {
		text := string(policy.RefusedQuota) + ": " + q.message
		if q.limit > 0 {
			text += fmt.Sprintf(" (needs %d of %d)", q.need, q.limit)
		}
		out = append(out, text+names(policies[q]))
	}
	return out
}

// policiesOf returns the policies that a Refusal keeps from being enforced: those of
// its workloads where it names none.
func (o outcome) policiesOf(r policy.Refusal) []string {
	if r.Policy != "" || o.given == nil {
		return []string{r.Policy}
	}
	var out []string
	for _, id := range r.Workloads {
		for p := range o.rulesOf(o.workload(id)) {
			out = append(out, p)
		}
	}
	return out
}

// refusedByCloud says which of what was written the cloud has no place for: its
// quotas are smaller than the account says.
func (o outcome) refusedByCloud() []string {
	var out []string
	for _, f := range o.report.Failed {
		if cloud.CauseOf(f.Err) != cloud.NoQuota {
			continue
		}
		policies := map[string]bool{}
		if o.given != nil {
			for _, e := range o.rs.Workloads {
				if !f.Workloads.Has(e.Workload.ID) {
					continue
				}
				for p := range o.rulesOf(e) {
					policies[p] = true
				}
			}
		}
		out = append(out, f.Key+": "+errText(f.Err)+names(policies))
	}
	return out
}

// names says, in the order of their IDs, for which policies something is.
func names(policies map[string]bool) string {
	const most = 3
	var ids []string
	for p := range policies {
		if p != "" {
			ids = append(ids, p)
		}
	}
	slices.Sort(ids)
	switch {
	case len(ids) == 0:
		return ""
	case len(ids) > most:
		return fmt.Sprintf(", for %s and %d more policies", strings.Join(ids[:most], ", "), len(ids)-most)
	}
	return ", for " + strings.Join(ids, ", ")
}

// nearText says that more than nearPercent of a quota is used, or is "".
func nearText(u plan.Usage) string {
	if u.Limit <= 0 || u.Used*100 <= u.Limit*nearPercent {
		return ""
	}
	text := fmt.Sprintf("%s: %d of %d", u.Quota, u.Used, u.Limit)
	if u.Of != "" {
		text += " (" + u.Of + ")"
	}
	return text
}
