package validate_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	netpolv1alpha1 "isobar.dev/api/netpol/v1alpha1"
	netpolv1alpha2 "isobar.dev/api/netpol/v1alpha2"
)

// world is a World of a few objects.
type world struct {
	objects  []runtime.Object
	secrets  map[string]map[string][]byte // by "namespace/name"
	noLayer7 bool
}

func (w world) Tiers() []*antreav1beta1.Tier {
	var out []*antreav1beta1.Tier
	for _, o := range w.objects {
		if t, ok := o.(*antreav1beta1.Tier); ok {
			out = append(out, t)
		}
	}
	return out
}

func (w world) PoliciesIn(tier string) int {
	n := 0
	for _, o := range w.objects {
		switch p := o.(type) {
		case *antreav1beta1.NetworkPolicy:
			if antreav1beta1.TierName(p.Spec.Tier) == tier {
				n++
			}
		case *antreav1beta1.ClusterNetworkPolicy:
			if antreav1beta1.TierName(p.Spec.Tier) == tier {
				n++
			}
		}
	}
	return n
}

// groups calls each with every Group of a namespace, or every ClusterGroup.
func (w world) groups(namespace string, each func(name string, spec *antreav1beta1.GroupSpec)) {
	for _, o := range w.objects {
		switch g := o.(type) {
		case *antreav1beta1.Group:
			if namespace == g.Namespace {
				each(g.Name, &g.Spec)
			}
		case *antreav1beta1.ClusterGroup:
			if namespace == "" {
				each(g.Name, &g.Spec)
			}
		}
	}
}

func (w world) Group(namespace, name string) (found *antreav1beta1.GroupSpec, ok bool) {
	w.groups(namespace, func(n string, spec *antreav1beta1.GroupSpec) {
		if n == name {
			found, ok = spec, true
		}
	})
	return found, ok
}

func (w world) Parents(namespace, name string) []string {
	var out []string
	w.groups(namespace, func(n string, spec *antreav1beta1.GroupSpec) {
		if slices.Contains(spec.ChildGroups, name) {
			out = append(out, n)
		}
	})
	return out
}

func (w world) Account(namespace, name string) (*cloudv1alpha1.CloudProviderAccount, bool) {
	for _, o := range w.objects {
		if a, ok := o.(*cloudv1alpha1.CloudProviderAccount); ok && a.Namespace == namespace && a.Name == name {
			return a, true
		}
	}
	return nil, false
}

func (w world) Accounts() []*cloudv1alpha1.CloudProviderAccount {
	return all[*cloudv1alpha1.CloudProviderAccount](w)
}

func (w world) Selectors() []*cloudv1alpha1.CloudEntitySelector {
	return all[*cloudv1alpha1.CloudEntitySelector](w)
}

func all[T runtime.Object](w world) (out []T) {
	for _, o := range w.objects {
		if x, ok := o.(T); ok {
			out = append(out, x)
		}
	}
	return out
}

func (w world) Secret(namespace, name string) (map[string][]byte, bool, error) {
	if name == "unreadable" {
		return nil, false, errors.New("forbidden")
	}
	data, ok := w.secrets[namespace+"/"+name]
	return data, ok, nil
}

func (w world) AllowsLayer7() bool { return !w.noLayer7 }

// newObject returns an empty object by kind; nil for a kind that is not ours.
func newObject(apiVersion, kind string) runtime.Object {
	switch apiVersion + "/" + kind {
	case "crd.antrea.io/v1beta1/NetworkPolicy":
		return &antreav1beta1.NetworkPolicy{}
	case "crd.antrea.io/v1beta1/ClusterNetworkPolicy":
		return &antreav1beta1.ClusterNetworkPolicy{}
	case "crd.antrea.io/v1beta1/Tier":
		return &antreav1beta1.Tier{}
	case "crd.antrea.io/v1beta1/Group":
		return &antreav1beta1.Group{}
	case "crd.antrea.io/v1beta1/ClusterGroup":
		return &antreav1beta1.ClusterGroup{}
	case "crd.antrea.io/v1alpha2/ExternalEntity":
		return &antreav1alpha2.ExternalEntity{}
	case "crd.antrea.io/v1alpha1/ExternalNode":
		return &antreav1alpha1.ExternalNode{}
	case "crd.cloud.antrea.io/v1alpha1/CloudProviderAccount":
		return &cloudv1alpha1.CloudProviderAccount{}
	case "crd.cloud.antrea.io/v1alpha1/CloudEntitySelector":
		return &cloudv1alpha1.CloudEntitySelector{}
	case "policy.networking.k8s.io/v1alpha2/ClusterNetworkPolicy":
		return &netpolv1alpha2.ClusterNetworkPolicy{}
	case "policy.networking.k8s.io/v1alpha1/AdminNetworkPolicy":
		return &netpolv1alpha1.AdminNetworkPolicy{}
	case "policy.networking.k8s.io/v1alpha1/BaselineAdminNetworkPolicy":
		return &netpolv1alpha1.BaselineAdminNetworkPolicy{}
	}
	return nil
}

// read parses one object in YAML or JSON; nil when there is none.
func read(t *testing.T, text string) runtime.Object {
	t.Helper()
	data := []byte(text)
	if !json.Valid(data) {
		var err error
		if data, err = yaml.YAMLToJSON(data); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	var meta struct{ APIVersion, Kind string }
	if err := json.Unmarshal(data, &meta); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if meta.Kind == "" {
		return nil
	}
	obj := newObject(meta.APIVersion, meta.Kind)
	if obj == nil {
		t.Fatalf("unknown kind %s %s", meta.APIVersion, meta.Kind)
	}
	if unknown, err := kjson.UnmarshalStrict(data, obj); err != nil || len(unknown) > 0 {
		t.Fatalf("%v %v\n%s", err, unknown, text)
	}
	return obj
}
