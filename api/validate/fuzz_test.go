package validate_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/convert"
	"isobar.dev/api/validate"
)

// everyKind lists what Validate knows.
func everyKind() []runtime.Object {
	var out []runtime.Object
	for _, k := range [][2]string{
		{"crd.antrea.io/v1beta1", "NetworkPolicy"},
		{"crd.antrea.io/v1beta1", "ClusterNetworkPolicy"},
		{"crd.antrea.io/v1beta1", "Tier"},
		{"crd.antrea.io/v1beta1", "Group"},
		{"crd.antrea.io/v1beta1", "ClusterGroup"},
		{"crd.antrea.io/v1alpha2", "ExternalEntity"},
		{"crd.antrea.io/v1alpha1", "ExternalNode"},
		{"crd.cloud.antrea.io/v1alpha1", "CloudProviderAccount"},
		{"crd.cloud.antrea.io/v1alpha1", "CloudEntitySelector"},
		{"policy.networking.k8s.io/v1alpha2", "ClusterNetworkPolicy"},
		{"policy.networking.k8s.io/v1alpha1", "AdminNetworkPolicy"},
		{"policy.networking.k8s.io/v1alpha1", "BaselineAdminNetworkPolicy"},
	} {
		out = append(out, newObject(k[0], k[1]))
	}
	return out
}

// FuzzValidate decodes anything into every kind: nothing panics, an answer is
// bounded, and a policy that is admitted without a warning is one that the
// converter reads wholly.
func FuzzValidate(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"spec":{}}`, `{"spec":null}`, `{"metadata":{"name":"x","namespace":"y"},"spec":{"priority":3}}`,
		`{"spec":{"priority":1,"tier":"@admin","appliedTo":[{"podSelector":{}}],"ingress":[{"action":"Allow","from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}},{"namespaces":{"sameLabels":["a"]}}],"ports":[{"port":"web"},{"port":1,"endPort":9,"sourcePort":5}],"l7Protocols":[{"http":{}}]}]}}`,
		`{"spec":{"priority":1,"appliedTo":[{"service":{"name":"a","namespace":"b"}},null],"egress":[{"action":null,"to":[{},{"fqdn":"*.x"}],"protocols":[{"icmp":{"icmpType":8}},{"igmp":{"igmpType":17,"groupAddress":"224.0.0.1"}}],"toServices":[{"scope":"ClusterSet"}]}]}}`,
		`{"spec":{"childGroups":["x",""],"ipBlocks":[{"cidr":"224.0.0.0/4"},{"cidr":"fd00::/8"}],"ipBlock":{},"serviceReference":{}}}`,
		`{"spec":{"awsConfig":{"region":["us-west-2"],"endpoint":"http://[::1","secretRef":{"name":"s","namespace":"ns","key":"k"}},"pollIntervalInSeconds":null}}`,
		`{"spec":{"azureConfig":{"region":[""],"secretRef":{}}}}`,
		`{"spec":{"accountName":"a","accountNamespace":"ns","vmSelector":[{"vpcMatch":{"matchID":"a"},"vmMatch":[{"matchName":"b"}],"mode":"x"}]}}`,
		`{"spec":{"subject":{"pods":{}},"ingress":[{"from":[{}],"ports":[{}],"protocols":[{},{"tcp":{}}]}],"egress":[{"to":[{"networks":["::/0"],"nodes":{}}],"ports":null}]}}`,
		`{"spec":{"endpoints":[{"ip":"x"}],"ports":[{"port":0}],"interfaces":[{"ips":[""]}]}}`,
	} {
		f.Add([]byte(seed))
	}
	w := world{secrets: map[string]map[string][]byte{"ns/s": {"k": []byte(`{"roleArn":"r"}`)}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, o := range everyKind() {
			if json.Unmarshal(data, o) != nil {
				continue
			}
			for _, r := range []validate.Request{
				{Operation: validate.Create, Object: o},
				{Operation: validate.Update, Object: o, Old: o},
				{Operation: validate.Update, Object: o, Old: newTwin(o)},
				{Operation: validate.Delete, Old: o},
			} {
				for _, w := range []validate.World{nil, w} {
					errs, warnings := validate.Validate(r, w)
					if len(errs) > validate.MaxErrors+1 || len(warnings) > validate.MaxErrors+1 {
						t.Fatalf("%d errors and %d warnings", len(errs), len(warnings))
					}
				}
			}
			validate.Default(o)
			errs, warnings := validate.Validate(validate.Request{Operation: validate.Create, Object: o}, w)
			if len(errs) == 0 && len(warnings) == 0 {
				readWholly(t, o)
			}
		}
	})
}

// newTwin returns an empty object of the kind of o.
func newTwin(o runtime.Object) runtime.Object {
	for _, twin := range everyKind() {
		if reflect.TypeOf(twin) == reflect.TypeOf(o) {
			return twin
		}
	}
	return nil
}

// readWholly fails when the converter has problems with an admitted object,
// except with what the schema refuses.
func readWholly(t *testing.T, o runtime.Object) {
	var problems []convert.Problem
	switch o := o.(type) {
	case *antreav1beta1.NetworkPolicy:
		if schemaRefuses(&o.Spec) || o.Namespace == "" {
			return
		}
		_, problems = convert.AntreaNetworkPolicy(o)
	case *antreav1beta1.ClusterNetworkPolicy:
		if schemaRefuses(&o.Spec) || o.Namespace != "" {
			return
		}
		_, problems = convert.AntreaClusterNetworkPolicy(o)
	case *antreav1beta1.Group:
		if o.Namespace == "" {
			return
		}
		_, problems = convert.Group(o)
	case *antreav1beta1.ClusterGroup:
		_, problems = convert.ClusterGroup(o)
	case *antreav1beta1.Tier:
		_, problems = convert.Tier(o)
	case *antreav1alpha2.ExternalEntity:
		_, problems = convert.ExternalEntity(o)
	}
	problems = slices.DeleteFunc(problems, func(p convert.Problem) bool { return p.Warning })
	if len(problems) > 0 {
		data, _ := json.Marshal(o)
		t.Errorf("admitted, but the converter says %v\n%s", problems, data)
	}
}

func schemaRefuses(spec *antreav1beta1.NetworkPolicySpec) bool {
	if spec.Priority < 1 {
		return true
	}
	for _, list := range [][]antreav1beta1.Rule{spec.Ingress, spec.Egress} {
		for i := range list {
			if list[i].Action == nil {
				return true
			}
		}
	}
	return false
}
