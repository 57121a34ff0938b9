package validate_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"isobar.dev/api/validate"
)

func cloudWorld(t *testing.T) world {
	t.Helper()
	const account = "apiVersion: crd.cloud.antrea.io/v1alpha1\nkind: CloudProviderAccount\n"
	return world{
		objects: []runtime.Object{
			read(t, account+"metadata: {name: aws, namespace: ns}\nspec: {awsConfig: {}}"),
			read(t, account+"metadata: {name: azure, namespace: ns}\nspec: {azureConfig: {}}"),
		},
		secrets: map[string]map[string][]byte{"ns/s": {
			"aws":       []byte(`{"accessKeyId":"AKIA","accessKeySecret":"hush"}`),
			"role":      []byte(`{"roleArn":"arn:aws:iam::1:role/x"}`),
			"half":      []byte(`{"accessKeyId":"AKIA"}`),
			"text":      []byte(`hush`),
			"list":      []byte(`["hush"]`),
			"number":    []byte(`{"accessKeyId": 5}`),
			"azure":     []byte(`{"subscriptionId":"a","clientId":"b","tenantId":"c","clientKey":"d"}`),
			"blank":     []byte(`{"subscriptionId":" ","clientId":"b","tenantId":"c","clientKey":"d"}`),
			"sibling":   []byte(`{"subscriptionId":"A","clientId":"x","tenantId":"c","sessionToken":"hush"}`),
			"elsewhere": []byte(`{"subscriptionId":"z","clientId":"b","tenantId":"c","clientKey":"d"}`),
			"managed":   []byte(`{"subscriptionId":"a","identity":"ManagedIdentity"}`),
			"other":     []byte(`{"subscriptionId":"a","identity":"hush"}`),
			"both":      []byte(`{"subscriptionId":"a","identity":"WorkloadIdentity","clientKey":"hush"}`),
			"keyless":   []byte(`{"subscriptionId":"a","clientId":"b","tenantId":"c"}`),
		}},
	}
}

