package chart_test

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/deploy/chart/charttest"
)

// harmless are the fields of an account's part for a cloud that lead to nobody else: what credentials are
// used has a rule of its own, and the rest says which part of the account, and how much of it. All others
// say who is asked and trusted, and may be set by those alone who may write all accounts.
var harmless = map[string]bool{"secretRef": true, "region": true, "cloud": true, "quotas": true, "takeOver": true}

// listed is the list of fields in an expression that asks for none of them.
var listed = regexp.MustCompile(`\[([^\]]*)\]\.all\(e, !\(e in variables\.(\w+)\.value\(\)\)\)`)

// The fields of an account that say who is asked and trusted are those that the admission policy guards,
// for every cloud that the API has.
func TestEndpointsAreGuarded(t *testing.T) {
	spec, expressions := guards(t)
	parts := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[cloudv1alpha1.CloudProviderAccountSpec]()) {
		part := jsonName(f)
		if !strings.HasSuffix(part, "Config") {
			continue
		}
		parts++
		var want []string
		for _, f := range reflect.VisibleFields(f.Type.Elem()) {
			if name := jsonName(f); !harmless[name] {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		variable := ""
		for name, expression := range spec {
			if expression == "object.spec.?"+part {
				variable = name
			}
		}
		if got := expressions[variable]; variable == "" || !slices.Equal(got, want) {
			t.Errorf("the admission policy guards %q of %s, want %q", got, part, want)
		}
		if !strings.Contains(spec["secret"], "object.spec.?"+part+".secretRef") {
			t.Errorf("the admission policy does not look at %s.secretRef: %s", part, spec["secret"])
		}
	}
	if parts < 2 {
		t.Errorf("an account has parts for %d clouds", parts)
	}
}

// guards returns the variables of the policy about accounts, and which fields of each may be set by
// those alone who may write all accounts, sorted.
func guards(t *testing.T) (variables map[string]string, fields map[string][]string) {
	t.Helper()
	variables, fields = map[string]string{}, map[string][]string{}
	for _, o := range charttest.Render(t, root, "isobar", "") {
		if o.GetKind() != "ValidatingAdmissionPolicy" || o.GetName() != "isobar-account-reach" {
			continue
		}
		for _, v := range listOf(t, o, "variables") {
			variables[v["name"].(string)] = v["expression"].(string)
		}
		for _, v := range listOf(t, o, "validations") {
			text := v["expression"].(string)
			m := listed.FindStringSubmatch(text)
			if m == nil || !strings.HasPrefix(text, "variables.isEverywhere || !variables."+m[2]+".hasValue() ||") {
				continue
			}
			for name := range strings.SplitSeq(m[1], ",") {
				fields[m[2]] = append(fields[m[2]], strings.Trim(name, " '"))
			}
			slices.Sort(fields[m[2]])
		}
	}
	return variables, fields
}

// listOf returns a list of maps in the spec of an object.
func listOf(t *testing.T, o *unstructured.Unstructured, field string) []map[string]any {
	t.Helper()
	list, _, err := unstructured.NestedSlice(o.Object, "spec", field)
	if err != nil || len(list) == 0 {
		t.Fatalf("%s has no %s: %v", o.GetName(), field, err)
	}
	var out []map[string]any
	for _, x := range list {
		out = append(out, x.(map[string]any))
	}
	return out
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
