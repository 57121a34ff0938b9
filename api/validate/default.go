package validate

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

// Default fills in, in place, what the mutating webhooks of upstream do: the tier
// and the names of rules, an account's poll interval and deletion policy. It
// says whether it changed anything. Doing it twice changes nothing more.
func Default(obj runtime.Object) bool {
	switch o := obj.(type) {
	case *antreav1beta1.NetworkPolicy:
		return o != nil && defaultPolicy(&o.Spec)
	case *antreav1beta1.ClusterNetworkPolicy:
		return o != nil && defaultPolicy(&o.Spec)
	case *cloudv1alpha1.CloudProviderAccount:
		return o != nil && defaultAccount(&o.Spec)
	}
	return false
}

func defaultPolicy(in *antreav1beta1.NetworkPolicySpec) bool {
	changed := false
	if in.Tier == "" {
		in.Tier, changed = antreav1beta1.TierApplication, true
	}
	for i := range in.Ingress {
		changed = nameRule("ingress", &in.Ingress[i]) || changed
	}
	for i := range in.Egress {
		changed = nameRule("egress", &in.Egress[i]) || changed
	}
	return changed
}

// nameRule gives a rule without a name "ingress-allow-" and 7 digits of the SHA-1
// of its JSON; the order of Rule's fields counts. Equal rules get equal names,
// and are refused as duplicates then, as upstream does. A rule without an action
// is left for the schema to refuse.
func nameRule(direction string, r *antreav1beta1.Rule) bool {
	if r.Name != "" || r.Action == nil {
		return false
	}
	data, err := json.Marshal(r)
	if err != nil {
		return false // a Rule always marshals
	}
	sum := sha1.Sum(data)
	r.Name = direction + "-" + strings.ToLower(string(*r.Action)) + "-" + hex.EncodeToString(sum[:])[:7]
	return true
}

func defaultAccount(in *cloudv1alpha1.CloudProviderAccountSpec) bool {
	changed := false
	if in.PollIntervalInSeconds == nil {
		n := int32(cloudv1alpha1.DefaultPollIntervalSeconds)
		in.PollIntervalInSeconds, changed = &n, true
	}
	if in.DeletionPolicy == "" {
		in.DeletionPolicy, changed = cloudv1alpha1.DeletionRestore, true
	}
	return changed
}
