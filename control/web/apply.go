package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/policy"
	"isobar.dev/source/manifest"
)

const (
	// fieldManager is whose the fields are that the console writes.
	fieldManager = "isobar-console"
	// maxApplied bounds the objects that are applied at once, each of which is asked about twice.
	maxApplied = 100
	// maxManifests bounds their text, in bytes, and appliedAtOnce how many are parsed at a time: YAML takes some forty times its size.
	maxManifests  = 1 << 20
	appliedAtOnce = 4
)

// applicable is a kind of objects that may be applied, and what its IDs begin with.
type applicable struct{ resource, id string }

// applicables are the policies of all dialects, and what they refer to; by apiVersion and kind.
var applicables = map[string]applicable{
	"networking.k8s.io/v1 NetworkPolicy":                           {"networkpolicies", policy.KubernetesNetworkPolicy.String()},
	"crd.antrea.io/v1beta1 NetworkPolicy":                          {"networkpolicies", policy.AntreaNetworkPolicy.String()},
	"crd.antrea.io/v1beta1 ClusterNetworkPolicy":                   {"clusternetworkpolicies", policy.AntreaClusterNetworkPolicy.String()},
	"crd.antrea.io/v1beta1 Tier":                                   {"tiers", "tier"},
	"crd.antrea.io/v1beta1 Group":                                  {"groups", "group"},
	"crd.antrea.io/v1beta1 ClusterGroup":                           {"clustergroups", "clustergroup"},
	"policy.networking.k8s.io/v1alpha2 ClusterNetworkPolicy":       {"clusternetworkpolicies", policy.ClusterNetworkPolicy.String()},
	"policy.networking.k8s.io/v1alpha1 AdminNetworkPolicy":         {"adminnetworkpolicies", policy.AdminNetworkPolicy.String()},
	"policy.networking.k8s.io/v1alpha1 BaselineAdminNetworkPolicy": {"baselineadminnetworkpolicies", policy.BaselineAdminNetworkPolicy.String()},
}

// applyForm is what is asked for.
type applyForm struct {
	Manifests string `json:"manifests"`
	DryRun    bool   `json:"dryRun"`
	// Force takes fields that others have written.
	Force bool `json:"force"`
}

// Outcomes of an object. Of a dry run they are what would become of it.
const (
	outcomeCreated   = "created"
	outcomeUpdated   = "updated"
	outcomeUnchanged = "unchanged"
	outcomeConflict  = "conflict"  // others have written these fields: only Force takes them
	outcomeRefused   = "refused"   // by the API server, as something that the user may not or that is wrong
	outcomeFailed    = "failed"    // what has become of it is not known
	outcomeUntouched = "untouched" // another of the objects was refused, so that nothing was written
)

// applied is what became of one object.
type applied struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
	Message string `json:"message,omitempty"`
}

// apply writes policies as the user. All are asked about first, by a dry run: unless the API server takes each of them, none is
// written.
func (s *Server) apply(w http.ResponseWriter, r *http.Request, x *session) {
	text, code, err := readBody(w, r, "application/json", maxManifests)
	if err != nil {
		refuse(w, code, err.Error())
		return
	}
	var form applyForm
	if err := strictJSON(text, &form); err != nil {
		refuse(w, http.StatusBadRequest, "what was sent is not {manifests, dryRun}: "+err.Error())
		return
	}
	done, ok := x.ask()
	if !ok {
		refuse(w, http.StatusTooManyRequests, "too many questions at once")
		return
	}
	defer done()
	ctx, cancel := s.bounded(r, x)
	defer cancel()
	select {
	case s.applying <- struct{}{}:
		defer func() { <-s.applying }()
	case <-ctx.Done():
		s.tellFailed(w, r, x, ctx.Err())
		return
	}
	objects, err := parseManifests(form.Manifests)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	items, isClean, err := s.applyAll(ctx, x, objects, form.Force, true)
	if err == nil && isClean && !form.DryRun {
		items, _, err = s.applyAll(ctx, x, objects, form.Force, false)
		s.log.LogAttrs(r.Context(), slog.LevelInfo, "applied", slog.String("user", x.user.Name), slog.Int("objects", len(objects)))
	} else if err == nil && !form.DryRun {
		for i := range items {
			if isGood(items[i].Outcome) {
				items[i].Outcome, items[i].Message = outcomeUntouched, "nothing was written, since not all of it can be"
			}
		}
	}
	if err != nil {
		s.tellFailed(w, r, x, err)
		return
	}
	answer(w, http.StatusOK, map[string][]applied{"items": items})
}

func isGood(outcome string) bool {
	return outcome == outcomeCreated || outcome == outcomeUpdated || outcome == outcomeUnchanged
}

// toApply is one object, and where it is written.
type toApply struct {
	id   string
	path []string
	text []byte // JSON
}

