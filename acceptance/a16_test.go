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

// accountRows are the checks of accounts that do not depend on the provider: of returns a
// spec with the secretRef of a Secret, and what else is given.
func accountRows(of func(secretRef, more string) string) []row {
	keys := of(secretRef("keys"), "")
	return []row{
		{name: "keys", text: keys},
		{name: "secret-missing", text: of(secretRef("absent"), ""), want: "create the Secret first"},
		{name: "secret-no-json", text: of(secretRef("text"), ""), want: "is not a JSON object"},
		{name: "polls-often", text: of(secretRef("keys"), ", pollIntervalInSeconds: 29"), want: "pollIntervalInSeconds"},
		{name: "polls", text: of(secretRef("keys"), ", pollIntervalInSeconds: 30")},
		{name: "update-polls-often", old: keys, text: of(secretRef("keys"), ", pollIntervalInSeconds: 1"), want: "pollIntervalInSeconds"},
		{name: "no-provider", text: "{}", want: "awsConfig"},
		{name: "update-to-no-provider", old: keys, text: "{}", want: "awsConfig"},
		// What made Nephe's panic.
		{name: "update-without-interval", old: of(secretRef("keys"), ", pollIntervalInSeconds: 45"), text: of(secretRef("other"), "")},
		{name: "no-secretref", text: of("", ""), want: "Config.secretRef"},
		{name: "no-such-key", text: of("secretRef: {name: keys, namespace: $NS, key: other}", ""), want: "the Secret has no such key"},
	}
}

func secretRef(name string) string { return "secretRef: {name: " + name + ", namespace: $NS, key: c}" }

// selectorRows are the checks of selectors that do not depend on the provider: of an
// account, next to which there is the account "other", with a network and a VM as that
// provider calls them.
func selectorRows(account, vpc, vm string) []row {
	of := func(entries string) string { return selectorOf(account, entries) }
	inVPC, isVM := "vpcMatch: {matchID: "+vpc+"}", "{matchID: "+vm+"}"
	one := "{" + inVPC + "}"
	return []row{
		{name: "vpc", text: of(one)},
		{name: "everything", text: of("{vpcMatch: {}}")},
		{name: "same-name-in-two-vpcs", text: of("{" + inVPC + ", vmMatch: [{matchName: web}]}, {vpcMatch: {matchID: " + vpc + "2}, vmMatch: [{matchName: web}]}")},
		{name: "empty-entry", text: of("{}"), want: "vmSelector[0]"},
		{name: "vpc-id-and-name", text: of("{vpcMatch: {matchID: " + vpc + ", matchName: prod}}"), want: "exclude each other"},
		{name: "vm-id-and-name", text: of("{vmMatch: [{matchID: " + vm + ", matchName: web}]}"), want: "exclude each other"},
		{name: "no-account", text: selectorOf("absent", one), want: "create the CloudProviderAccount first"},
		{name: "account-changes", old: of(one), text: selectorOf("other", one), want: "cannot change"},
		{name: "namespace-changes", old: of(one), text: "{accountName: " + account + ", accountNamespace: default, vmSelector: [" + one + "]}", want: "cannot change"},
		{name: "vpc-twice", text: of(one + ", {vpcMatch: {matchID: " + strings.ToUpper(vpc) + "}}"), want: "vmSelector[1].vpcMatch.matchID"},
		{name: "vm-id-twice", text: of("{vmMatch: [" + isVM + "]}, {" + inVPC + ", vmMatch: [{matchID: " + strings.ToUpper(vm) + "}]}"), want: "vmSelector[1].vmMatch[0].matchID"},
		{name: "vm-name-twice", text: of("{vmMatch: [{matchName: web}, {matchName: web}]}"), want: "vmMatch[1].matchName"},
		{name: "vpc-and-vm-id-twice", text: of("{" + inVPC + ", vmMatch: [" + isVM + ", " + isVM + "]}"), want: "vmMatch[1].matchID"},
		{name: "vpc-and-vm-name-twice", text: of("{" + inVPC + ", vmMatch: [{matchName: web}]}, {" + inVPC + ", vmMatch: [{matchName: web}]}"), want: "vmSelector[1].vmMatch[0].matchName"},
		{name: "isolation", text: of("{" + inVPC + ", isolation: Some}"), want: "isolation"},
	}
}

func selectorOf(account, entries string) string {
	return "{accountName: " + account + ", accountNamespace: $NS, vmSelector: [" + entries + "]}"
}

// secretsOf writes Secrets, each with a document under the key "c".
func (w *world) secretsOf(documents map[string]string) {
	w.t.Helper()
	for name, value := range documents {
		w.apply(fmt.Sprintf("{apiVersion: v1, kind: Secret, metadata: {name: %s}, data: {c: %s}}", name, base64.StdEncoding.EncodeToString([]byte(value))))
	}
}

