package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	"isobar.dev/api/verdict"
	"isobar.dev/policy"
	"isobar.dev/policy/reach"
	"isobar.dev/source/kube"
	"isobar.dev/source/manifest"
)

// previewQuestion is what a preview is about.
type previewQuestion struct {
	Manifests string        `json:"manifests"` // YAML or JSON
	Delete    []previewGone `json:"delete"`    // after them
}

// previewGone names an object that is deleted: as a Plan names it, or, of a policy, by its ID.
type previewGone isobarv1alpha1.PlanObject

// UnmarshalJSON reads either form.
func (g *previewGone) UnmarshalJSON(text []byte) error {
	var id string
	if json.Unmarshal(text, &id) != nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		return d.Decode((*isobarv1alpha1.PlanObject)(g))
	}
	parts := strings.Split(id, "/")
	for d, o := range writtenAs {
		if parts[0] != d.String() || len(parts) < 2 || len(parts) > 3 {
			continue
		}
		*g = previewGone{APIVersion: o[0], Kind: o[1], Name: parts[len(parts)-1]}
		if len(parts) == 3 {
			g.Namespace = parts[1]
		}
		return nil
	}
	return fmt.Errorf("%q is no ID of a policy", clip(id))
}

// writtenAs names the objects that policies are written as.
var writtenAs = map[policy.Dialect][2]string{
	policy.KubernetesNetworkPolicy:    {"networking.k8s.io/v1", "NetworkPolicy"},
	policy.AntreaNetworkPolicy:        {"crd.antrea.io/v1beta1", "NetworkPolicy"},
	policy.AntreaClusterNetworkPolicy: {"crd.antrea.io/v1beta1", "ClusterNetworkPolicy"},
	policy.ClusterNetworkPolicy:       {"policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"},
	policy.AdminNetworkPolicy:         {"policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy"},
	policy.BaselineAdminNetworkPolicy: {"policy.networking.k8s.io/v1alpha1", "BaselineAdminNetworkPolicy"},
}

// laid are the kinds that can be laid over a world, by group and kind.
var laid = map[[2]string]resource{
	{"", "Pod"}: pods, {"", "Node"}: nodes, {"", "Namespace"}: namespaceObjects, {"", "Service"}: serviceObjects,
	{"networking.k8s.io", "NetworkPolicy"}: networkPolicies,
	{"crd.antrea.io", "NetworkPolicy"}:     antreaPolicies, {"crd.antrea.io", "ClusterNetworkPolicy"}: antreaClusterPolicies,
	{"crd.antrea.io", "Group"}: groupObjects, {"crd.antrea.io", "ClusterGroup"}: clusterGroupObjects, {"crd.antrea.io", "Tier"}: tierObjects,
	{"crd.antrea.io", "ExternalEntity"}:                        entities,
	{"policy.networking.k8s.io", "ClusterNetworkPolicy"}:       clusterPolicies,
	{"policy.networking.k8s.io", "AdminNetworkPolicy"}:         adminPolicies,
	{"policy.networking.k8s.io", "BaselineAdminNetworkPolicy"}: baselinePolicies,
}

type previewAnswer struct {
	Problems []previewProblem `json:"problems"`
	verdict.Diff
	Targets       []isobarv1alpha1.TargetPlan `json:"targets"`
	TargetsDenied string                      `json:"targetsDenied,omitempty"` // why there are none
}

type previewProblem struct {
	Object  string `json:"object"`
	Field   string `json:"field"`
	Message string `json:"message"`
	Warning bool   `json:"warning,omitempty"`
}

// written is one object of a preview.
type written struct {
	what, apiVersion, kind, namespace string
	write                             kube.Write
}