func TestAccounts(t *testing.T) {
	w := cloudWorld(t)
	secret := func(key string) string { return "secretRef: {name: s, namespace: ns, key: " + key + "}" }
	for _, tt := range []struct{ spec, want string }{
		{`{pollIntervalInSeconds: 30, awsConfig: {region: [us-west-2], ` + secret("aws") + `}}`, ""},
		{`{awsConfig: {region: [us-west-2], ` + secret("role") + `}}`, ""}, // no poll interval
		{`{}`, "spec"},
		{`{awsConfig: {}, azureConfig: {}}`, "spec.azureConfig"},
		{`{pollIntervalInSeconds: 29, awsConfig: {region: [us-west-2], ` + secret("aws") + `}}`, "spec.pollIntervalInSeconds"},
		{`{deletionPolicy: Forget, awsConfig: {region: [us-west-2], ` + secret("aws") + `}}`, "spec.deletionPolicy"},
		{`{awsConfig: {region: [us-west-2]}}`, "spec.awsConfig.secretRef"},
		{`{awsConfig: {region: [us-west-2], secretRef: {name: s}}}`, "spec.awsConfig.secretRef.namespace spec.awsConfig.secretRef.key"},
		{`{awsConfig: {region: [us-west-2], secretRef: {name: none, namespace: ns, key: k}}}`, "spec.awsConfig.secretRef"},
		{`{awsConfig: {region: [us-west-2], secretRef: {name: unreadable, namespace: ns, key: k}}}`, "spec.awsConfig.secretRef"},
		{`{awsConfig: {region: [us-west-2], ` + secret("nokey") + `}}`, "spec.awsConfig.secretRef.key"},
		{`{awsConfig: {region: [us-west-2], ` + secret("half") + `}}`, "spec.awsConfig.secretRef"},
		{`{awsConfig: {region: [us-west-2], ` + secret("text") + `}}`, "spec.awsConfig.secretRef"},
		{`{awsConfig: {region: [us-west-2], ` + secret("list") + `}}`, "spec.awsConfig.secretRef"},
		{`{awsConfig: {region: [us-west-2], ` + secret("number") + `}}`, "spec.awsConfig.secretRef"},
		{`{awsConfig: {` + secret("aws") + `}}`, "spec.awsConfig.region"},
		{`{awsConfig: {region: [US-West-2, us-gov-east-1, cn-northwest-1, us-iso-west-1, us-isob-east-1, eu-isoe-west-1, eusc-de-east-1, ap-southeast-7, mx-central-1], ` + secret("aws") + `}}`, ""},
		{`{awsConfig: {region: [us-west-2, "", westus2, "us-west-2 ", us_west_2], ` + secret("aws") + `}}`,
			"spec.awsConfig.region[1] spec.awsConfig.region[2] spec.awsConfig.region[3] spec.awsConfig.region[4]"},
		{`{awsConfig: {region: [us-west-2], endpoint: "http://localhost:4566", stsEndpoint: "https://sts", ` + secret("aws") + `}}`, ""},
		{`{awsConfig: {region: [us-west-2], endpoint: "localhost:4566", stsEndpoint: "ftp://x", ` + secret("aws") + `}}`, "spec.awsConfig.endpoint spec.awsConfig.stsEndpoint"},
		{`{awsConfig: {region: [us-west-2], quotas: {}, ` + secret("aws") + `}}`, ""},
		{`{awsConfig: {region: [us-west-2], quotas: {rulesPerSecurityGroup: 200, securityGroupsPerInterface: 5, securityGroupsPerRegion: 10000, prefixListsPerRegion: 0, entriesPerPrefixList: 1000}, ` + secret("aws") + `}}`, ""},
		{`{awsConfig: {region: [us-west-2], quotas: {rulesPerSecurityGroup: 201}, ` + secret("aws") + `}}`, "spec.awsConfig.quotas"}, // with the default of 5 groups
		{`{awsConfig: {region: [us-west-2], quotas: {rulesPerSecurityGroup: 0, securityGroupsPerInterface: 17, securityGroupsPerRegion: 0, prefixListsPerRegion: -1, entriesPerPrefixList: 1001}, ` + secret("aws") + `}}`,
			"spec.awsConfig.quotas.rulesPerSecurityGroup spec.awsConfig.quotas.securityGroupsPerInterface spec.awsConfig.quotas.securityGroupsPerRegion spec.awsConfig.quotas.prefixListsPerRegion spec.awsConfig.quotas.entriesPerPrefixList"},
		{`{azureConfig: {region: [westus2, "West US 2"], ` + secret("azure") + `}}`, ""},
		{`{azureConfig: {region: [westus2], quotas: {rulesPerNetworkSecurityGroup: 500, addressesPerNetworkSecurityGroup: 4000, networkSecurityGroupsPerRegion: 100}, ` + secret("azure") + `}}`, ""},
		{`{azureConfig: {region: [westus2], quotas: {rulesPerNetworkSecurityGroup: 1001, addressesPerNetworkSecurityGroup: 0, networkSecurityGroupsPerRegion: 0}, ` + secret("azure") + `}}`,
			"spec.azureConfig.quotas.rulesPerNetworkSecurityGroup spec.azureConfig.quotas.addressesPerNetworkSecurityGroup spec.azureConfig.quotas.networkSecurityGroupsPerRegion"},
		{`{azureConfig: {region: [" "], ` + secret("azure") + `}}`, "spec.azureConfig.region[0]"},
		{`{azureConfig: {region: [], ` + secret("blank") + `}}`, "spec.azureConfig.region spec.azureConfig.secretRef"},
		{`{azureConfig: {region: [westus2], ` + secret("keyless") + `}}`, "spec.azureConfig.secretRef"},
		{`{azureConfig: {region: [westus2]}}`, "spec.azureConfig.secretRef"},
		{`{azureConfig: {region: [westus2], cloud: AzureChina, endpoint: "http://127.0.0.1:1/", authorityEndpoint: "https://localhost:1/", ` + secret("managed") + `}}`, ""},
		{`{azureConfig: {region: [westus2], cloud: Azure, endpoint: "http://example.com", authorityEndpoint: "http://127.0.0.1", caBundle: eA==, ` + secret("azure") + `}}`,
			"spec.azureConfig.cloud spec.azureConfig.endpoint spec.azureConfig.authorityEndpoint spec.azureConfig.caBundle"},
		{`{azureConfig: {region: [westus2], endpoint: "https://u:p@example.com", ` + secret("other") + `}}`, "spec.azureConfig.endpoint spec.azureConfig.secretRef"},
		{`{azureConfig: {region: [westus2], ` + secret("both") + `}}`, "spec.azureConfig.secretRef"},
	} {
		a := read(t, "{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudProviderAccount, spec: "+tt.spec+"}")
		for _, op := range []validate.Operation{validate.Create, validate.Update} {
			errs, _ := validate.Validate(validate.Request{Operation: op, Object: a}, w)
			check(t, string(op)+" "+tt.spec, errs, tt.want)
			if text := errs.ToAggregate(); text != nil && strings.Contains(text.Error(), "hush") {
				t.Errorf("%s: quotes the secret: %v", tt.spec, text)
			}
		}
	}
}