// warnsOfSeconds checks that a second account of the same cloud, and a selector of what
// another one selects, are made with warnings, and that deletions are never refused.
func (w *world) warnsOfSeconds(account, spec, same, vpc string) {
	w.t.Helper()
	make := func(name, spec string) {
		w.t.Helper()
		w.apply("{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudProviderAccount, metadata: {name: " + name + "}, spec: " + spec + "}")
	}
	w.warnings()
	make(account, spec)
	if got := w.warnings(); len(got) != 0 {
		w.t.Errorf("a first account was made with the warnings %q", got)
	}
	make("other", spec)
	if got := strings.Join(w.warnings(), "\n"); !strings.Contains(got, w.ns+"/"+account+" has the same "+same) {
		w.t.Errorf("a second account of the same cloud was made with the warnings %q", got)
	}
	w.importOf("first", account, "- vpcMatch: {matchID: "+vpc+"}")
	w.warnings()
	w.importOf("second", account, "- vmMatch: [{matchID: vm-1}]\n- vpcMatch: {matchID: "+vpc+"}\n  tags: {Role: web}")
	if got := strings.Join(w.warnings(), "\n"); !strings.Contains(got, w.ns+"/first selects too") {
		w.t.Errorf("a selector of what another one selects was made with the warnings %q", got)
	}
	w.removeNamed(selectors, "first")
	w.removeNamed(selectors, "second")
}

// Every check of Nephe's webhooks, and those where it panicked or let pass what it should
// not: as a dry run of the server, which decides alike and writes nothing.
func TestA16_Admission(t *testing.T) {
	w := newWorld(t, estate(network{id: "vpc-1"}))
	w.secretsOf(map[string]string{
		"keys": `{"accessKeyId": "k", "accessKeySecret": "s"}`, "token": `{"accessKeyId": "k", "accessKeySecret": "s", "sessionToken": "t"}`,
		"other": `{"roleArn": "arn:aws:iam::1:role/r", "externalId": "x"}`, "half": `{"accessKeyId": "k"}`, "empty": `{}`, "text": `hush`,
		"azure": `{"subscriptionId": "a", "tenantId": "b", "clientId": "c", "clientKey": "d"}`,
	})
	of := func(secretRef, more string) string {
		return "{awsConfig: {region: [us-west-2], " + secretRef + "}" + more + "}"
	}
	aws := func(secret string) string { return of(secretRef(secret), "") }
	regions := func(list string) string {
		return "{awsConfig: {region: [" + list + "], " + secretRef("keys") + "}}"
	}
	w.decide("CloudProviderAccount", append(accountRows(of), []row{
		{name: "session-token", text: aws("token")},
		{name: "role-alone", text: aws("other")},
		{name: "both-providers", text: "{awsConfig: {region: [us-west-2], " + secretRef("keys") + "}, azureConfig: {region: [westus2], " + secretRef("azure") + "}}", want: "azureConfig"},
		{name: "provider-switched", old: aws("keys"), text: "{azureConfig: {region: [westus2], " + secretRef("azure") + "}}", want: "delete it and make another"},
		{name: "aws-half-a-key", text: aws("half"), want: "set roleArn, or accessKeyId and accessKeySecret"},
		{name: "aws-no-key", text: aws("empty"), want: "set roleArn, or accessKeyId and accessKeySecret"},
		{name: "aws-no-region", text: regions(""), want: "awsConfig.region"},
		{name: "aws-not-a-region", text: regions("us-west-2, mars"), want: "awsConfig.region[1]"},
		{name: "aws-region-in-capitals", text: regions("US-West-2")},
		{name: "aws-china", text: regions("cn-north-1, cn-northwest-1")},
		{name: "aws-us-gov", text: regions("us-gov-east-1, us-gov-west-1")},
		{name: "aws-iso", text: regions("us-iso-east-1, us-isob-east-1, eu-isoe-west-1, us-isof-south-1")},
		{name: "aws-eusc", text: regions("eusc-de-east-1")},
	}...))
	w.warnsOfSeconds("aws", aws("keys"), "credentials and region us-west-2", "vpc-1")
	w.decide("CloudEntitySelector", append(selectorRows("aws", "vpc-1", "i-1"), []row{
		{name: "aws-vpc-name", text: selectorOf("aws", "{vpcMatch: {matchName: prod}}")},
		{name: "aws-vpc-name-and-vm", text: selectorOf("aws", "{vpcMatch: {matchName: prod}, vmMatch: [{matchID: i-1}]}"), want: "matchID only"},
		{name: "aws-vpc-name-agented", text: selectorOf("aws", "{vpcMatch: {matchName: prod}, agented: true}"), want: "matchID only"},
	}...))
}

