package main

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/tabwriter"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
)

// signs stand for what a change does.
var signs = map[string]string{"create": "+", "update": "~", "delete": "-"}

// planPrinter prints plans for people.
type planPrinter struct {
	out  io.Writer
	wide bool // all quotas, and the workloads that a refusal is about
}

func (p planPrinter) print(s isobarv1alpha1.PlanStatus) error {
	var text bytes.Buffer
	targets := 0 // where something is done
	for _, t := range s.Targets {
		if len(t.Changes) > 0 {
			targets++
		}
		if err := p.target(&text, t); err != nil {
			return err
		}
	}
	if targets+int(s.Totals.Refused+s.Totals.Unknown) == 0 {
		fmt.Fprintln(&text, "Nothing would change in any cloud.")
	} else {
		fmt.Fprintln(&text, summary(s.Totals, targets))
	}
	_, err := p.out.Write(text.Bytes())
	return err
}

func summary(t isobarv1alpha1.PlanTotals, targets int) string {
	text := fmt.Sprintf("Plan: %d to create, %d to change, %d to delete, at %s.", t.Create, t.Update, t.Delete, count(targets, "target"))
	if t.Refused > 0 {
		text += fmt.Sprintf(" %s would be refused that %s not now.", count(int(t.Refused), "rule or policy", "rules or policies"), is(t.Refused))
	}
	if t.Unknown > 0 {
		text += fmt.Sprintf(" What %s would do is not known.", count(int(t.Unknown), "target"))
	}
	return text
}

func is(n int32) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// count says how many things there are; many is their plural where it has more
// than an s.
func count(n int, one string, many ...string) string {
	switch {
	case n == 1:
		return "1 " + one
	case len(many) > 0:
		return fmt.Sprint(n, " ", many[0])
	}
	return fmt.Sprint(n, " ", one, "s")
}

func (p planPrinter) target(out *bytes.Buffer, t isobarv1alpha1.TargetPlan) error {
	if t.Error == "" && len(t.Changes)+len(t.Refusals) == 0 && !p.wide {
		return nil // it has something else to enforce, and nothing to do for it
	}
	fmt.Fprintln(out, t.Name)
	if t.Error != "" {
		fmt.Fprintf(out, "  ? not known: %s\n\n", t.Error)
		return nil
	}
	if t.Pending {
		fmt.Fprintln(out, "  (it is not yet as it should be now; what it lacks is below too)")
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range t.Changes {
		fmt.Fprintf(w, "  %s %s\t%s\n", signs[c.Op], keyText(c.Key), c.Text)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, r := range t.Refusals {
		p.refusal(out, r)
	}
	for _, u := range t.Usage {
		if p.wide || u.Used != u.Before || u.Used > u.Limit {
			fmt.Fprintf(out, "  # %s\n", usageText(u))
		}
	}
	fmt.Fprintln(out)
	return nil
}

// resourceIDRE has the IDs of Azure's resources in the keys of objects.
var resourceIDRE = regexp.MustCompile(`(?i)/subscriptions/[^/]+/resourcegroups/([^/]+)/providers/[^/]+/[^/]+/([^/]+)$`)

// keyText is an object's key as people know it: a resource of Azure is group:name, as in
// the target's name, which tells the subscription.
func keyText(key string) string { return resourceIDRE.ReplaceAllString(key, "$1:$2") }

func usageText(u isobarv1alpha1.PlanUsage) string {
	text := fmt.Sprintf("%s: %d of %d", u.Quota, u.Used, u.Limit)
	if u.Used != u.Before {
		text += fmt.Sprintf(", now %d", u.Before)
	}
	if u.Of != "" {
		text += " (" + u.Of + ")"
	}
	return text
}

func (p planPrinter) refusal(out *bytes.Buffer, r isobarv1alpha1.PlanRefusal) {
	what := r.Rule
	switch {
	case what == "" && r.Policy == "":
		what = "all policies"
	case what == "":
		what = r.Policy
	}
	already := ""
	if r.Already {
		already = " (as now)"
	}
	fmt.Fprintf(out, "  ! refused%s: %s: %s: %s", already, what, r.Reason, r.Message)
	if r.Limit > 0 {
		fmt.Fprintf(out, " (needs %d of %d)", r.Need, r.Limit)
	}
	fmt.Fprintln(out)
	for _, c := range r.Costs {
		fmt.Fprintf(out, "      %s needs %d\n", c.Rule, c.Need)
	}
	if p.wide && len(r.Workloads) > 0 {
		fmt.Fprintf(out, "      on %s\n", strings.Join(r.Workloads, ", "))
	}
}