func TestSelectors(t *testing.T) {
	w := cloudWorld(t)
	for _, tt := range []struct{ account, entries, want string }{
		{"aws", `[{vpcMatch: {matchID: vpc-1}}]`, ""},
		{"none", `[{vpcMatch: {matchID: vpc-1}}]`, "accountName"},
		{"aws", `[{agented: true}]`, "vmSelector[0]"},
		{"aws", `[{vpcMatch: {}}]`, ""}, // a warning
		{"aws", `[{vmMatch: [{}]}]`, ""},
		{"aws", `[{vpcMatch: {matchID: a, matchName: b}}]`, "vmSelector[0].vpcMatch"},
		{"aws", `[{vmMatch: [{matchID: a}, {matchID: a2, matchName: b}]}]`, "vmSelector[0].vmMatch[1]"},
		{"aws", `[{vpcMatch: {matchName: prod}}]`, ""},
		{"aws", `[{vpcMatch: {matchName: prod}, vmMatch: [{matchID: i-1}]}]`, "vmSelector[0].vpcMatch.matchName"},
		{"aws", `[{vpcMatch: {matchName: prod}, agented: true}]`, "vmSelector[0].vpcMatch.matchName"},
		{"azure", `[{vpcMatch: {matchName: prod}}]`, "vmSelector[0].vpcMatch.matchName"},
		{"aws", `[{vpcMatch: {matchID: vpc-1}}, {vpcMatch: {matchID: VPC-1}}]`, "vmSelector[1].vpcMatch.matchID"},
		{"aws", `[{vpcMatch: {matchID: vpc-1}}, {vpcMatch: {matchID: vpc-1}, vmMatch: [{matchID: i-1}]}]`, ""},
		{"aws", `[{vmMatch: [{matchID: i-1}]}, {vpcMatch: {matchID: vpc-1}, vmMatch: [{matchID: i-1}]}]`, "vmSelector[1].vmMatch[0].matchID"},
		{"aws", `[{vmMatch: [{matchName: a}, {matchName: a}]}]`, "vmSelector[0].vmMatch[1].matchName"},
		{"aws", `[{vmMatch: [{matchName: a}]}, {vpcMatch: {matchID: vpc-1}, vmMatch: [{matchName: a}]}]`, ""},
		{"aws", `[{vpcMatch: {matchID: vpc-1}, vmMatch: [{matchName: a}]}, {vpcMatch: {matchID: vpc-1}, vmMatch: [{matchName: a}]}]`, "vmSelector[1].vmMatch[0].matchName"},
		{"aws", `[{vpcMatch: {matchID: vpc-1}, isolation: Some}]`, "vmSelector[0].isolation"},
		{"aws", `[{tags: {Role: web, Empty: ""}, subnets: [subnet-1, subnet-2]}]`, ""},
		{"aws", `[{tags: {}, subnets: []}]`, "vmSelector[0]"},
		{"aws", `[{tags: {"": web}}]`, "vmSelector[0].tags[]"},
		{"aws", `[{tags: {Role: "` + strings.Repeat("é", 256) + `"}}]`, ""},
		{"aws", `[{tags: {Role: "` + strings.Repeat("x", 257) + `"}}]`, "vmSelector[0].tags[Role]"},
		{"aws", `[{subnets: [subnet-1, " ", SUBNET-1]}]`, "vmSelector[0].subnets[1] vmSelector[0].subnets[2]"},
		{"aws", `[{vpcMatch: {matchID: vpc-1}, tags: {a: b}}, {vpcMatch: {matchID: vpc-1}, tags: {a: c}}, {vpcMatch: {matchID: vpc-1}}]`, ""},
		{"aws", `[{vpcMatch: {matchID: vpc-1}, tags: {a: b}}, {vpcMatch: {matchID: vpc-1}, tags: {a: b}}]`, "vmSelector[1].vpcMatch.matchID"},
		{"aws", `[{vmMatch: [{matchID: i-1}], tags: {a: b}}, {vmMatch: [{matchID: i-1}], tags: {a: c}}]`, "vmSelector[1].vmMatch[0].matchID"},
	} {
		s := read(t, "{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudEntitySelector, spec: {accountName: "+tt.account+", accountNamespace: ns, vmSelector: "+tt.entries+"}}")
		want := tt.want
		if want != "" {
			want = "spec." + strings.ReplaceAll(want, " ", " spec.")
		}
		errs, _ := validate.Validate(validate.Request{Operation: validate.Create, Object: s}, w)
		check(t, tt.account+" "+tt.entries, errs, want)
	}
}

