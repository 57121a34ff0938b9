package web

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

// Whatever is pasted, an object is written where its kind says, and nowhere else.
func FuzzManifests(f *testing.F) {
	for _, seed := range []string{
		"apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: t}\nspec: {priority: 20}\n",
		"---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a, namespace: b}\nspec: {podSelector: {}}\n---\n{}\n...\n",
		`{"apiVersion":"crd.antrea.io/v1beta1","kind":"Group","metadata":{"name":"../x","namespace":"%2e%2e"}}`,
		"apiVersion: v1\nkind: List\nitems: []\n", "a: &a [*a]", "\xef\xbb\xbf---", "kind: Tier\nkind: Pod\n",
	} {
		f.Add(seed)
	}
	var resources []string
	for _, k := range applicables {
		resources = append(resources, k.resource)
	}
	f.Fuzz(func(t *testing.T, text string) {
		objects, err := parseManifests(text)
		if err != nil {
			return
		}
		if len(objects) == 0 || len(objects) > maxApplied {
			t.Errorf("%d objects", len(objects))
		}
		for _, o := range objects {
			u := (&url.URL{Scheme: "https", Host: "api"}).JoinPath(o.path...)
			parts := strings.Split(strings.Trim(u.EscapedPath(), "/"), "/")
			// /apis/GROUP/VERSION[/namespaces/NS]/RESOURCE/NAME
			ok := len(parts) == 5 || len(parts) == 7 && parts[3] == "namespaces"
			if !ok || parts[0] != "apis" || !slices.Contains(resources, parts[len(parts)-2]) || slices.Contains(parts, "..") || slices.Contains(parts, ".") {
				t.Errorf("%q is written to %s", text, u)
			}
		}
	})
}

func FuzzForm(f *testing.F) {
	for _, seed := range []string{"code=abc", "code=a&code=b", "code=%00", "x=y", "code=a;b", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		code, err := parseForm([]byte(text))
		if (err == nil) != (code != "") {
			t.Errorf("%q: %q, %v", text, code, err)
		}
		if err == nil {
			if again, err := parseForm([]byte(url.Values{"code": {code}}.Encode())); again != code || err != nil {
				t.Errorf("%q became %q, %v", code, again, err)
			}
		}
	})
}

// A token that is taken is one value of a header, and nothing else.
func FuzzToken(f *testing.F) {
	for _, seed := range []string{"abc", "a.b.c", "a\r\nX: y", "a b", "é", "", "a,b", "eyJhbGciOiJub25lIn0.eyJleHAiOjF9."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		_ = expiryOf(token)
		if checkToken(token) == nil && strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' }) {
			t.Errorf("%q is a token", token)
		}
	})
}

// A login leads to a page of ours.
func FuzzOwnPath(f *testing.F) {
	for _, seed := range []string{"/map", "//evil", "/\\evil", "https://evil", "/a?b=c#d", "/%2f/evil", "\t/x", "/api/x"} {
		f.Add(seed)
	}
	base, err := url.Parse("https://console.example/api/oidc/callback")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, next string) {
		got := ownPath(next)
		u, err := base.Parse(got)
		if err != nil || u.Scheme != "https" || u.Host != "console.example" || strings.HasPrefix(got, "//") || strings.ContainsAny(got, "\\\r\n\t") {
			t.Errorf("%q leads to %q (%v, %v)", next, got, u, err)
		}
	})
}

func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		`{"type":"ADDED","object":{"status":{"revision":"1"}}}`, `{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}`, `{"type":"BOOKMARK","object":{}}`, `{}`, `x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if revision, err := revisionOf(line); err != nil && revision != "" {
			t.Errorf("%q: %q, %v", line, revision, err)
		}
	})
}
