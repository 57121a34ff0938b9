package validate_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/validate"
)

// TestRandomPolicies is FuzzValidate's property on policies and groups that are
// wrong in one or two places rather than everywhere.
func TestRandomPolicies(t *testing.T) {
	const seed, rounds = 1, 8000
	r := rand.New(rand.NewPCG(seed, 0))
	admitted, refused := map[string]int{}, map[string]int{}
	for i := range rounds {
		for _, o := range everyKind()[:5] {
			kind := reflect.TypeOf(o).Elem().Name()
			meta := o.(metav1.Object)
			meta.SetName("g")
			switch o := o.(type) {
			case *antreav1beta1.NetworkPolicy:
				meta.SetNamespace("ns")
				fillPolicy(r, &o.Spec)
			case *antreav1beta1.ClusterNetworkPolicy:
				fillPolicy(r, &o.Spec)
			case *antreav1beta1.Tier:
				fill(r, reflect.ValueOf(&o.Spec).Elem(), "spec")
			case *antreav1beta1.Group:
				meta.SetNamespace("ns")
				fill(r, reflect.ValueOf(&o.Spec).Elem(), "spec")
			case *antreav1beta1.ClusterGroup:
				fill(r, reflect.ValueOf(&o.Spec).Elem(), "spec")
			}
			errs, warnings := validate.Validate(validate.Request{Operation: validate.Create, Object: o}, world{})
			if len(errs) > 0 {
				refused[kind]++
				continue
			}
			admitted[kind]++
			if len(warnings) == 0 {
				readWholly(t, o)
			}
			if t.Failed() {
				data, _ := json.Marshal(o)
				t.Fatalf("seed %d, round %d: %s", seed, i, data)
			}
		}
	}
	t.Logf("seed %d: admitted %v, refused %v", seed, admitted, refused)
	for kind, n := range admitted {
		if n < rounds/50 || refused[kind] < rounds/50 {
			t.Errorf("%s: %d admitted and %d refused: the generator is one-sided", kind, n, refused[kind])
		}
	}
}

// fillPolicy sets a policy at random, appliedTo mostly in one place.
func fillPolicy(r *rand.Rand, spec *antreav1beta1.NetworkPolicySpec) {
	fill(r, reflect.ValueOf(spec).Elem(), "spec")
	if r.IntN(10) == 0 {
		return
	}
	inRules := r.IntN(3) == 0 && len(spec.Ingress)+len(spec.Egress) > 0
	for _, list := range [][]antreav1beta1.Rule{spec.Ingress, spec.Egress} {
		for i := range list {
			if !inRules {
				list[i].AppliedTo = nil
			}
		}
	}
	for i := range spec.Ingress {
		spec.Ingress[i].To, spec.Ingress[i].ToServices = nil, nil
	}
	for i := range spec.Egress {
		spec.Egress[i].From = nil
	}
	if inRules {
		spec.AppliedTo = nil
	}
}

// words are what strings are drawn from, by JSON name. Most are right.
func words(name string) []string {
	switch name {
	case "action":
		return []string{"Allow", "Allow", "Drop", "Reject", "Pass", "Deny"}
	case "tier":
		return []string{"", "", "Application", "baseline", "@admin"}
	case "protocol":
		return []string{"TCP", "TCP", "UDP", "SCTP", "tcp"}
	case "cidr":
		return []string{"10.0.0.0/8", "fd00::/16", "10.0.0.0/8", "0.0.0.0/0", "224.0.0.0/8", "::ffff:1.2.3.4/128", "x"}
	case "except":
		return []string{"10.1.0.0/16", "fd00:1::/32", "10.0.0.0/8", "x"}
	case "groupAddress":
		return []string{"", "224.0.0.1", "ff02::1", "10.0.0.1", "224.0.0.1%x"}
	case "scope":
		return []string{"", "", "", "Cluster", "ClusterSet", "World"}
	case "match":
		return []string{"Self", "Self", "", "Other"}
	case "operator":
		return []string{"In", "Exists", "NotIn", "DoesNotExist", "Like"}
	case "fqdn":
		return []string{"", "", "", "*.example.com", "a!b"}
	case "group":
		return []string{"", "", "", "g2"}
	case "namespace":
		return []string{"ns", "ns", "other", ""}
	case "logLabel", "host", "method", "path", "sni", "description":
		return []string{"", "", "a"}
	}
	return []string{"a", "b", "c", "d", "e", "example.com/a", "", "a b"}
}

// fill sets v at random; name is the JSON name of the field that v is.
func fill(r *rand.Rand, v reflect.Value, name string) {
	switch v.Type() {
	case reflect.TypeFor[intstr.IntOrString]():
		v.Set(reflect.ValueOf([]intstr.IntOrString{intstr.FromInt32(80), intstr.FromInt32(443), intstr.FromInt32(1), intstr.FromString("web"), intstr.FromInt32(0), intstr.FromString("")}[r.IntN(6)]))
		return
	case reflect.TypeFor[metav1.LabelSelector]():
		if r.IntN(2) == 0 { // the empty selector, often
			return
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			tag := f.Tag.Get("json")
			for j, c := range tag {
				if c == ',' {
					tag = tag[:j]
					break
				}
			}
			fill(r, v.Field(i), tag)
		}
	case reflect.Pointer:
		if name == "action" || r.IntN(6) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), name)
		}
	case reflect.Slice:
		if r.IntN(3) != 0 && name != "appliedTo" && name != "sameLabels" {
			return
		}
		for range 1 + r.IntN(2) {
			e := reflect.New(v.Type().Elem()).Elem()
			fill(r, e, name)
			v.Set(reflect.Append(v, e))
		}
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{words("")[r.IntN(8)]: words("")[r.IntN(8)]}))
	case reflect.String:
		w := words(name)
		v.SetString(w[r.IntN(len(w))])
	case reflect.Int32:
		v.SetInt([]int64{80, 90, 200, 17, 18, 1, 0, 65535, 65536, -1, 253}[r.IntN(11)])
	case reflect.Float64:
		v.SetFloat([]float64{1, 2.5, 10000}[r.IntN(3)])
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	}
}
