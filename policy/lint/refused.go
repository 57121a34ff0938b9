package lint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

// Refused returns refusals as findings: what targets cannot enforce exactly. Those that say
// the same of several Targets are one.
func Refused(refusals []policy.Refusal) []Finding {
	var out []Finding
	known := map[string]int{}
	for _, r := range refusals {
		id := "refused" + words(string(r.Reason))
		f := Finding{ID: id, Object: r.Policy, Severity: Warning, Field: "spec", Message: strings.TrimSuffix(r.Message, ".")}
		if i := slices.IndexFunc(Checks, func(c Check) bool { return c.ID == id }); i >= 0 {
			f.Severity = Checks[i].Severity
		}
		if r.Need > 0 && r.Limit > 0 && !strings.Contains(r.Message, strconv.Itoa(r.Need)) {
			f.Message += fmt.Sprintf(" (%d are needed of %d)", r.Need, r.Limit)
		}
		if at, ok := ruleAt(r); ok {
			f.Rule, f.Field = &at, ruleField(at, "")
		}
		if f.Object == "" && len(r.Costs) > 0 {
			f.Object = r.Costs[0].Policy
		}
		f.Fix = "What it would allow stays closed there. Write the rule so that the target can enforce it, or have an agent enforce it."
		switch r.Reason {
		case policy.RefusedReject:
			f.Fix = "Write Drop where the difference does not matter, or have an agent enforce it."
		case policy.RefusedQuota:
			f.Fix = "Merge rules, name fewer peers, or have the quota raised."
		}
		key := fmt.Sprint(f.ID, f.Object, f.place(), f.Message)
		i, ok := known[key]
		if !ok {
			i = len(out)
			known[key] = i
			out = append(out, f)
		}
		out[i].Targets = append(out[i].Targets, r.Target)
		out[i].Workloads = append(out[i].Workloads, r.Workloads...)
	}
	for i := range out {
		f := &out[i]
		slices.Sort(f.Targets)
		slices.Sort(f.Workloads)
		f.Targets, f.Workloads = slices.Compact(f.Targets), slices.Compact(f.Workloads)
		f.Message = "at " + few(f.Targets, itself) + ": " + f.Message
	}
	Sort(out)
	return out
}

// ruleAt returns the rule that a refusal is about.
func ruleAt(r policy.Refusal) (reach.Rule, bool) {
	rest, ok := strings.CutPrefix(r.Rule, r.Policy+"/")
	if !ok || r.Policy == "" {
		return reach.Rule{}, false
	}
	rest, _, _ = strings.Cut(rest, "#")
	name, index, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(index)
	for _, d := range directions {
		if err == nil && d.String() == name {
			return reach.Rule{Policy: r.Policy, Direction: d, Index: n}, true
		}
	}
	return reach.Rule{}, false
}

// words returns "RejectIsDrop" as "-reject-is-drop", and "NamesNeedDNS" as "-names-need-dns".
func words(s string) string {
	var b strings.Builder
	was := false // a capital
	for _, r := range s {
		upper := unicode.IsUpper(r)
		if upper && !was {
			b.WriteByte('-')
		}
		was = upper
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
