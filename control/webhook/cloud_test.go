package webhook_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"isobar.dev/control/webhook"
)

// TestCloud asks about accounts and selectors, as reference tables of Nephe list them.
func TestCloud(t *testing.T) {
	s := newSite(t, webhook.Options{})
	ns := s.env.Namespace(t)
	secret := func(name, value string) {
		text := base64.StdEncoding.EncodeToString([]byte(value))
		u := object(t, fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":%q,"namespace":%q},"data":{"credentials":%q}}`, name, ns, text))
		if _, err := write(t.Context(), s.user, "CREATE", u); err != nil {
			t.Fatal(err)
		}
	}
	secret("good", `{"accessKeyId":"k","accessKeySecret":"s"}`)
	secret("role", `{"roleArn":"arn:aws:iam::1:role/r"}`)
	secret("half", `{"accessKeyId":"k"}`)
	secret("broken", `{`)
	account := func(name, spec string) *unstructured.Unstructured {
		spec = strings.ReplaceAll(spec, "NS", ns)
		return object(t, fmt.Sprintf(`{"apiVersion":"crd.cloud.antrea.io/v1alpha1","kind":"CloudProviderAccount","metadata":{"name":%q,"namespace":%q},"spec":%s}`, name, ns, spec))
	}
	aws := func(secret, region string) string {
		return `{"awsConfig":{"secretRef":{"name":"` + secret + `","namespace":"NS","key":"credentials"},"region":[` + region + `]}}`
	}
	const poll = `{"pollIntervalInSeconds":%d,"awsConfig":{"secretRef":{"name":"good","namespace":"NS","key":"credentials"},"region":["us-west-2"]}}`
	for name, tt := range map[string]struct {
		spec    string
		allowed bool
	}{
		"keys":             {aws("good", `"us-west-2"`), true},
		"role":             {aws("role", `"us-west-2"`), true},
		"govcloud":         {aws("good", `"us-gov-east-1"`), true}, // which upstream refuses
		"no-provider":      {`{}`, false},
		"secret-missing":   {aws("absent", `"us-west-2"`), false},
		"secret-half":      {aws("half", `"us-west-2"`), false},
		"secret-broken":    {aws("broken", `"us-west-2"`), false},
		"key-missing":      {`{"awsConfig":{"secretRef":{"name":"good","namespace":"NS","key":"other"},"region":["us-west-2"]}}`, false},
		"secretref-absent": {`{"awsConfig":{"region":["us-west-2"]}}`, false},
		"no-region":        {aws("good", ``), false},
		"bad-region":       {aws("good", `"mars"`), false},
		"polls-often":      {fmt.Sprintf(poll, 29), false},
		"polls":            {fmt.Sprintf(poll, 30), true},
	} {
		u := account(name, tt.spec)
		got, err := of(s.user, u).Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if (err == nil) != tt.allowed {
			t.Errorf("account %s: %v, want allowed %t", name, err, tt.allowed)
		}
		if err != nil || name == "polls" {
			continue
		}
		if n, _, _ := unstructured.NestedInt64(got.Object, "spec", "pollIntervalInSeconds"); n != 60 {
			t.Errorf("account %s: polls every %d s, want 60", name, n)
		}
	}

	a := account("account", aws("good", `"us-west-2"`))
	if _, err := write(t.Context(), s.user, "CREATE", a); err != nil {
		t.Fatal(err)
	}
	// An update that leaves out what creation filled in.
	if _, err := write(t.Context(), s.user, "UPDATE", a); err != nil {
		t.Errorf("update without poll interval: %v", err)
	}
	selector := func(name, account, entries string) *unstructured.Unstructured {
		return object(t, fmt.Sprintf(`{"apiVersion":"crd.cloud.antrea.io/v1alpha1","kind":"CloudEntitySelector","metadata":{"name":%q,"namespace":%q},
			"spec":{"accountName":%q,"accountNamespace":%q,"vmSelector":[%s]}}`, name, ns, account, ns, entries))
	}
	for name, tt := range map[string]struct {
		account, entries string
		allowed          bool
	}{
		"by-vpc":          {"account", `{"vpcMatch":{"matchID":"vpc-1"}}`, true},
		"by-vm":           {"account", `{"vmMatch":[{"matchName":"web"}]}`, true},
		"empty-entry":     {"account", `{}`, false},
		"id-and-name":     {"account", `{"vpcMatch":{"matchID":"vpc-1","matchName":"prod"}}`, false},
		"no-account":      {"absent", `{"vpcMatch":{"matchID":"vpc-1"}}`, false},
		"vpc-name-and-vm": {"account", `{"vpcMatch":{"matchName":"prod"},"vmMatch":[{"matchID":"i-1"}]}`, false},
		"agented-by-name": {"account", `{"vpcMatch":{"matchName":"prod"},"agented":true}`, false},
		"vpc-twice":       {"account", `{"vpcMatch":{"matchID":"vpc-1"}},{"vpcMatch":{"matchID":"vpc-1"}}`, false},
		"vm-twice":        {"account", `{"vmMatch":[{"matchID":"i-1"},{"matchID":"i-1"}]}`, false},
	} {
		u := selector(name, tt.account, tt.entries)
		if _, err := of(s.user, u).Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); (err == nil) != tt.allowed {
			t.Errorf("selector %s: %v, want allowed %t", name, err, tt.allowed)
		}
	}
	u := selector("moves", "account", `{"vpcMatch":{"matchID":"vpc-1"}}`)
	if _, err := write(t.Context(), s.user, "CREATE", u); err != nil {
		t.Fatal(err)
	}
	if _, err := write(t.Context(), s.user, "CREATE", account("other", aws("good", `"us-west-2"`))); err != nil {
		t.Fatal(err)
	}
	if _, err := write(t.Context(), s.user, "UPDATE", selector("moves", "other", `{"vpcMatch":{"matchID":"vpc-1"}}`)); err == nil {
		t.Error("a selector moved to another account")
	}
	if _, err := write(context.Background(), s.user, "DELETE", u); err != nil {
		t.Errorf("delete a selector: %v", err)
	}
}
