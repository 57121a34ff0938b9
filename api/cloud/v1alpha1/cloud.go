package v1alpha1

import (
	"errors"
	"strings"
)

// Cloud is what an account says whatever its provider is. What else a provider
// needs is for those alone who make an account of it.
//
// +kubebuilder:object:generate=false
type Cloud struct {
	// Provider is the name of the provider's part of the spec, less "Config".
	Provider  string
	SecretRef *SecretReference
	Regions   []string
	Endpoint  string // of the provider's API, where it is not the provider's own
}

// Cloud returns what the provider's part of the spec says. It returns the zero
// Cloud and an error unless there is exactly one.
func (s *CloudProviderAccountSpec) Cloud() (Cloud, error) {
	var all []Cloud
	if c := s.AWSConfig; c != nil {
		all = append(all, Cloud{"aws", c.SecretRef, c.Region, c.Endpoint})
	}
	if c := s.AzureConfig; c != nil {
		all = append(all, Cloud{"azure", c.SecretRef, azureRegions(c.Region), c.Endpoint})
	}
	if len(all) != 1 {
		return Cloud{}, errors.New("set exactly one of awsConfig and azureConfig")
	}
	return all[0], nil
}

// azureRegions returns names of regions as Azure's API has them: people write them with
// blanks and capitals too.
func azureRegions(names []string) []string {
	var out []string
	for _, name := range names {
		out = append(out, strings.ToLower(strings.ReplaceAll(name, " ", "")))
	}
	return out
}

// SetRegions replaces the regions that the spec names.
func (s *CloudProviderAccountSpec) SetRegions(regions []string) {
	if s.AWSConfig != nil {
		s.AWSConfig.Region = regions
	}
	if s.AzureConfig != nil {
		s.AzureConfig.Region = regions
	}
}
