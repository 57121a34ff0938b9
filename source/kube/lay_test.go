package kube

import (
	"strings"
	"testing"

	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

const (
	layNamespace = `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"x","labels":{"team":"a"}}}`
	layPod       = `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"x","name":"p","labels":{"app":"web"}},"spec":{"nodeName":"n"},"status":{"phase":"Running","podIP":"10.0.0.1"}}`
	layPolicy    = `{"apiVersion":"crd.antrea.io/v1beta1","kind":"NetworkPolicy","metadata":{"namespace":"x","name":"p"},"spec":{"priority":5,"appliedTo":[{"podSelector":{}}],"ingress":[{"action":"Drop","from":[{"group":"g"}]}]}}`
	layGroup     = `{"apiVersion":"crd.antrea.io/v1beta1","kind":"Group","metadata":{"namespace":"x","name":"g"},"spec":{"podSelector":{}}}`
)

func TestLay(t *testing.T) {
	l, err := NewLayer(Networks{})
	if err != nil {
		t.Fatal(err)
	}
	write := func(texts ...string) (out []Write) {
		for _, x := range texts {
			text, isDelete := strings.CutPrefix(x, "delete ")
			out = append(out, Write{Manifest: []byte(text), Delete: isDelete})
		}
		return out
	}
	before, notices := l.Lay(policy.Snapshot{}, write(layNamespace, layPod, layPolicy))
	for i, n := range notices {
		if n != nil {
			t.Fatalf("write %d: %+v", i, n)
		}
	}
	for _, tt := range []struct {
		write  string
		want   string // in the world after it
		lacks  string
		notice string // part of it; none when empty
	}{
		{layPolicy, "annp/x/p", "", ""},
		{"delete " + layPolicy, "", "annp/x/p", ""},
		{"delete " + strings.Replace(layPolicy, `"p"`, `"q"`, 1), "annp/x/p", "", "it is not there"},
		{strings.Replace(layPolicy, `"name":"p"`, `"name":"p","annotations":{"isobar.dev/mode":"Stage"}`, 1), "staged policy annp/x/p", "\npolicy", ""},
		{strings.Replace(layPolicy, `"name":"p"`, `"name":"p","annotations":{"isobar.dev/mode":"stage"}`, 1), "\npolicy annp/x/p", "staged", `metadata.annotations[isobar.dev/mode]: "stage": want Enforce or Stage`},
		{layGroup, "group/x/g", "", ""},
		{strings.Replace(layPolicy, `"priority":5`, `"priority":"high"`, 1), `annp/x/p`, "high", "cannot be read"},
		{strings.Replace(layPolicy, `"priority":5`, `"priority":6,"prio":1`, 1), `annp/x/p`, "", "spec.prio: unknown field"},
		{strings.Replace(layPolicy, `"namespace":"x",`, ``, 1), `annp/x/p`, "annp//p", "metadata.namespace: must be set"},
		{strings.Replace(layNamespace, `"name":"x"`, `"name":"x","namespace":"x"`, 1), "", "", "belongs to no namespace"},
		{strings.Replace(layNamespace, `"a"`, `"b"`, 1), "team=b", "team=a", ""},
		{"delete " + layNamespace, "team=a", "", "what else goes"},
		{`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"x","name":"p","labels":{"app":"db"}},"spec":{"containers":[]}}`, "app=db", "app=web", ""},
		{`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"x","name":"new"},"spec":{}}`, "", "x/new", "no address before it runs"},
		{"delete " + layPod, "", "10.0.0.1", ""},
		{`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"x","name":"d"}}`, "", "", "says nothing about policies"},
		{`{"apiVersion":"v1","kind":"Namespace","metadata":{}}`, "", "", "metadata.name: must be set"},
		{`[]`, "", "", "read metadata"},
	} {
		after, notices := l.Lay(before, write(tt.write))
		text := policytest.Print(after)
		if !strings.Contains(text, tt.want) || tt.lacks != "" && strings.Contains(text, tt.lacks) {
			t.Errorf("Lay(%s): want %q and not %q in\n%s", tt.write, tt.want, tt.lacks, text)
		}
		said := ""
		if n := notices[0]; n != nil {
			for _, p := range n.Problems {
				said += p.String() + "\n"
			}
		}
		if (said == "") != (tt.notice == "") || !strings.Contains(said, tt.notice) {
			t.Errorf("Lay(%s): notice %q; want %q", tt.write, said, tt.notice)
		}
	}
}

// What comes over the network is taken or told, and what the world was stays as
// it is.
func FuzzLay(f *testing.F) {
	l, err := NewLayer(Networks{})
	if err != nil {
		f.Fatal(err)
	}
	before, _ := l.Lay(policy.Snapshot{}, []Write{{Manifest: []byte(layNamespace)}, {Manifest: []byte(layPod)}})
	want := policytest.Print(before)
	for _, text := range []string{layNamespace, layPod, layPolicy, layGroup, `{}`, `null`, `{"apiVersion":"v1","kind":"Service","metadata":{"namespace":"x","name":"s"}}`} {
		f.Add([]byte(text), false)
		f.Add([]byte(text), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, isDelete bool) {
		after, notices := l.Lay(before, []Write{{text, isDelete}})
		if len(notices) != 1 {
			t.Fatalf("%d notices", len(notices))
		}
		if n := notices[0]; n != nil && n.Unread && n.Problems == nil {
			t.Errorf("not taken, and not told why: %+v", n)
		}
		if policytest.Print(before) != want {
			t.Errorf("the world before became another: %s", policytest.Print(before))
		}
		_ = policytest.Print(after)
	})
}