// preview says which access writes would give and take, of what the viewer sees, and what they would do at the
// Targets. Nothing is written.
//
// A write is taken only of an object that the viewer may list: what another one changes would tell of it.
func preview(ctx context.Context, r *request) (any, error) {
	out := previewAnswer{Problems: []previewProblem{}, Diff: verdict.Diff{Changes: []verdict.Change{}}, Targets: []isobarv1alpha1.TargetPlan{}}
	all, err := readPreview(r.body)
	if wrong := problemsOf(err); len(wrong) > 0 {
		out.Problems, out.TargetsDenied = wrong, errUntaken
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	if err := r.mayWrite(ctx, all); err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return out, nil
	}
	writes := make([]kube.Write, len(all))
	for i, o := range all {
		writes[i] = o.write
	}
	before, after, notices, err := r.source.Lay(writes)
	if err != nil {
		return nil, apierrors.NewServiceUnavailable(err.Error())
	}
	isWrong := false
	for i, n := range notices {
		if n == nil {
			continue
		}
		if n.Unread && len(n.Problems) == 0 {
			isWrong = true
			out.Problems = append(out.Problems, previewProblem{Object: all[i].what, Message: "it cannot be taken"})
		}
		for _, p := range n.Problems {
			isWrong = isWrong || !p.Warning
			out.Problems = append(out.Problems, previewProblem{all[i].what, p.Field, p.Message, p.Warning})
		}
	}
	if isWrong { // the rest would be about something else
		out.TargetsDenied = errUntaken
		return out, nil
	}
	if out.Diff, err = r.diff(ctx, before, after); err != nil {
		return nil, err
	}
	return out, r.previewTargets(ctx, all, &out)
}

// errUntaken is why nothing else is said where there are problems.
const errUntaken = "not all of the manifests can be taken"

// problemsOf returns what is wrong with manifests that cannot be read, and nothing for another error.
func problemsOf(err error) (out []previewProblem) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		var x *manifest.Error
		if !errors.As(err, &x) {
			return nil
		}
		out = append(out, previewProblem{Object: cmp.Or(x.Object, fmt.Sprintf("document %d", x.Document)), Field: x.Field, Message: x.Message})
	}
	return out
}

func readPreview(body []byte) (out []written, err error) {
	var ask previewQuestion
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&ask); err != nil {
		return nil, apierrors.NewBadRequest(clip("the body: want {manifests, delete}: " + err.Error()))
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, apierrors.NewBadRequest("the body: want one object")
	}
	if strings.TrimSpace(ask.Manifests) != "" {
		objects, _, err := manifest.Objects([]string{"-"}, manifest.Options{Stdin: strings.NewReader(ask.Manifests)})
		if len(problemsOf(err)) > 0 {
			return nil, err
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		for _, o := range objects {
			m, err := o.Manifest()
			if err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
			text, err := json.Marshal(m)
			if err != nil {
				return nil, apierrors.NewBadRequest(fmt.Sprintf("%s: %v", o.Where(), err))
			}
			out = append(out, written{o.Label, o.APIVersion, o.Kind, o.Namespace, kube.Write{Manifest: text}})
		}
	}
	for _, g := range ask.Delete {
		text, err := json.Marshal(map[string]any{"apiVersion": g.APIVersion, "kind": g.Kind, "metadata": map[string]any{"namespace": g.Namespace, "name": g.Name}})
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		what := g.Kind + " " + strings.TrimPrefix(g.Namespace+"/"+g.Name, "/")
		out = append(out, written{what, g.APIVersion, g.Kind, g.Namespace, kube.Write{Manifest: text, Delete: true}})
	}
	if len(out) > isobarv1alpha1.MaxPlanObjects {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%d objects: a preview has at most %d", len(out), isobarv1alpha1.MaxPlanObjects))
	}
	return out, nil
}

// mayWrite returns an error for an object that the viewer may not list.
func (r *request) mayWrite(ctx context.Context, all []written) error {
	at := func(o written) (place, bool) {
		group, _, _ := strings.Cut(o.apiVersion, "/")
		if !strings.Contains(o.apiVersion, "/") {
			group = ""
		}
		kind, ok := laid[[2]string{group, o.kind}]
		return place{kind, o.namespace}, ok
	}
	var places []place
	for _, o := range all {
		if p, ok := at(o); ok {
			places = append(places, p)
		}
	}
	if err := r.learn(ctx, places...); err != nil {
		return err
	}
	for _, o := range all {
		p, ok := at(o)
		if !ok && !r.seesAll() {
			return apierrors.NewBadRequest(clip(o.what) + ": its kind says nothing about policies, or is not known")
		}
		if ok && !r.may(p) {
			right := rights[p.resource]
			where := "the cluster"
			if o.namespace != "" {
				where = fmt.Sprintf("namespace %q", clip(o.namespace))
			}
			return apierrors.NewForbidden(rightsResource, "preview", fmt.Errorf("%s: what it would change is shown to those who may list %s in %s", clip(o.what), right.Resource, where))
		}
	}
	return nil
}

