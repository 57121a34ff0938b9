package v1alpha1_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
)

// Every provider's part of the spec says all that Cloud has, and two say nothing.
func TestCloud(t *testing.T) {
	ref := &cloudv1alpha1.SecretReference{Namespace: "n", Name: "s", Key: "k"}
	spec := reflect.TypeFor[cloudv1alpha1.CloudProviderAccountSpec]()
	providers := 0
	for i := range spec.NumField() {
		name, ok := strings.CutSuffix(strings.Split(spec.Field(i).Tag.Get("json"), ",")[0], "Config")
		if !ok {
			continue
		}
		providers++
		var s cloudv1alpha1.CloudProviderAccountSpec
		part := reflect.New(spec.Field(i).Type.Elem())
		part.Elem().FieldByName("SecretRef").Set(reflect.ValueOf(ref))
		part.Elem().FieldByName("Region").Set(reflect.ValueOf([]string{"r"}))
		want := cloudv1alpha1.Cloud{Provider: name, SecretRef: ref, Regions: []string{"r"}}
		if e := part.Elem().FieldByName("Endpoint"); e.IsValid() {
			e.SetString("https://e")
			want.Endpoint = "https://e"
		}
		reflect.ValueOf(&s).Elem().Field(i).Set(part)
		got, err := s.Cloud()
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
		s.SetRegions([]string{"r", "q"})
		if got, err := s.Cloud(); err != nil || !cmp.Equal(got.Regions, []string{"r", "q"}) {
			t.Errorf("%s: after SetRegions %v, %v", name, got.Regions, err)
		}
	}
	if providers < 2 {
		t.Fatalf("%d providers", providers)
	}
	both := cloudv1alpha1.CloudProviderAccountSpec{AWSConfig: &cloudv1alpha1.AWSConfig{}, AzureConfig: &cloudv1alpha1.AzureConfig{}}
	for _, s := range []cloudv1alpha1.CloudProviderAccountSpec{{}, both} {
		if got, err := s.Cloud(); err == nil || !cmp.Equal(got, cloudv1alpha1.Cloud{}) {
			t.Errorf("Cloud() = %v, %v; want an error", got, err)
		}
	}
}