func TestServiceSelectors(t *testing.T) {
	w := cloudWorld(t)
	for _, tt := range []struct{ account, entries, want string }{
		{"aws", `[{kind: Database, vpcMatch: {matchID: vpc-1}}, {kind: LoadBalancer, vpcMatch: {matchName: prod}, serviceMatch: [{matchName: a}]}]`, ""},
		{"aws", `[{kind: Database, vpcMatch: {}}]`, ""}, // a warning
		{"aws", `[{kind: LoadBalancer, tags: {Role: edge}, isolation: None}]`, ""},
		{"aws", `[{vpcMatch: {}}]`, "serviceSelector[0].kind"},
		{"aws", `[{kind: Cache, vpcMatch: {}}]`, "serviceSelector[0].kind"},
		{"aws", `[{kind: Database}]`, "serviceSelector[0]"},
		{"aws", `[{kind: Database, vpcMatch: {matchID: a, matchName: b}}]`, "serviceSelector[0].vpcMatch"},
		{"aws", `[{kind: Database, serviceMatch: [{matchID: a}, {matchID: a, matchName: b}]}]`, "serviceSelector[0].serviceMatch[1]"},
		{"aws", `[{kind: Database, tags: {"": x}}]`, "serviceSelector[0].tags[]"},
		{"aws", `[{kind: Database, vpcMatch: {}, isolation: Some}]`, "serviceSelector[0].isolation"},
		{"azure", `[{kind: Database, vpcMatch: {matchID: a}}]`, "serviceSelector[0]"},
	} {
		s := read(t, "{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudEntitySelector, spec: {accountName: "+tt.account+", accountNamespace: ns, serviceSelector: "+tt.entries+"}}")
		want := tt.want
		if want != "" {
			want = "spec." + want
		}
		errs, _ := validate.Validate(validate.Request{Operation: validate.Create, Object: s}, w)
		check(t, tt.account+" "+tt.entries, errs, want)
	}
}

func TestSelectorKeepsItsAccount(t *testing.T) {
	w := cloudWorld(t)
	of := func(name, namespace string) runtime.Object {
		return read(t, "{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudEntitySelector, spec: {accountName: '"+name+"', accountNamespace: '"+namespace+"', vmSelector: [{vpcMatch: {matchID: a}}]}}")
	}
	for _, tt := range []struct {
		old, obj runtime.Object
		want     string
	}{
		{of("aws", "ns"), of("azure", "ns"), "spec.accountName"},
		{of("aws", "m"), of("aws", "ns"), "spec.accountNamespace"},
		{of("aws", ""), of("aws", "ns"), ""}, // of a version without namespaces
		{nil, of("aws", ""), "spec.accountNamespace"},
	} {
		errs, _ := validate.Validate(validate.Request{Operation: validate.Update, Object: tt.obj, Old: tt.old}, w)
		check(t, "account", errs, tt.want)
	}
}

// An account of one cloud does not become one of another.
func TestAccountKeepsItsProvider(t *testing.T) {
	w := cloudWorld(t)
	of := func(spec string) runtime.Object {
		return read(t, "{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudProviderAccount, spec: "+spec+"}")
	}
	aws := of(`{awsConfig: {region: [us-west-2], secretRef: {name: s, namespace: ns, key: aws}}}`)
	other := of(`{awsConfig: {region: [us-gov-east-1], secretRef: {name: s, namespace: ns, key: role}}}`)
	azure := of(`{azureConfig: {region: [westus2], secretRef: {name: s, namespace: ns, key: azure}}}`)
	both := of(`{awsConfig: {}, azureConfig: {}}`) // of a time before it was refused
	for _, tt := range []struct {
		old, obj runtime.Object
		want     string
	}{
		{aws, azure, "spec.azureConfig"},
		{azure, aws, "spec.awsConfig"},
		{aws, other, ""},
		{both, azure, ""},
		{both, aws, ""},
	} {
		errs, _ := validate.Validate(validate.Request{Operation: validate.Update, Object: tt.obj, Old: tt.old}, w)
		check(t, "provider", errs, tt.want)
	}
}

