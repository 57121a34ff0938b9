package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// answers is an API server that has fixed answers, by path.
type answers map[string]struct {
	code int
	body string
}

func (a answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	answer, ok := a[r.URL.Path]
	switch {
	case ok:
	case r.URL.Path == namespacesPath:
		answer.code, answer.body = http.StatusOK, `{"kind":"NamespaceList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}`
	default:
		answer.code = http.StatusNotFound
	}
	if answer.body == "" {
		reason := map[int]string{404: "NotFound", 403: "Forbidden", 503: "ServiceUnavailable"}[answer.code]
		answer.body = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, answer.code)
	}
	w.WriteHeader(answer.code)
	fmt.Fprint(w, answer.body)
}

// readerOf returns the reader of Tiers from such an API server.
func readerOf(t *testing.T, a answers) (*Source, *reader) {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	s, err := New(&rest.Config{Host: server.URL}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range s.readers {
		if r.kind.name == "Tier" {
			return s, r
		}
	}
	t.Fatal("no reader of Tiers")
	return nil, nil
}

const (
	namespacesPath = "/api/v1/namespaces"

	tiersPath      = "/apis/crd.antrea.io/v1beta1/tiers"
	definitionPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tiers.crd.antrea.io"

	definitionNotFound = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"customresourcedefinitions.apiextensions.k8s.io \"tiers.crd.antrea.io\" not found","reason":"NotFound","details":{"name":"tiers.crd.antrea.io","group":"apiextensions.k8s.io","kind":"customresourcedefinitions"},"code":404}`
)

// A list of custom objects is decoded one by one.
func TestListOfCustomObjects(t *testing.T) {
	s, r := readerOf(t, answers{tiersPath: {200, `{"kind":"TierList","apiVersion":"crd.antrea.io/v1beta1","metadata":{"resourceVersion":"7"},"items":[
		{"kind":"Tier","apiVersion":"crd.antrea.io/v1beta1","metadata":{"name":"good"},"spec":{"priority":7}},
		{"kind":"Tier","apiVersion":"crd.antrea.io/v1beta1","metadata":{"name":"bad"},"spec":{"priority":"seven"}}]}`}})
	page, err := r.ListWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	objs, err := meta.ExtractList(page)
	if err != nil || len(objs) != 2 {
		t.Fatalf("%d objects: %v", len(objs), err)
	}
	do(t, r.Replace([]any{objs[0], objs[1]}, "7"))
	if tier, ok := s.Snapshot().Tiers.Get("good"); !ok || tier.Number != 7 {
		t.Errorf("good: got %+v", tier)
	}
	if n, ok := s.Notices().Get("Tier bad"); !ok || !n.Unread {
		t.Errorf("bad: got %+v", n)
	}
}

func TestMissingOrUnreadable(t *testing.T) {
	for name, tt := range map[string]struct {
		a       answers
		missing bool
	}{
		"no definition":           {answers{definitionPath: {404, definitionNotFound}}, true},
		"nobody there":            {answers{}, false},
		"another is not found":    {answers{definitionPath: {404, strings.ReplaceAll(definitionNotFound, "tiers", "groups")}}, false},
		"not found by a proxy":    {answers{definitionPath: {404, "404 page not found"}}, false},
		"definition not served":   {answers{definitionPath: {200, `{"spec":{"versions":[{"name":"v1beta1","served":true}]}}`}}, false},
		"other versions only":     {answers{definitionPath: {200, `{"spec":{"versions":[{"name":"v1alpha1","served":true},{"name":"v1beta1","served":false}]}}`}}, false},
		"definition unreadable":   {answers{definitionPath: {403, ""}}, false},
		"nothing is told of when": {answers{definitionPath: {404, definitionNotFound}, namespacesPath: {503, ""}}, false},
		"definition broken":       {answers{definitionPath: {200, `[]`}}, false},
		"kind unreadable":         {answers{tiersPath: {403, ""}}, false},
		"API server out of order": {answers{tiersPath: {503, ""}}, false},
		"list broken":             {answers{tiersPath: {200, `{"kind":"TierList","apiVersion":"crd.antrea.io/v1beta1","items":1}`}}, false},
		"list of something else":  {answers{tiersPath: {200, `{"kind":"Status","apiVersion":"v1","status":"Success"}`}}, false},
	} {
		s, r := readerOf(t, tt.a)
		if _, err := r.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if got := s.Status()[r.index]; got.Missing != tt.missing || (got.Err == nil) != tt.missing || got.Synced {
			t.Errorf("%s: got %+v, want missing %t or else an error", name, got, tt.missing)
		}
	}
}