// parseManifests reads manifests strictly, and refuses all when one is of another kind than may be applied. What
// it names is not looked at: that is for the API server.
func parseManifests(text string) ([]toApply, error) {
	objects, _, err := manifest.Objects([]string{"-"}, manifest.Options{Stdin: strings.NewReader(text)})
	if err != nil {
		return nil, err
	}
	if n := len(objects); n == 0 || n > maxApplied {
		return nil, fmt.Errorf("%d objects: 1 to %d can be applied at once", n, maxApplied)
	}
	out := make([]toApply, 0, len(objects))
	seen := map[string]bool{}
	for _, o := range objects {
		kind, ok := applicables[o.APIVersion+" "+o.Kind]
		if !ok {
			return nil, fmt.Errorf("%s: only policies, tiers and groups are applied", o.Where())
		}
		a, err := toApplyOf(o, kind)
		if err != nil {
			return nil, err
		}
		if seen[a.id] {
			return nil, fmt.Errorf("%s: it is there twice", o.Where())
		}
		seen[a.id] = true
		out = append(out, a)
	}
	return out, nil
}

func toApplyOf(o manifest.Object, kind applicable) (toApply, error) {
	for _, name := range []string{o.Namespace, o.Name} {
		if why := path.IsValidPathSegmentName(name); len(why) > 0 || o.Name == "" {
			return toApply{}, fmt.Errorf("%s: metadata: %q is no name", o.Where(), name)
		}
	}
	m, err := o.Manifest()
	if err != nil {
		return toApply{}, err
	}
	// What only servers write is no part of what a user wants, and is refused in an apply.
	delete(m, "status")
	if meta, ok := m["metadata"].(map[string]any); ok {
		for _, field := range []string{"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink"} {
			delete(meta, field)
		}
	}
	a := toApply{id: kind.id + "/" + o.Name, path: append([]string{"apis"}, strings.Split(o.APIVersion, "/")...)}
	if o.Namespace != "" {
		a.id = kind.id + "/" + o.Namespace + "/" + o.Name
		a.path = append(a.path, "namespaces", o.Namespace)
	}
	a.path = append(a.path, kind.resource, o.Name)
	a.text, err = json.Marshal(m)
	return a, err
}

// applyAll asks the API server to apply objects, one after the other, as they may build on each other. An error is
// one of the session or of the connection, before anything was written; after that it is the outcome of an object.
func (s *Server) applyAll(ctx context.Context, x *session, objects []toApply, force, dryRun bool) (items []applied, isClean bool, err error) {
	isClean = true
	for i, o := range objects {
		got, err := s.applyOne(ctx, x, o, force, dryRun)
		if err != nil && (dryRun || i == 0 && errors.Is(err, errRefused)) {
			return nil, false, err
		}
		if err != nil {
			got = applied{ID: o.id, Outcome: outcomeFailed, Message: "the API server has not answered: whether it is written is not known"}
		}
		items = append(items, got)
		isClean = isClean && isGood(got.Outcome)
	}
	return items, isClean, nil
}

func (s *Server) applyOne(ctx context.Context, x *session, o toApply, force, dryRun bool) (applied, error) {
	out := applied{ID: o.id}
	have, code, err := s.ask(ctx, x, http.MethodGet, nil, nil, o.path)
	if err != nil {
		return out, err
	}
	var before map[string]any // who may not read it is told that it was updated
	if code == http.StatusOK {
		before = contentOf(have)
	}
	query := url.Values{"fieldManager": {fieldManager}, "fieldValidation": {metav1.FieldValidationStrict}}
	if force {
		query.Set("force", "true")
	}
	if dryRun {
		query.Set("dryRun", metav1.DryRunAll)
	}
	text, code, err := s.ask(ctx, x, http.MethodPatch, query, o.text, o.path)
	if err != nil {
		return out, err
	}
	switch {
	case code == http.StatusCreated:
		out.Outcome = outcomeCreated
	case code == http.StatusOK && before != nil && reflect.DeepEqual(contentOf(text), before):
		out.Outcome = outcomeUnchanged
	case code == http.StatusOK:
		out.Outcome = outcomeUpdated
	case code == http.StatusConflict:
		out.Outcome, out.Message = outcomeConflict, messageOf(code, text)
	case code >= 500:
		out.Outcome, out.Message = outcomeFailed, messageOf(code, text)
	default:
		out.Outcome, out.Message = outcomeRefused, messageOf(code, text)
	}
	return out, nil
}

// contentOf returns an object without what each write changes; nil where it cannot be read. A dry run makes no version, by which it could
// be told whether there is a change.
func contentOf(text []byte) map[string]any {
	var o map[string]any
	if json.Unmarshal(text, &o) != nil {
		return nil
	}
	if meta, ok := o["metadata"].(map[string]any); ok {
		for _, field := range []string{"managedFields", "resourceVersion", "generation"} {
			delete(meta, field)
		}
	}
	return o
}

// ask sends a request as the user of a session, and returns the whole answer.
func (s *Server) ask(ctx context.Context, x *session, method string, query url.Values, body []byte, path []string) ([]byte, int, error) {
	r, err := s.access.request(ctx, method, query, body, path...)
	if err != nil {
		return nil, 0, err
	}
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/apply-patch+yaml") // of which JSON is a part
	}
	got, err := x.do(r)
	if err != nil {
		return nil, 0, err
	}
	defer got.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(io.LimitReader(got.Body, maxQuestion+1)); err != nil {
		return nil, 0, err
	}
	return text.Bytes(), got.StatusCode, nil
}