// What two objects govern both is told, where it is certain, and refuses nothing.
func TestSharedWarnings(t *testing.T) {
	const account = "apiVersion: crd.cloud.antrea.io/v1alpha1\nkind: CloudProviderAccount\n"
	w := cloudWorld(t)
	secret := func(key string) string { return "secretRef: {name: s, namespace: ns, key: " + key + "}" }
	w.objects = append(w.objects, read(t, account+"metadata: {name: first, namespace: other}\nspec: {awsConfig: {region: [us-west-2, eu-west-1], "+secret("aws")+"}}"),
		read(t, account+"metadata: {name: third, namespace: other}\nspec: {azureConfig: {region: [westus2, West Europe], "+secret("azure")+"}}"))
	warned := func(o runtime.Object) int {
		t.Helper()
		errs, warnings := validate.Validate(validate.Request{Operation: validate.Create, Object: o}, w)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for _, text := range warnings {
			if strings.Contains(text, "AKIA") || strings.Contains(text, "hush") {
				t.Errorf("a warning tells of credentials: %s", text)
			}
		}
		return len(warnings)
	}
	for _, tt := range []struct {
		meta, provider, config string
		want                   int
	}{
		{"{name: second, namespace: ns}", "aws", "region: [EU-west-1], " + secret("aws"), 1},
		{"{name: first, namespace: other}", "aws", "region: [eu-west-1], " + secret("aws"), 0}, // itself
		{"{name: second, namespace: ns}", "aws", "region: [us-east-1], " + secret("aws"), 0},
		{"{name: second, namespace: ns}", "aws", "region: [eu-west-1], " + secret("role"), 0},
		{"{name: second, namespace: ns}", "aws", "endpoint: 'http://other', region: [eu-west-1], " + secret("aws"), 0},
		{"{name: second, namespace: ns}", "azure", "region: [WestEurope], cloud: AzurePublic, " + secret("azure"), 1},
		{"{name: second, namespace: ns}", "azure", "region: [westeurope], " + secret("sibling"), 1}, // other credentials
		{"{name: third, namespace: other}", "azure", "region: [westus2], " + secret("azure"), 0},    // itself
		{"{name: second, namespace: ns}", "azure", "region: [northeurope], " + secret("azure"), 0},
		{"{name: second, namespace: ns}", "azure", "region: [westus2], " + secret("elsewhere"), 0},
		{"{name: second, namespace: ns}", "azure", "region: [westus2], cloud: AzureChina, " + secret("azure"), 0},
		{"{name: second, namespace: ns}", "azure", "region: [westus2], endpoint: 'https://other', " + secret("azure"), 0},
	} {
		if n := warned(read(t, account+"metadata: "+tt.meta+"\nspec: {"+tt.provider+"Config: {"+tt.config+"}}")); n != tt.want {
			t.Errorf("account %s %s: %d warnings, want %d", tt.meta, tt.config, n, tt.want)
		}
	}
	selector := func(meta, account, entries string) runtime.Object {
		return read(t, "{apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudEntitySelector, metadata: "+meta+", spec: {accountName: "+account+", accountNamespace: ns, vmSelector: "+entries+"}}")
	}
	w.objects = append(w.objects, selector("{name: old, namespace: other}", "aws", `[{vpcMatch: {matchID: vpc-1}}, {vmMatch: [{matchID: i-1}]}, {tags: {Role: web, Env: a}}]`))
	for _, tt := range []struct {
		meta, account, entries string
		want                   int
	}{
		{"{name: new, namespace: ns}", "aws", `[{vpcMatch: {matchID: VPC-1}}]`, 1},
		{"{name: new, namespace: ns}", "aws", `[{vpcMatch: {matchID: vpc-2}}, {vpcMatch: {matchID: vpc-1}, vmMatch: [{matchName: web}]}]`, 1},
		{"{name: new, namespace: ns}", "aws", `[{vmMatch: [{matchID: I-1}]}]`, 1},
		{"{name: new, namespace: ns}", "aws", `[{tags: {Role: web}}]`, 1},
		{"{name: new, namespace: ns}", "aws", `[{tags: {Role: db}}]`, 0},
		{"{name: new, namespace: ns}", "aws", `[{vpcMatch: {matchID: vpc-2}}, {vmMatch: [{matchID: i-2}]}]`, 0},
		{"{name: new, namespace: ns}", "aws", `[{subnets: [subnet-1]}]`, 0}, // it may be of any VPC
		{"{name: new, namespace: ns}", "azure", `[{vpcMatch: {matchID: vpc-1}}]`, 0},
		{"{name: old, namespace: other}", "aws", `[{vpcMatch: {matchID: vpc-1}}]`, 0}, // itself
	} {
		if n := warned(selector(tt.meta, tt.account, tt.entries)); n != tt.want {
			t.Errorf("selector %s of %s %s: %d warnings, want %d", tt.meta, tt.account, tt.entries, n, tt.want)
		}
	}
}
