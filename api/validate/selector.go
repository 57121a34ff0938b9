package validate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation/field"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

func (v *validator) selector(spec *field.Path, in *cloudv1alpha1.CloudEntitySelectorSpec, old *cloudv1alpha1.CloudEntitySelector) {
	v.accountOf(spec, in, old)
	var account *cloudv1alpha1.CloudProviderAccount
	if v.w != nil && in.AccountName != "" && in.AccountNamespace != "" {
		a, ok := v.w.Account(in.AccountNamespace, in.AccountName)
		if !ok || a == nil {
			v.missing(spec.Child("accountName"), in.AccountNamespace+"/"+in.AccountName, "create the CloudProviderAccount first")
		}
		account = a
	}
	for i := range in.VMSelector {
		at := spec.Child("vmSelector").Index(i)
		v.selectorEntry(at, &in.VMSelector[i])
		if account != nil {
			v.selectorOfCloud(at, &in.VMSelector[i], account.Spec.AWSConfig != nil, account.Spec.AzureConfig != nil)
		}
	}
	v.selectorDuplicates(spec.Child("vmSelector"), in.VMSelector)
	for i := range in.ServiceSelector {
		at := spec.Child("serviceSelector").Index(i)
		v.serviceEntry(at, &in.ServiceSelector[i])
		if account != nil && account.Spec.AWSConfig == nil {
			v.forbid(at, "the services of this account's cloud are not supported")
		}
	}
}

func (v *validator) serviceEntry(path *field.Path, in *cloudv1alpha1.ServiceSelector) {
	switch in.Kind {
	case cloudv1alpha1.ServiceDatabase, cloudv1alpha1.ServiceLoadBalancer:
	case "":
		v.require(path.Child("kind"), "set Database or LoadBalancer")
	default:
		v.add(field.NotSupported(path.Child("kind"), in.Kind, []string{"Database", "LoadBalancer"}))
	}
	if in.VpcMatch == nil && len(in.ServiceMatch)+len(in.Tags) == 0 {
		v.require(path, "set vpcMatch, serviceMatch or tags")
	}
	v.cloudTags(path.Child("tags"), in.Tags)
	if in.VpcMatch != nil {
		v.match(path.Child("vpcMatch"), in.VpcMatch, "selects every VPC of the account")
	}
	for i := range in.ServiceMatch {
		v.match(path.Child("serviceMatch").Index(i), &in.ServiceMatch[i], "matches nothing; set matchID or matchName")
	}
	v.isolation(path.Child("isolation"), in.Isolation)
}

// accountOf checks that the account is named and stays the same.
func (v *validator) accountOf(spec *field.Path, in *cloudv1alpha1.CloudEntitySelectorSpec, old *cloudv1alpha1.CloudEntitySelector) {
	was := cloudv1alpha1.CloudEntitySelectorSpec{}
	if old != nil {
		was = old.Spec
	}
	for _, f := range []struct{ name, value, was string }{
		{"accountName", in.AccountName, was.AccountName},
		{"accountNamespace", in.AccountNamespace, was.AccountNamespace},
	} {
		switch {
		case f.value == "":
			v.require(spec.Child(f.name), "name a CloudProviderAccount")
		case f.was != "" && f.was != f.value:
			v.forbid(spec.Child(f.name), "cannot change from %s; make another CloudEntitySelector", f.was)
		}
	}
}

func (v *validator) selectorEntry(path *field.Path, in *cloudv1alpha1.VirtualMachineSelector) {
	if in.VpcMatch == nil && len(in.VMMatch)+len(in.Tags)+len(in.Subnets) == 0 {
		v.require(path, "set vpcMatch, vmMatch, tags or subnets")
	}
	if in.Agented {
		v.warn(path.Child("agented"), "the cloud stops enforcing on these VMs when an ExternalEntity is made of their ExternalNodes; have the agents run by then")
	}
	v.cloudTags(path.Child("tags"), in.Tags)
	v.subnets(path.Child("subnets"), in.Subnets)
	if in.VpcMatch != nil {
		v.match(path.Child("vpcMatch"), in.VpcMatch, "selects every VPC of the account")
	}
	for i := range in.VMMatch {
		v.match(path.Child("vmMatch").Index(i), &in.VMMatch[i], "matches nothing; set matchID or matchName")
	}
	v.isolation(path.Child("isolation"), in.Isolation)
}

