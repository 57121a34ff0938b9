package acceptance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
)

// plan asks what the objects of a YAML text would do, or their deletion.
func (w *world) plan(text string, isDelete bool) isobarv1alpha1.PlanStatus {
	w.t.Helper()
	var manifests, deletes []any
	for _, o := range w.objects(text) {
		w.resource(o) // gives it a namespace
		if isDelete {
			deletes = append(deletes, map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "namespace": o.GetNamespace(), "name": o.GetName()})
		} else {
			manifests = append(manifests, o.Object)
		}
	}
	q := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "isobar.dev/v1alpha1", "kind": "Plan", "spec": map[string]any{"manifests": manifests, "delete": deletes}}}
	var answer *unstructured.Unstructured
	w.eventually("a plan", func() (err error) {
		answer, err = w.runtimeAPI().Resource(isobarv1alpha1.GroupVersion.WithResource("plans")).Create(w.t.Context(), q, metav1.CreateOptions{})
		if err != nil && !apierrors.IsUnauthorized(err) { // as everybody is to a server that has just begun
			w.t.Fatal(err)
		}
		return err
	})
	body, err := json.Marshal(answer)
	if err != nil {
		w.t.Fatal(err)
	}
	var out isobarv1alpha1.Plan
	if err := json.Unmarshal(body, &out); err != nil {
		w.t.Fatal(err)
	}
	if len(out.Status.Problems) > 0 || out.Status.Totals.Unknown > 0 {
		w.t.Fatalf("plan of %s: %+v", text, out.Status)
	}
	return out.Status
}

// deeds are what was done in a cloud, or would be: how many security groups are made,
// changed and deleted, and which interfaces get other ones.
type deeds struct {
	Made, Changed, Deleted int
	Interfaces             []string
}

// planned returns the deeds that a plan tells of.
func planned(s isobarv1alpha1.PlanStatus) deeds {
	var out deeds
	for _, t := range s.Targets {
		for _, c := range t.Changes {
			nic, isNIC := strings.CutPrefix(c.Key, "nic/")
			switch {
			case isNIC:
				out.Interfaces = append(out.Interfaces, nic)
			case c.Op == "create":
				out.Made++
			case c.Op == "update":
				out.Changed++
			case c.Op == "delete":
				out.Deleted++
			}
		}
	}
	slices.Sort(out.Interfaces)
	return out
}

// done returns the deeds that the simulator has logged since the last ResetCalls, before
// which there were those security groups.
func (w *world) done(before map[string]bool) deeds {
	var out deeds
	now := map[string]bool{}
	for _, g := range w.securityGroups() {
		now[g.ID] = true
	}
	changed, nics := map[string]bool{}, map[string]bool{}
	for _, c := range w.sim.Calls().Writes {
		switch {
		case c.Error != "":
		case c.Action == "CreateSecurityGroup":
			out.Made++
		case c.Action == "DeleteSecurityGroup":
			out.Deleted++
		case c.Action == "ModifyNetworkInterfaceAttribute":
			nics[c.Params["NetworkInterfaceId"]] = true
		case strings.HasPrefix(c.Action, "AuthorizeSecurityGroup"), strings.HasPrefix(c.Action, "RevokeSecurityGroup"):
			if id := c.Params["GroupId"]; before[id] && now[id] {
				changed[id] = true
			}
		}
	}
	out.Changed, out.Interfaces = len(changed), slices.Sorted(maps.Keys(nics))
	return out
}

// What a plan tells is what is done when the change is then made, by the cloud's own log:
// security groups made, changed and deleted, and interfaces attached. To plan writes
// nothing, and asks nothing of a cloud that is known.
func TestPlanEqualsWhatIsDone(t *testing.T) {
	shop := network{id: "vpc-shop", vms: []vm{{name: "web1", role: "web"}, {name: "web2", role: "web"}, {name: "db", role: "db"}, {name: "cache", role: "cache"}}}
	far := network{id: "vpc-far", region: region2, vms: []vm{{name: "backup", role: "db"}}}
	w := newWorld(t, estate(shop, far))
	w.start()
	w.account()
	w.importAll()
	w.pod(w.ns, "job", "10.200.0.7", map[string]string{"app": "job"})
	w.settle()
	ports := make([]int, 0, 70)
	for i := range 70 {
		ports = append(ports, 1000+2*i)
	}
	db := policyText("db", onRole("db", "ingress", allow("ingress", byRole("web")+", {podSelector: {matchLabels: {access: db}}}", 5432)))
	group := "apiVersion: crd.antrea.io/v1beta1\nkind: Group\nmetadata: {name: callers}\nspec: {externalEntitySelector: {matchLabels: {nephe.antrea.io/tag-Role: %s}}}\n"
	grouped := policyText("cache", onRole("cache", "ingress", allow("ingress", "{group: callers}", 6379)))
	for _, step := range []struct {
		name, text string
		isDelete   bool
		refused    int32
		wants      bool // that something is done
	}{
		{"a first policy", db, false, 0, true},
		{"the same again", db, false, 0, false},
		{"another port", strings.ReplaceAll(db, "5432", "5433"), false, 0, true},
		{"a policy and its group", fmt.Sprintf(group, "web") + "---\n" + grouped, false, 0, true},
		{"other members", fmt.Sprintf(group, "db"), false, 0, true},
		{"more rules than fit", policyText("cache", onRole("cache", "ingress", allow("ingress", "{group: callers}", ports...), allow("ingress", "{ipBlock: {cidr: 192.0.2.0/24}}", ports...),
			allow("ingress", "{ipBlock: {cidr: 198.18.0.0/24}}", ports...), allow("ingress", "{ipBlock: {cidr: 198.18.7.0/24}}", ports...), allow("ingress", "{ipBlock: {cidr: 198.18.9.0/24}}", ports...))), false, 1, true},
		{"of no VM", policyText("none", onRole("none", "ingress", allow("ingress", "", 1))), false, 0, false},
		{"one is deleted", db, true, 0, true},
		{"a group is, so that the others fit", fmt.Sprintf(group, "db"), true, 0, true},
		{"it comes back", fmt.Sprintf(group, "db"), false, 1, true},
		{"the others are", grouped + "---\n" + fmt.Sprintf(group, "db"), true, 0, true},
	} {
		before := map[string]bool{}
		for _, g := range w.securityGroups() {
			before[g.ID] = true
		}
		w.sim.ResetCalls()
		p := w.plan(step.text, step.isDelete)
		w.mustNotWrite()
		if refused := p.Totals.Refused; (refused > 0) != (step.refused > 0) {
			t.Fatalf("%s: %d refusals; want %d or more: %+v", step.name, refused, step.refused, p)
		}
		if step.isDelete {
			// One after the other: a group that is seen to go before its policy lets others
			// into its place, for a moment, which no plan of both tells.
			for text := range strings.SplitSeq(step.text, "---\n") {
				w.remove(text)
				w.settle()
			}
		} else {
			w.apply(step.text)
		}
		w.settle()
		want, got := planned(p), w.done(before)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: -planned +done:\n%s\nthe plan: %+v", step.name, d, p)
		}
		if isNothing := cmp.Equal(want, deeds{}); isNothing == step.wants {
			t.Errorf("%s: the plan is %+v", step.name, want)
		}
	}
}
