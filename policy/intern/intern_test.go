package intern_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"isobar.dev/policy"
	"isobar.dev/policy/intern"
	"isobar.dev/policy/policytest"
)

var like = cmp.Options{cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

// give gives v, of any kind, to in.
func give(in *intern.Interner, v any) {
	switch v := v.(type) {
	case *policy.Workload:
		in.Workload(v)
	case *policy.Namespace:
		in.Namespace(v)
	case *policy.Policy:
		in.Policy(v)
	}
}

// values returns what of a random world is interned, anew at each call.
func values(seed uint64) (out []any) {
	s := policytest.World(policytest.Rand(seed), 12)
	for _, w := range s.Workloads.All() {
		out = append(out, w)
	}
	for _, n := range s.Namespaces.All() {
		out = append(out, n)
	}
	for _, p := range s.Policies.All() {
		out = append(out, p)
	}
	return out
}

// What is interned is what it was, and stays so while others are.
func TestNothingChanges(t *testing.T) {
	in := intern.New()
	var want, got []any
	for seed := range policytest.Seeds(t, 150) {
		want, got = append(want, values(seed)...), append(got, values(seed)...)
	}
	for _, v := range got {
		give(in, v)
	}
	if d := cmp.Diff(want, got, like); d != "" {
		t.Fatalf("-want +got:\n%s", d)
	}
}

// rich has something in every field that is a part of a policy.
func rich() *policy.Policy {
	n := uint8(3)
	selection := policy.Selection{
		Kind: policy.KindPod, Scope: policy.OneNamespace, Namespace: "ns", NamespaceLabels: policy.Selector{{Key: "k", Op: policy.In, Values: []string{"a"}}},
		SameKeys: []string{"s"}, Labels: policy.Selector{{Key: "k", Op: policy.In, Values: []string{"a", "b"}}}, ServiceAccount: "sa",
	}
	rule := policy.Rule{
		Name: "rule", Action: policy.Allow, Log: true, LogLabel: "label",
		Peers: policy.Peers{
			All: true, Set: policy.Set{Selections: []policy.Selection{selection}, Groups: []string{"g"}},
			Blocks: []policy.Block{{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Except: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}},
			Names:  []string{"name"}, Services: []string{"service"},
		},
		Traffic: []policy.Traffic{{Protocol: policy.TCP, Ports: policy.Ports{First: 1, Last: 2}, PortName: "http", SourcePorts: policy.Ports{First: 3, Last: 4}, ICMPType: &n, ICMPCode: &n, IGMPType: &n, GroupAddress: netip.MustParseAddr("224.0.0.1")}},
	}
	odd := rule
	odd.L7 = []policy.L7{{HTTP: &policy.HTTP{Host: "host", Method: "GET", Path: "/"}, TLS: &policy.TLS{SNI: "sni"}}}
	odd.AppliedTo = &policy.Set{Selections: []policy.Selection{selection}, Groups: []string{"g"}}
	return &policy.Policy{
		ID: "annp/ns/name", Dialect: policy.AntreaNetworkPolicy, Namespace: "ns", Name: "name", UID: "uid", Tier: "tier",
		AppliedTo: policy.Set{Selections: []policy.Selection{selection}, Groups: []string{"g"}},
		Ingress:   []policy.Rule{rule, rule}, Egress: []policy.Rule{odd},
	}
}

// leaves calls f with each field below v that has no parts.
func leaves(v reflect.Value, path string, f func(reflect.Value, string)) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			leaves(v.Elem(), path, f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			leaves(v.Index(i), path+"[]", f)
		}
	case reflect.Struct:
		if v.Type().PkgPath() == "net/netip" {
			f(v, path)
			return
		}
		for i := range v.NumField() {
			leaves(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
	default:
		f(v, path)
	}
}

// Policies that differ in one field are not made one.
func TestEveryFieldCounts(t *testing.T) {
	n := 0
	leaves(reflect.ValueOf(rich()), "", func(reflect.Value, string) { n++ })
	for i := range n {
		want, got, where, at := rich(), rich(), "", 0
		for _, p := range []*policy.Policy{want, got} {
			at = 0
			leaves(reflect.ValueOf(p), "", func(v reflect.Value, path string) {
				if at++; at-1 != i {
					return
				}
				switch where = path; v.Interface().(type) {
				case netip.Prefix:
					v.Set(reflect.ValueOf(netip.MustParsePrefix("10.2.0.0/16")))
				case netip.Addr:
					v.Set(reflect.ValueOf(netip.MustParseAddr("224.0.0.2")))
				default:
					v.Set(other(v))
				}
			})
		}
		if where == ".ID" || where == ".Name" || where == ".Namespace" {
			continue // they go together
		}
		in := intern.New()
		in.Policy(rich())
		in.Policy(got)
		if d := cmp.Diff(want, got, like); d != "" {
			t.Errorf("%s: -want +got:\n%s", where, d)
		}
	}
	if n < 60 {
		t.Errorf("%d fields", n)
	}
}

// other returns another value than v has.
func other(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(v.String() + "x")
	case reflect.Bool:
		out.SetBool(!v.Bool())
	case reflect.Int64:
		out.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint16:
		out.SetUint(v.Uint() + 1)
	case reflect.Float64:
		out.SetFloat(v.Float() + 1)
	default:
		panic(v.Kind().String())
	}
	return out
}

// Policies of a template, in the same and in other namespaces, share what they have in common.
func TestPoliciesShare(t *testing.T) {
	in := intern.New()
	a, b := rich(), rich()
	a.Egress, b.Egress = a.Ingress, b.Ingress
	for _, p := range []*policy.Policy{a, b} {
		for i := range p.Ingress {
			p.Ingress[i].Traffic = []policy.Traffic{{Protocol: policy.TCP}}
		}
		in.Policy(p)
	}
	for what, same := range map[string]bool{
		"rules": &a.Ingress[0] == &b.Ingress[0], "rules of directions": &a.Ingress[0] == &a.Egress[0],
		"what they apply to": &a.AppliedTo.Selections[0] == &b.AppliedTo.Selections[0],
		"peers and subjects": &a.AppliedTo.Selections[0] == &a.Ingress[0].Peers.Set.Selections[0],
	} {
		if !same {
			t.Errorf("%s are not shared", what)
		}
	}
}
