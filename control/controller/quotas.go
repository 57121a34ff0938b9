package controller

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/plan"
)

// conditionWithinQuotas says of an account whether all that is written leaves room
// under the cloud's quotas.
const conditionWithinQuotas = "WithinQuotas"

// nearPercent is from how much of a quota on it is told.
const nearPercent = 80

// quotasCondition tells which quotas of an account's networks are nearly used up.
func (c *Controller) quotasCondition(a *account) metav1.Condition {
	var near []string
	known := false
	for _, t := range c.targetsOf(a.key) {
		usage, ok := t.usage()
		known = known || ok
		for _, u := range usage {
			if text := nearText(t.region+"/"+t.network, u); text != "" {
				near = append(near, text)
			}
		}
	}
	out := metav1.Condition{Type: conditionWithinQuotas, Status: metav1.ConditionTrue, Reason: "Ample", Message: "there is room under all quotas"}
	switch {
	case len(near) > 0:
		slices.Sort(near)
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, "NearLimit", list(near)
	case !known:
		out.Status, out.Reason, out.Message = metav1.ConditionUnknown, reasonPending, "no network is known yet"
	}
	return out
}

// nearText says that more than nearPercent of a quota is used, or is "".
func nearText(where string, u plan.Usage) string {
	if u.Limit <= 0 || u.Used*100 <= u.Limit*nearPercent {
		return ""
	}
	text := fmt.Sprintf("%s: %s: %d of %d", where, u.Quota, u.Used, u.Limit)
	if u.Of != "" {
		text += " (" + u.Of + ")"
	}
	return text
}

// usage returns what a target uses of its quotas, and whether that is known.
func (t *target) usage() ([]plan.Usage, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.report.Usage, t.have > 0
}
