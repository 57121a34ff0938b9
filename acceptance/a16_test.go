package acceptance_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// row is a write that admission decides.
type row struct {
	name string
	text string // a spec, in which $NS is the namespace
	old  string // the spec that it updates; empty to create
	want string // part of the refusal; empty when it is admitted
}

// Every check of Nephe's webhooks, and those where it panicked or let pass what it should
// not: as a dry run of the server, which decides alike and writes nothing.
func TestA16_Admission(t *testing.T) {
	w := newWorld(t, estate(network{id: "vpc-1"}))
	for name, value := range map[string]string{
		"keys": `{"accessKeyId": "k", "accessKeySecret": "s"}`, "token": `{"accessKeyId": "k", "accessKeySecret": "s", "sessionToken": "t"}`,
		"role": `{"roleArn": "arn:aws:iam::1:role/r", "externalId": "x"}`, "half": `{"accessKeyId": "k"}`, "empty": `{}`, "text": `hush`,
		"azure":     `{"subscriptionId": "a", "tenantId": "b", "clientId": "c", "clientKey": "d"}`,
		"azure-sub": `{"subscriptionId": " ", "tenantId": "b", "clientId": "c", "clientKey": "d"}`, "azure-tenant": `{"subscriptionId": "a", "clientId": "c", "clientKey": "d"}`,
		"azure-client": `{"subscriptionId": "a", "tenantId": "b", "clientKey": "d"}`, "azure-key": `{"subscriptionId": "a", "tenantId": "b", "clientId": "c"}`,
	} {
		w.apply(fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s}, data: {c: %s}}", name, base64.StdEncoding.EncodeToString([]byte(value))))
	}
	ref := func(name string) string { return "secretRef: {name: " + name + ", namespace: $NS, key: c}" }
	aws := func(secret, more string) string {
		return "{awsConfig: {region: [us-west-2], " + ref(secret) + "}" + more + "}"
	}
	regions := func(list string) string { return "{awsConfig: {region: [" + list + "], " + ref("keys") + "}}" }
	azure := func(secret, region string) string {
		return "{azureConfig: {region: [" + region + "], " + ref(secret) + "}}"
	}
	w.decide("CloudProviderAccount", []row{
		{name: "keys", text: aws("keys", "")},
		{name: "session-token", text: aws("token", "")},
		{name: "role-alone", text: aws("role", "")},
		{name: "azure", text: azure("azure", "westus2")},
		{name: "no-provider", text: "{}", want: "awsConfig"},
		{name: "both-providers", text: "{awsConfig: {region: [us-west-2], " + ref("keys") + "}, azureConfig: {region: [westus2], " + ref("azure") + "}}", want: "azureConfig"},
		{name: "provider-switched", old: aws("keys", ""), text: azure("azure", "westus2"), want: "delete it and make another"},
		{name: "secret-missing", text: aws("absent", ""), want: "create the Secret first"},
		{name: "secret-no-json", text: aws("text", ""), want: "is not a JSON object"},
		{name: "aws-half-a-key", text: aws("half", ""), want: "set roleArn, or accessKeyId and accessKeySecret"},
		{name: "aws-no-key", text: aws("empty", ""), want: "set roleArn, or accessKeyId and accessKeySecret"},
		{name: "aws-no-region", text: regions(""), want: "awsConfig.region"},
		{name: "aws-not-a-region", text: regions("us-west-2, mars"), want: "awsConfig.region[1]"},
		{name: "aws-region-in-capitals", text: regions("US-West-2")},
		{name: "aws-china", text: regions("cn-north-1, cn-northwest-1")},
		{name: "aws-us-gov", text: regions("us-gov-east-1, us-gov-west-1")},
		{name: "aws-iso", text: regions("us-iso-east-1, us-isob-east-1, eu-isoe-west-1, us-isof-south-1")},
		{name: "aws-eusc", text: regions("eusc-de-east-1")},
		{name: "azure-no-subscription", text: azure("azure-sub", "westus2"), want: "set subscriptionId"},
		{name: "azure-no-tenant", text: azure("azure-tenant", "westus2"), want: "set tenantId"},
		{name: "azure-no-client", text: azure("azure-client", "westus2"), want: "set clientId"},
		{name: "azure-no-key", text: azure("azure-key", "westus2"), want: "set clientKey, sessionToken or identity"},
		{name: "azure-no-region", text: azure("azure", ""), want: "azureConfig.region"},
		{name: "azure-blank-region", text: azure("azure", "' '"), want: "azureConfig.region[0]"},
		{name: "polls-often", text: aws("keys", ", pollIntervalInSeconds: 29"), want: "pollIntervalInSeconds"},
		{name: "polls", text: aws("keys", ", pollIntervalInSeconds: 30")},
		{name: "update-polls-often", old: aws("keys", ""), text: aws("keys", ", pollIntervalInSeconds: 1"), want: "pollIntervalInSeconds"},
		// What made Nephe's panic.
		{name: "update-without-interval", old: aws("keys", ", pollIntervalInSeconds: 45"), text: aws("role", "")},
		{name: "no-secretref", text: "{awsConfig: {region: [us-west-2]}}", want: "awsConfig.secretRef"},
		{name: "no-such-key", text: "{awsConfig: {region: [us-west-2], secretRef: {name: keys, namespace: $NS, key: other}}}", want: "the Secret has no such key"},
	})
	w.warnings()
	w.apply("{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudProviderAccount, metadata: {name: aws}, spec: " + aws("keys", "") + "}")
	if got := w.warnings(); len(got) != 0 {
		t.Errorf("a first account was made with the warnings %q", got)
	}
	w.apply("{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudProviderAccount, metadata: {name: azure}, spec: " + azure("azure", "westus2") + "}")
	w.apply("{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudProviderAccount, metadata: {name: again}, spec: " + aws("keys", "") + "}")
	if got := strings.Join(w.warnings(), "\n"); !strings.Contains(got, w.ns+"/aws has the same credentials and region us-west-2") {
		t.Errorf("a second account of the same cloud was made with the warnings %q", got)
	}

	of := func(account, entries string) string {
		return "{accountName: " + account + ", accountNamespace: $NS, vmSelector: [" + entries + "]}"
	}
	const vpc1 = "{vpcMatch: {matchID: vpc-1}}"
	w.decide("CloudEntitySelector", []row{
		{name: "vpc", text: of("aws", vpc1)},
		{name: "everything", text: of("aws", "{vpcMatch: {}}")},
		{name: "tags-and-subnets", text: of("aws", "{tags: {Role: web}, subnets: [subnet-1]}")},
		{name: "empty-entry", text: of("aws", "{}"), want: "vmSelector[0]"},
		{name: "vpc-id-and-name", text: of("aws", "{vpcMatch: {matchID: vpc-1, matchName: prod}}"), want: "exclude each other"},
		{name: "vm-id-and-name", text: of("aws", "{vmMatch: [{matchID: i-1, matchName: web}]}"), want: "exclude each other"},
		{name: "no-account", text: of("absent", vpc1), want: "create the CloudProviderAccount first"},
		{name: "account-changes", old: of("aws", vpc1), text: of("azure", vpc1), want: "cannot change"},
		{name: "namespace-changes", old: of("aws", vpc1), text: "{accountName: aws, accountNamespace: default, vmSelector: [" + vpc1 + "]}", want: "cannot change"},
		{name: "azure-vpc-name", text: of("azure", "{vpcMatch: {matchName: prod}}"), want: "matchID only"},
		{name: "aws-vpc-name", text: of("aws", "{vpcMatch: {matchName: prod}}")},
		{name: "aws-vpc-name-and-vm", text: of("aws", "{vpcMatch: {matchName: prod}, vmMatch: [{matchID: i-1}]}"), want: "matchID only"},
		{name: "aws-vpc-name-agented", text: of("aws", "{vpcMatch: {matchName: prod}, agented: true}"), want: "matchID only"},
		{name: "vpc-twice", text: of("aws", vpc1+", "+vpc1), want: "vmSelector[1].vpcMatch.matchID"},
		{name: "vm-id-twice", text: of("aws", "{vmMatch: [{matchID: i-1}]}, {vpcMatch: {matchID: vpc-1}, vmMatch: [{matchID: I-1}]}"), want: "vmSelector[1].vmMatch[0].matchID"},
		{name: "vm-name-twice", text: of("aws", "{vmMatch: [{matchName: web}, {matchName: web}]}"), want: "vmMatch[1].matchName"},
		{name: "vpc-and-vm-id-twice", text: of("aws", "{vpcMatch: {matchID: vpc-1}, vmMatch: [{matchID: i-1}, {matchID: i-1}]}"), want: "vmMatch[1].matchID"},
		{name: "vpc-and-vm-name-twice", text: of("aws", "{vpcMatch: {matchID: vpc-1}, vmMatch: [{matchName: web}]}, {vpcMatch: {matchID: vpc-1}, vmMatch: [{matchName: web}]}"), want: "vmSelector[1].vmMatch[0].matchName"},
		{name: "isolation", text: of("aws", "{vpcMatch: {matchID: vpc-1}, isolation: Some}"), want: "isolation"},
	})
	w.importOf("first", "aws", "- vpcMatch: {matchID: vpc-1}")
	w.warnings()
	w.importOf("second", "aws", "- vmMatch: [{matchID: i-1}]\n- vpcMatch: {matchID: vpc-1}\n  tags: {Role: web}")
	if got := strings.Join(w.warnings(), "\n"); !strings.Contains(got, w.ns+"/first selects too") {
		t.Errorf("a selector of what another one selects was made with the warnings %q", got)
	}
	w.removeNamed(selectors, "first") // deletions are never refused, those of an account neither
	w.removeNamed(accounts, "azure")
}