// The same of Azure.
func TestA16_AzureAdmission(t *testing.T) {
	n := vnet{name: "net"}
	w := newAzureWorld(t, n)
	w.secretsOf(map[string]string{
		"keys": `{"subscriptionId": "a", "tenantId": "b", "clientId": "c", "clientKey": "d"}`, "other": `{"subscriptionId": "a", "tenantId": "b", "clientId": "c", "sessionToken": "t"}`,
		"managed": `{"subscriptionId": "a", "identity": "ManagedIdentity"}`, "text": `hush`, "empty": `{}`,
		"blank-subscription": `{"subscriptionId": " ", "tenantId": "b", "clientId": "c", "clientKey": "d"}`, "no-tenant": `{"subscriptionId": "a", "clientId": "c", "clientKey": "d"}`,
		"blank-tenant": `{"subscriptionId": "a", "tenantId": "\t", "clientId": "c", "clientKey": "d"}`, "no-client": `{"subscriptionId": "a", "tenantId": "b", "clientKey": "d"}`,
		"blank-client": `{"subscriptionId": "a", "tenantId": "b", "clientId": " ", "clientKey": "d"}`, "no-key": `{"subscriptionId": "a", "tenantId": "b", "clientId": "c"}`,
		"blank-keys": `{"subscriptionId": "a", "tenantId": "b", "clientId": "c", "clientKey": " ", "sessionToken": ""}`,
		"aws":        `{"accessKeyId": "k", "accessKeySecret": "s"}`,
	})
	of := func(secretRef, more string) string {
		return "{azureConfig: {region: [westus2], " + secretRef + "}" + more + "}"
	}
	azure := func(secret string) string { return of(secretRef(secret), "") }
	regions := func(list string) string {
		return "{azureConfig: {region: [" + list + "], " + secretRef("keys") + "}}"
	}
	w.decide("CloudProviderAccount", append(accountRows(of), []row{
		{name: "token-in-place-of-a-key", text: azure("other")},
		{name: "identity-in-place-of-all", text: azure("managed")},
		{name: "both-providers", old: azure("keys"), text: "{azureConfig: {region: [westus2], " + secretRef("keys") + "}, awsConfig: {region: [us-west-2], " + secretRef("aws") + "}}", want: "set exactly one of awsConfig and azureConfig"},
		{name: "provider-switched", old: azure("keys"), text: "{awsConfig: {region: [us-west-2], " + secretRef("aws") + "}}", want: "delete it and make another"},
		{name: "secret-of-aws", text: azure("aws"), want: "set subscriptionId"},
		{name: "no-subscription", text: azure("empty"), want: "set subscriptionId"},
		{name: "blank-subscription", text: azure("blank-subscription"), want: "set subscriptionId"},
		{name: "no-tenant", text: azure("no-tenant"), want: "set tenantId"},
		{name: "blank-tenant", text: azure("blank-tenant"), want: "set tenantId"},
		{name: "no-client", text: azure("no-client"), want: "set clientId"},
		{name: "blank-client", text: azure("blank-client"), want: "set clientId"},
		{name: "no-key", text: azure("no-key"), want: "set clientKey, sessionToken or identity"},
		{name: "blank-keys", text: azure("blank-keys"), want: "set clientKey, sessionToken or identity"},
		{name: "update-to-blank-keys", old: azure("keys"), text: azure("blank-keys"), want: "set clientKey, sessionToken or identity"},
		{name: "regions-by-name-and-title", text: regions("westus2, West Europe")},
		{name: "no-region", text: regions(""), want: "azureConfig.region"},
		{name: "blank-region", text: regions("westus2, ' '"), want: "azureConfig.region[1]"},
	}...))
	w.warnsOfSeconds("azure", azure("keys"), "subscription and region westus2", n.self())
	w.decide("CloudEntitySelector", append(selectorRows("azure", n.self(), n.vm("web")), []row{
		{name: "vpc-name", text: selectorOf("azure", "{vpcMatch: {matchName: net}}"), want: "matchID only"},
		{name: "update-to-vpc-name", old: selectorOf("azure", "{vpcMatch: {matchID: "+n.self()+"}}"), text: selectorOf("azure", "{vpcMatch: {matchName: net}}"), want: "matchID only"},
		{name: "vpc-name-and-vm", text: selectorOf("azure", "{vpcMatch: {matchName: net}, vmMatch: [{matchName: web}]}"), want: "matchID only"},
		{name: "vpc-and-agented", text: selectorOf("azure", "{vpcMatch: {matchID: "+n.self()+"}, agented: true}")},
	}...))
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
