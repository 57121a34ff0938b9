package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/control/web"
)

type item struct{ ID, Outcome, Message string }

// apply asks to apply manifests, and returns what became of them.
func (b *browser) apply(manifests string, more string) (int, []item, string) {
	b.t.Helper()
	text, err := json.Marshal(manifests)
	if err != nil {
		b.t.Fatal(err)
	}
	got, body := b.do("POST", "/api/apply", fmt.Sprintf(`{"manifests":%s%s}`, text, more))
	var out struct{ Items []item }
	_ = json.Unmarshal([]byte(body), &out)
	return got.StatusCode, out.Items, body
}

const (
	aPolicy = `apiVersion: crd.antrea.io/v1beta1
kind: NetworkPolicy
metadata: {name: %s, namespace: shop}
spec:
  priority: %d
  appliedTo: [{podSelector: {}}]
  ingress: [{action: Allow, name: %s, enableLogging: false}]
`
	aTier = `apiVersion: crd.antrea.io/v1beta1
kind: Tier
metadata: {name: t}
spec: {priority: 20, description: d}
`
)

func TestApply(t *testing.T) {
	c, a := tokens(t, web.Options{})
	b := c.browser(t)
	b.logIn(aliceToken)
	good := fmt.Sprintf(aPolicy, "db", 5, "r")
	for _, tt := range []struct {
		name, manifests, more string
		want                  []item
		objects               int // that there are afterwards
	}{
		{"a dry run", good + "---\n" + aTier, `,"dryRun":true`, []item{{"annp/shop/db", "created", ""}, {"tier/t", "created", ""}}, 0},
		{"for good", good + "---\n" + aTier, ``, []item{{"annp/shop/db", "created", ""}, {"tier/t", "created", ""}}, 2},
		{"the same again", good, ``, []item{{"annp/shop/db", "unchanged", ""}}, 2},
		{"another, dry", fmt.Sprintf(aPolicy, "db", 6, "r"), `,"dryRun":true`, []item{{"annp/shop/db", "updated", ""}}, 2},
		{"another", fmt.Sprintf(aPolicy, "db", 6, "r"), ``, []item{{"annp/shop/db", "updated", ""}}, 2},
		{"what others have written", fmt.Sprintf(aPolicy, "db", 6, "conflict"), ``, []item{{"annp/shop/db", "conflict", `conflict with "kubectl": .spec.priority`}}, 2},
		{"that, by force", fmt.Sprintf(aPolicy, "db", 6, "conflict"), `,"force":true`, []item{{"annp/shop/db", "updated", ""}}, 2},
		{"one is refused", fmt.Sprintf(aPolicy, "one", 6, "r") + "---\n" + fmt.Sprintf(aPolicy, "two", 6, "refused"), ``,
			[]item{{"annp/shop/one", "untouched", "nothing was written, since not all of it can be"}, {"annp/shop/two", "refused", "the API server refuses it"}}, 2},
	} {
		code, items, body := b.apply(tt.manifests, tt.more)
		if diff := cmp.Diff(tt.want, items); diff != "" || code != 200 {
			t.Errorf("%s: %d %s\n%s", tt.name, code, body, diff)
		}
		if a.mu.Lock(); len(a.objects) != tt.objects {
			t.Errorf("%s: there are %d objects, want %d", tt.name, len(a.objects), tt.objects)
		}
		a.mu.Unlock()
	}
	// Others' rights are their own.
	other := c.browser(t)
	other.logIn(bobToken)
	if code, items, body := other.apply(good, ""); code != 200 || len(items) != 1 || items[0].Outcome != "refused" || items[0].Message != "bob may not" {
		t.Errorf("bob: %d %s", code, body)
	}
}

func TestApplyOnlyPolicies(t *testing.T) {
	c, a := tokens(t, web.Options{})
	b := c.browser(t)
	b.logIn(aliceToken)
	many := strings.Builder{}
	for i := range 101 {
		fmt.Fprintf(&many, "---\n"+aPolicy, fmt.Sprintf("p%d", i), 5, "r")
	}
	for name, manifests := range map[string]string{
		"a Secret":              "apiVersion: v1\nkind: Secret\nmetadata: {name: x, namespace: y}\n",
		"a Pod":                 "apiVersion: v1\nkind: Pod\nmetadata: {name: x, namespace: y}\nspec: {containers: [{name: c, image: i}]}\n",
		"a right":               "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: x}\n",
		"a Pod behind a policy": aTier + "---\napiVersion: v1\nkind: Pod\nmetadata: {name: x, namespace: y}\nspec: {containers: [{name: c, image: i}]}\n",
		"a Secret in a list":    "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret, metadata: {name: x, namespace: y}}]\n",
		"another version":       strings.Replace(aTier, "v1beta1", "v1alpha1", 1),
		"a path as name":        strings.Replace(aTier, "name: t", "name: ../../../api/v1/namespaces/x/secrets/y", 1),
		"a path as namespace":   strings.Replace(fmt.Sprintf(aPolicy, "p", 5, "r"), "namespace: shop", "namespace: ..", 1),
		"no name":               strings.Replace(aTier, "name: t", "labels: {}", 1),
		"a name to be made":     strings.Replace(aTier, "name: t", "generateName: t", 1),
		"a word spelt wrong":    strings.Replace(aTier, "description", "desription", 1),
		"twice":                 aTier + "---\n" + aTier,
		"twice in one":          strings.Replace(aTier, "spec:", "kind: Pod\nspec:", 1),
		"nothing":               "# nothing\n",
		"too many":              many.String(),
		"no YAML":               "{",
		"aliases that blow up":  "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: &h [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n",
	} {
		if code, _, body := b.apply(manifests, ""); code != http.StatusBadRequest {
			t.Errorf("%s: %d %.300s", name, code, body)
		}
	}
	for name, body := range map[string]string{"more fields": `{"manifests":"x","more":1}`, "no JSON": `x`, "two": `{"manifests":"x"}{}`} {
		if got, text := b.do("POST", "/api/apply", body); got.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, got.StatusCode, text)
		}
	}
	if got, _ := b.do("POST", "/api/apply", `{"manifests":"`+strings.Repeat("a", 2<<20)+`"}`); got.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("too large: %d", got.StatusCode)
	}
	if got, _ := b.do("POST", "/api/apply", `{"manifests":""}`, "Content-Type", "text/plain"); got.StatusCode != http.StatusUnsupportedMediaType {
		t.Errorf("as text: %d", got.StatusCode)
	}
	if others := a.others(); len(others) != 0 {
		t.Errorf("the API server was asked for %q", others)
	}

	// A console to look at has nothing to write with.
	c, a = tokens(t, web.Options{ReadOnly: true})
	b = c.browser(t)
	b.logIn(aliceToken)
	if code, _, _ := b.apply(aTier, ""); code != http.StatusNotFound || len(a.others()) != 0 {
		t.Errorf("to a console that is read only: %d %q", code, a.others())
	}
}