// diff returns which access differs between what the viewer sees. The addresses of workloads that are not seen
// are those of nobody.
func (r *request) diff(ctx context.Context, before, after policy.Snapshot) (verdict.Diff, error) {
	if err := ctx.Err(); err != nil {
		return verdict.Diff{}, context.Cause(ctx)
	}
	if !r.seesAll() {
		before, after = r.seenOf(before), r.seenOf(after)
	}
	changes, err := reach.DiffWith(before, after, stopping(ctx))
	switch {
	case ctx.Err() != nil:
		return verdict.Diff{}, context.Cause(ctx)
	case errors.Is(err, reach.ErrTooMany):
		return verdict.Diff{}, errTooMany(err, "ask isobar diff, which takes its time")
	case err != nil:
		if !r.seesAll() {
			return verdict.Diff{}, apierrors.NewBadRequest("which access differs cannot be said: it is not clear who has some address")
		}
		return verdict.Diff{}, apierrors.NewBadRequest(clip(err.Error()))
	}
	sees := func(id string) bool {
		w, ok := after.Workloads.Get(id)
		if !ok {
			w, ok = before.Workloads.Get(id)
		}
		return ok && r.sees(w)
	}
	var seen []reach.Change
	for _, c := range changes {
		for _, side := range []*reach.Side{&c.From, &c.To} {
			side.Workloads = slices.DeleteFunc(slices.Clone(side.Workloads), func(id string) bool { return !sees(id) })
		}
		if len(c.From.Workloads)+len(c.From.Prefixes) > 0 && len(c.To.Workloads)+len(c.To.Prefixes) > 0 {
			seen = append(seen, c)
		}
	}
	return verdict.DiffOf(seen), nil
}

// seenOf returns a world without the workloads that the viewer does not see, but for those by which policies
// tell those that are seen: who has one of their addresses.
func (r *request) seenOf(s policy.Snapshot) policy.Snapshot {
	addrs := map[netip.Addr]bool{}
	for _, w := range s.Workloads.All() {
		if r.sees(w) {
			for _, a := range w.Addrs {
				addrs[a] = true
			}
		}
	}
	all := s.Workloads
	for id, w := range all.All() {
		if !r.sees(w) && !slices.ContainsFunc(w.Addrs, func(a netip.Addr) bool { return addrs[a] }) {
			s.Workloads = s.Workloads.Delete(id)
		}
	}
	return s
}

// previewTargets adds what the writes would do at the Targets, for who may make Plans.
func (r *request) previewTargets(ctx context.Context, all []written, out *previewAnswer) error {
	if err := r.learn(ctx, place{resource: plans}); err != nil {
		return err
	}
	if !r.may(place{resource: plans}) {
		out.TargetsDenied = "you may not create plans.isobar.dev: they tell of all namespaces"
		return nil
	}
	var spec isobarv1alpha1.PlanSpec
	for _, o := range all {
		if !o.write.Delete {
			spec.Manifests = append(spec.Manifests, runtime.RawExtension{Raw: o.write.Manifest})
			continue
		}
		var m struct {
			APIVersion, Kind string
			Metadata         struct{ Namespace, Name string }
		}
		if err := json.Unmarshal(o.write.Manifest, &m); err != nil {
			return err
		}
		spec.Delete = append(spec.Delete, isobarv1alpha1.PlanObject{APIVersion: m.APIVersion, Kind: m.Kind, Namespace: m.Metadata.Namespace, Name: m.Metadata.Name})
	}
	status, err := r.source.Plan(ctx, spec)
	if err != nil {
		out.TargetsDenied = err.Error()
		return nil
	}
	out.Targets = some(status.Targets)
	return nil
}