// decide asks for each write of a row as a dry run.
func (w *world) decide(kind string, rows []row) {
	w.t.Helper()
	for _, r := range rows {
		object := func(spec string) *unstructured.Unstructured {
			return w.objects(fmt.Sprintf("{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: %s, metadata: {name: %s}, spec: %s}", kind, r.name, spec))[0]
		}
		o := object(r.text)
		resource := w.resource(o)
		var err error
		update := func(dry ...string) error {
			return patiently(func() error {
				_, err := resource.Update(w.t.Context(), o, metav1.UpdateOptions{DryRun: dry})
				return err
			})
		}
		if r.old == "" {
			err = patiently(func() error {
				_, err := resource.Create(w.t.Context(), o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				return err
			})
		} else {
			var old *unstructured.Unstructured
			err = patiently(func() (err error) {
				old, err = resource.Create(w.t.Context(), object(r.old), metav1.CreateOptions{})
				return err
			})
			if err != nil {
				w.t.Fatalf("%s %s: %v", kind, r.name, err)
			}
			o.SetResourceVersion(old.GetResourceVersion())
			if err = update(metav1.DryRunAll); err == nil {
				err = update()
			}
			if err := resource.Delete(w.t.Context(), r.name, metav1.DeleteOptions{}); err != nil {
				w.t.Fatal(err)
			}
		}
		switch {
		case r.want == "" && err != nil:
			w.t.Errorf("%s %s: %v", kind, r.name, err)
		case r.want != "" && (err == nil || !strings.Contains(err.Error(), r.want) || strings.Contains(err.Error(), "hush")):
			w.t.Errorf("%s %s: %v; want a refusal with %q", kind, r.name, err, r.want)
		}
		if _, err := resource.Get(w.t.Context(), r.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			w.t.Errorf("%s %s: after a dry run there is one: %v", kind, r.name, err)
		}
	}
}
