package convert_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/convert"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/policy"
	"isobar.dev/policy/policytest"
)

// Whatever an object holds, converting it neither fails nor depends on chance,
// and what comes of it can be evaluated.
func FuzzPolicies(f *testing.F) {
	for seed := range uint64(60) {
		rnd := policytest.Rand(seed)
		i := rnd.IntN(len(dialects))
		object := dialects[i].write(rnd)
		if seed%2 == 0 {
			breakOne(rnd, object)
		}
		text, _ := json.Marshal(object)
		f.Add(uint8(i), text)
	}
	for _, c := range conversions {
		for i, d := range dialects {
			if d.name == c.dialect {
				f.Add(uint8(i), []byte(`{"metadata":{"namespace":"x","name":"it"},"spec":`+c.spec+`}`))
			}
		}
	}
	world := background()
	f.Fuzz(func(t *testing.T, i uint8, text []byte) {
		d := dialects[int(i)%len(dialects)]
		p, problems, err := d.read(text)
		if err != nil {
			return
		}
		again, sameProblems, _ := d.read(text)
		if diff := cmp.Diff(p, again, byValue, cmpopts.EquateNaNs()); diff != "" || !cmp.Equal(problems, sameProblems) {
			t.Fatalf("%s: %s: two conversions differ: %s", d.name, text, diff)
		}
		rnd := policytest.Rand(1)
		for range 20 {
			fl := someFlow(rnd)
			_, _ = policy.Evaluate(with(world, p), fl)
		}
	})
}

func FuzzObjects(f *testing.F) {
	f.Add([]byte(`{"metadata":{"namespace":"x","name":"a"},"spec":{"nodeName":"n","containers":[{"ports":[{"name":"p","containerPort":1}]}]},"status":{"podIP":"10.0.0.1"}}`))
	f.Add([]byte(`{"spec":{"endpoints":[{"ip":"::ffff:10.0.0.1"}],"ports":[{"name":"p","port":70000}],"externalNode":"nephe-controller"}}`))
	f.Add([]byte(`{"spec":{"childGroups":["a"],"ipBlocks":[{"cidr":"10.0.0.0/8","except":["10.0.0.0/9"]}],"priority":250}}`))
	f.Add([]byte(`{"spec":{"tags":{"Name":"ü"}},"status":{"tags":{"aws:x/y/z":"1"},"networkInterfaces":[{"name":"eni","ips":[{"address":"10.0.0.1"}]}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		once, twice := objects(text), objects(text)
		if diff := cmp.Diff(once, twice, byValue, cmp.Comparer(func(a, b policy.Requirement) bool {
			return cmp.Equal(a.Values, b.Values) && a.Key == b.Key && a.Op == b.Op
		})); diff != "" {
			t.Fatalf("%s: two conversions differ: %s", text, diff)
		}
	})
}

// objects converts text as every kind that is no policy.
func objects(text []byte) []any {
	var out []any
	add := func(x any, problems []convert.Problem) { out = append(out, x, problems) }
	if in := new(corev1.Pod); json.Unmarshal(text, in) == nil {
		add(convert.Pod(in))
	}
	if in := new(corev1.Node); json.Unmarshal(text, in) == nil {
		add(convert.Node(in), nil)
	}
	if in := new(corev1.Service); json.Unmarshal(text, in) == nil {
		add(convert.Service(in), nil)
	}
	if in := new(corev1.Namespace); json.Unmarshal(text, in) == nil {
		add(convert.Namespace(in), nil)
	}
	if in := new(antreav1beta1.Group); json.Unmarshal(text, in) == nil {
		add(convert.Group(in))
	}
	if in := new(antreav1beta1.Tier); json.Unmarshal(text, in) == nil {
		add(convert.Tier(in))
	}
	if in := new(antreav1alpha2.ExternalEntity); json.Unmarshal(text, in) == nil {
		add(convert.ExternalEntity(in))
	}
	if in := new(runtimev1alpha1.VirtualMachine); json.Unmarshal(text, in) == nil {
		add(convert.ExternalEntity(convert.VirtualMachineEntity(in)))
		add2, problems := convert.VirtualMachineInterfaces(in)
		add(add2, problems)
	}
	return out
}