func (v *validator) isolation(path *field.Path, in cloudv1alpha1.Isolation) {
	switch in {
	case "", cloudv1alpha1.IsolationNone, cloudv1alpha1.IsolationDirection, cloudv1alpha1.IsolationBoth:
	default:
		v.add(field.NotSupported(path, in, []string{"None", "Direction", "Both"}))
	}
}

// Bounds of tags in AWS and Azure, in characters; a VM of either has at most 50.
const (
	maxTagKey, maxTagValue = 512, 256
	maxTags                = 50
	maxSubnets             = 1000
)

func (v *validator) cloudTags(path *field.Path, tags map[string]string) {
	if len(tags) > maxTags {
		v.add(field.TooMany(path, len(tags), maxTags))
		return
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		at := path.Key(key)
		switch {
		case key == "":
			v.require(at, "a tag has a key")
		case utf8.RuneCountInString(key) > maxTagKey:
			v.add(field.TooLong(at, "", maxTagKey))
		case utf8.RuneCountInString(tags[key]) > maxTagValue:
			v.add(field.TooLong(at, "", maxTagValue))
		}
	}
}

func (v *validator) subnets(path *field.Path, ids []string) {
	if len(ids) > maxSubnets {
		v.add(field.TooMany(path, len(ids), maxSubnets))
		return
	}
	seen := map[string]bool{}
	for i, id := range ids {
		switch key := strings.ToLower(id); {
		case strings.TrimSpace(id) == "":
			v.require(path.Index(i), "name a subnet by its ID")
		case seen[key]:
			v.duplicate(path.Index(i), id, "name a subnet once")
		default:
			seen[key] = true
		}
	}
}

// match checks a match, and warns of what an empty one does.
func (v *validator) match(path *field.Path, m *cloudv1alpha1.EntityMatch, empty string) {
	switch {
	case m.MatchID != "" && m.MatchName != "":
		v.forbid(path, "matchID and matchName exclude each other; set one of them")
	case m.MatchID == "" && m.MatchName == "":
		v.warn(path, "is empty and %s", empty)
	}
}

// selectorOfCloud checks what only one of the clouds supports.
func (v *validator) selectorOfCloud(path *field.Path, in *cloudv1alpha1.VirtualMachineSelector, aws, azure bool) {
	if in.VpcMatch == nil || in.VpcMatch.MatchName == "" {
		return
	}
	name := path.Child("vpcMatch", "matchName")
	switch {
	case azure && !aws:
		v.forbid(name, "an Azure VNet is matched by matchID only")
	case aws && len(in.VMMatch) > 0:
		v.forbid(name, "with vmMatch an AWS VPC is matched by matchID only")
	case aws && in.Agented:
		v.forbid(name, "with agented an AWS VPC is matched by matchID only")
	}
}

// selectorDuplicates checks that no VM is named twice. Ids are compared without
// regard to case, as clouds do.
func (v *validator) selectorDuplicates(path *field.Path, list []cloudv1alpha1.VirtualMachineSelector) {
	// narrow is what else an entry demands: entries that differ in it are not of
	// the same VMs.
	type key struct{ kind, vpc, vm, narrow string }
	seen := map[key]bool{}
	once := func(at *field.Path, value string, k key) {
		if seen[k] {
			v.duplicate(at, value, "another entry names it; name it once")
		}
		seen[k] = true
	}
	for i := range list {
		in, at := &list[i], path.Index(i)
		vpc := ""
		if in.VpcMatch != nil {
			vpc = strings.ToLower(in.VpcMatch.MatchID)
		}
		narrow := ""
		if len(in.Tags)+len(in.Subnets) > 0 {
			narrow = fmt.Sprintf("%q %q", in.Tags, slices.Sorted(slices.Values(in.Subnets)))
		}
		if vpc != "" && len(in.VMMatch) == 0 {
			once(at.Child("vpcMatch", "matchID"), in.VpcMatch.MatchID, key{"vpc", vpc, "", narrow})
		}
		for j, m := range in.VMMatch {
			at := at.Child("vmMatch").Index(j)
			if m.MatchID != "" {
				once(at.Child("matchID"), m.MatchID, key{"vm id", "", strings.ToLower(m.MatchID), ""})
			}
			if m.MatchName != "" && (in.VpcMatch == nil || vpc != "") {
				once(at.Child("matchName"), m.MatchName, key{"vm name", vpc, m.MatchName, narrow})
			}
		}
	}
}
