package azure_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"isobar.dev/sim/azure"
)

// ruleWith is a security rule with properties changed; nil takes one out.
func ruleWith(changes azure.Document) azure.Document {
	d := azure.Document{
		"priority": 100, "direction": "Inbound", "access": "Allow", "protocol": "Tcp",
		"sourceAddressPrefix": "10.0.0.0/8", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "443",
	}
	for k, v := range changes {
		if d[k] = v; v == nil {
			delete(d, k)
		}
	}
	return azure.Document{"name": "r", "properties": d}
}

func many(n int, f func(int) any) (out []any) {
	for i := range n {
		out = append(out, f(i))
	}
	return out
}

func refs(prefix string, n int) []any {
	return many(n, func(i int) any { return azure.Document{"id": asgID(fmt.Sprint(prefix, i))} })
}

func TestSecurityRulesAreChecked(t *testing.T) {
	e := azure.Sample()
	for i := range 11 {
		e.Subscriptions[0].Resources = append(e.Subscriptions[0].Resources, shopPlace.ApplicationGroup(fmt.Sprint("g", i)))
	}
	e.Subscriptions[0].Quotas = azure.Quotas{RulesPerSecurityGroup: 3, AddressesPerGroup: 5, ApplicationGroupsPerSecurity: 10}
	b := newBare(t, e, atOnce)
	one := func(changes azure.Document) []any { return []any{ruleWith(changes)} }
	named := func(name string, changes azure.Document) azure.Document {
		r := ruleWith(changes)
		r["name"] = name
		return r
	}
	for _, tt := range []struct {
		name  string
		rules []any
		want  string // empty is accepted
	}{
		{"right", one(nil), ""},
		{"lower case", one(azure.Document{"protocol": "tcp", "access": "allow", "direction": "inbound"}), ""},
		{"priority too low", one(azure.Document{"priority": 99}), "SecurityRuleInvalidPriority"},
		{"priority too high", one(azure.Document{"priority": 4097}), "SecurityRuleInvalidPriority"},
		{"the highest priority", one(azure.Document{"priority": 4096}), ""},
		{"one priority in both directions", []any{ruleWith(nil), named("s", azure.Document{"direction": "Outbound"})}, ""},
		{"one priority twice", []any{ruleWith(nil), named("s", nil)}, "SecurityRuleConflict"},
		{"one name twice", []any{ruleWith(nil), named("R", azure.Document{"priority": 101})}, "InvalidRequestFormat/DuplicateResourceName"},
		{"a bad name", []any{named("no spaces", nil)}, "InvalidResourceName"},
		{"host bits", one(azure.Document{"sourceAddressPrefix": "10.0.0.1/8"}), "SecurityRuleInvalidAddressPrefix"},
		{"an address", one(azure.Document{"sourceAddressPrefix": "10.0.0.1"}), ""},
		{"an unknown service tag", one(azure.Document{"sourceAddressPrefix": "AzureBastionSubnet"}), "SecurityRuleInvalidAddressPrefix"},
		{"a service tag", one(azure.Document{"sourceAddressPrefix": "virtualnetwork"}), ""},
		{"a service tag in a list", one(azure.Document{"sourceAddressPrefix": nil, "sourceAddressPrefixes": []any{"Internet"}}), "SecurityRuleParameterContainsUnsupportedValue"},
		{"any in a list", one(azure.Document{"sourceAddressPrefix": nil, "sourceAddressPrefixes": []any{"*"}}), "SecurityRuleParameterContainsUnsupportedValue"},
		{"overlapping", one(azure.Document{"sourceAddressPrefix": nil, "sourceAddressPrefixes": []any{"10.0.0.0/8", "192.168.0.0/16", "10.9.0.0/16"}}), "OverlappingSubnetsNotPermittedInSecurityRule"},
		{"both families", one(azure.Document{"sourceAddressPrefix": nil, "sourceAddressPrefixes": []any{"10.0.0.0/8", "fd00::/8"}}), ""},
		{"no source", one(azure.Document{"sourceAddressPrefix": nil}), "SecurityRuleInvalidAddressSpecification"},
		{"two kinds of source", one(azure.Document{"sourceApplicationSecurityGroups": refs("g", 1)}), "SecurityRuleInvalidAddressSpecification"},
		{"no port", one(azure.Document{"destinationPortRange": nil}), "SecurityRuleInvalidPortSpecification"},
		{"a reversed range", one(azure.Document{"destinationPortRange": "90-80"}), "SecurityRuleInvalidPortRange"},
		{"port 65536", one(azure.Document{"destinationPortRange": "65536"}), "SecurityRuleInvalidPortRange"},
		{"any port in a list", one(azure.Document{"destinationPortRange": nil, "destinationPortRanges": []any{"*"}}), "SecurityRuleParameterContainsInvalidPortRanges"},
		{"SCTP", one(azure.Document{"protocol": "Sctp"}), "SecurityRuleInvalidProtocol"},
		{"ESP", one(azure.Document{"protocol": "Esp", "destinationPortRange": "*"}), ""},
		{"Pass", one(azure.Document{"access": "Pass"}), "InvalidRequestFormat/InvalidJson"},
		{"a long description", one(azure.Document{"description": strings.Repeat("ä", 141)}), "SecurityRuleDescriptionTooLong"},
		{"140 characters", one(azure.Document{"description": strings.Repeat("ä", 140)}), ""},
		{"an unknown group", one(azure.Document{"sourceAddressPrefix": nil, "sourceApplicationSecurityGroups": refs("nobody", 1)}), "InvalidResourceReference"},
		{"eleven groups on a side", one(azure.Document{"sourceAddressPrefix": nil, "sourceApplicationSecurityGroups": refs("g", 11)}), "SecurityRuleApplicationSecurityGroupsLimitReached"},
		{"eleven groups in all", []any{
			ruleWith(azure.Document{"sourceAddressPrefix": nil, "sourceApplicationSecurityGroups": refs("g", 10)}),
			named("s", azure.Document{"priority": 101, "sourceAddressPrefix": nil, "sourceApplicationSecurityGroups": refs("g", 11)[10:]}),
		}, "ApplicationSecurityGroupsPerSecurityGroupLimitReached"},
		{"too many rules", many(4, func(i int) any { return named(fmt.Sprint("r", i), azure.Document{"priority": 100 + i}) }), "SecurityRuleCountLimitReached"},
		{"too many addresses, summed", many(3, func(i int) any {
			return named(fmt.Sprint("r", i), azure.Document{"priority": 100 + i, "sourceAddressPrefix": nil, "sourceAddressPrefixes": []any{"10.0.0.1", "10.0.0.2"}})
		}), "SecurityRuleAddressesOrPortsPerSecurityGroupLimitReached"},
	} {
		r := b.do("PUT", nsgID("new"), azure.Document{"location": "westeurope", "properties": azure.Document{"securityRules": tt.rules}})
		if r.code != tt.want || tt.want != "" && r.status != http.StatusBadRequest {
			t.Errorf("%s: %d %q, want %q", tt.name, r.status, r.code, tt.want)
		}
	}
}

func TestInterfacesAreChecked(t *testing.T) {
	e := town()
	b := newBare(t, e, atOnce)
	group := func(names ...string) func(azure.Document) {
		return func(nic azure.Document) {
			for _, c := range props(nic)["ipConfigurations"].([]any) {
				var list []any
				for _, n := range names {
					list = append(list, azure.Document{"id": asgID(n)})
				}
				props(c.(map[string]any))["applicationSecurityGroups"] = list
			}
		}
	}
	first := func(f func(azure.Document)) func(azure.Document) {
		return func(nic azure.Document) { f(props(nic)["ipConfigurations"].([]any)[0].(map[string]any)) }
	}
	for _, tt := range []struct {
		name, nic string
		change    func(azure.Document)
		want      string
	}{
		{"as it is", "app-nic", func(azure.Document) {}, ""},
		{"groups of one configuration only", "app-nic", first(func(c azure.Document) { props(c)["applicationSecurityGroups"] = []any{} }), "AllIpConfigurationsOnANicMustBelongToTheSameApplicationSecurityGroups"},
		{"a group of another network", "b1-nic", group("web"), "ApplicationSecurityGroupReferencesMultipleVnets"},
		{"an unknown group", "b1-nic", group("nobody"), "InvalidResourceReference"},
		{"an unknown security group", "b1-nic", func(n azure.Document) { props(n)["networkSecurityGroup"] = azure.Document{"id": nsgID("nobody")} }, "InvalidResourceReference"},
		{"no id at all", "b1-nic", func(n azure.Document) { props(n)["networkSecurityGroup"] = azure.Document{"id": "x"} }, "LinkedInvalidPropertyId"},
		{"somebody's address", "b1-nic", first(func(c azure.Document) { props(c)["privateIPAddress"] = "10.2.1.3" }), "PrivateIPAddressInReservedRange"},
		{"an address of another subnet", "b1-nic", first(func(c azure.Document) { props(c)["privateIPAddress"] = "10.2.2.9" }), "PrivateIPAddressNotInSubnet"},
		{"a used address", "web-nic", first(func(c azure.Document) { props(c)["privateIPAddress"] = "10.1.1.10" }), "PrivateIPAddressInUse"},
		{"a used public address", "web-nic", first(func(c azure.Document) { props(c)["publicIPAddress"] = azure.Document{"id": pipID("pip")} }), "PublicIPAddressInUse"},
		{"no configuration", "b1-nic", func(n azure.Document) { props(n)["ipConfigurations"] = []any{} }, "NetworkInterfaceMustHaveAtLeastOneIPConfiguration"},
		{"another location", "b1-nic", func(n azure.Document) { n["location"] = "northeurope" }, "InvalidResourceLocation"},
		{"an unknown location", "b1-nic", func(n azure.Document) { n["location"] = "atlantis" }, "LocationNotAvailableForResourceType"},
		{"no location", "b1-nic", func(n azure.Document) { delete(n, "location") }, "LocationRequired"},
		{"51 tags", "b1-nic", func(n azure.Document) {
			tags := azure.Document{}
			for i := range 51 {
				tags[fmt.Sprint("t", i)] = ""
			}
			n["tags"] = tags
		}, "InvalidTagsCount"},
		{"tags that differ in case", "b1-nic", func(n azure.Document) { n["tags"] = azure.Document{"a": "1", "A": "2"} }, "DuplicateTagNames"},
	} {
		nic := b.get(nicID(tt.nic))
		tt.change(nic)
		if r := b.do("PUT", nicID(tt.nic), nic); r.code != tt.want {
			t.Errorf("%s: %d %q, want %q", tt.name, r.status, r.code, tt.want)
		}
	}

	// Groups of two networks cannot be in one rule, whichever comes last.
	b.do("PUT", asgID("other"), shopPlace.ApplicationGroup("other"))
	nic := b.get(nicID("b1-nic"))
	group("other")(nic)
	if r := b.do("PUT", nicID("b1-nic"), nic); r.status != 200 {
		t.Fatalf("a group of its own: %v", r)
	}
	rule := azure.RuleSpec{Name: "r", Priority: 100, Inbound: true, From: []string{asgID("other")}, To: []string{asgID("app")}}
	if r := b.do("PUT", nsgID("two"), shopPlace.SecurityGroup("two", rule)); r.code != "AllApplicationSecurityGroupsInSecurityRuleMustBeFromSameVnet" {
		t.Errorf("a rule with groups of two networks: %v", r)
	}
	b.do("PUT", asgID("late"), shopPlace.ApplicationGroup("late"))
	rule.From = []string{asgID("late")}
	if r := b.do("PUT", nsgID("two"), shopPlace.SecurityGroup("two", rule)); r.status != 201 {
		t.Fatalf("a rule with a group of nobody: %v", r)
	}
	group("other", "late")(nic)
	if r := b.do("PUT", nicID("b1-nic"), nic); r.code != "AllApplicationSecurityGroupsInSecurityRuleMustBeFromSameVnet" {
		t.Errorf("an interface that joins the group: %v", r)
	}
}

func TestQuotas(t *testing.T) {
	e := town()
	e.Subscriptions[0].Quotas = azure.Quotas{SecurityGroups: 4, ApplicationGroups: 4, ApplicationGroupsPerConfig: 1, ConfigsPerApplicationGroup: 3}
	b := newBare(t, e, atOnce)
	for i, want := range []string{"", "NetworkSecurityGroupCountLimitReached"} {
		name := fmt.Sprint("n", i)
		if r := b.do("PUT", nsgID(name), shopPlace.SecurityGroup(name)); r.code != want {
			t.Errorf("security group %d: %q, want %q", i+4, r.code, want)
		}
	}
	for i, want := range []string{"", "", "ApplicationSecurityGroupCountLimitReached"} {
		name := fmt.Sprint("a", i)
		if r := b.do("PUT", asgID(name), shopPlace.ApplicationGroup(name)); r.code != want {
			t.Errorf("application group %d: %q, want %q", i+3, r.code, want)
		}
	}
	nic := b.get(nicID("plain-nic"))
	join := func(names ...string) string {
		for _, c := range props(nic)["ipConfigurations"].([]any) {
			var list []any
			for _, n := range names {
				list = append(list, azure.Document{"id": asgID(n)})
			}
			props(c.(map[string]any))["applicationSecurityGroups"] = list
		}
		return b.do("PUT", nicID("plain-nic"), nic).code
	}
	if got := join("web"); got != "IpConfigurationsPerApplicationSecurityGroupLimitReached" {
		t.Errorf("two more configurations in a group of two, with three allowed: %q", got)
	}
	if got := join("a0", "a1"); got != "ApplicationSecurityGroupsPerIpConfigurationLimitReached" {
		t.Errorf("two groups on a configuration: %q", got)
	}
	if err := b.cloud.SetQuotas(azure.SampleSubscription, azure.Quotas{}); err != nil {
		t.Fatal(err)
	}
	if got := join("a0", "web"); got != "" {
		t.Errorf("with Azure's own quotas: %q", got)
	}
	r := b.do("GET", "/subscriptions/"+azure.SampleSubscription+"/providers/Microsoft.Network/locations/westeurope/usages", nil)
	found := false
	for _, u := range r.doc["value"].([]any) {
		d := u.(map[string]any)
		found = found || d["name"].(map[string]any)["value"] == "NetworkSecurityGroups" && d["currentValue"] == 4.0 && d["limit"] == 5000.0
	}
	if !found {
		t.Errorf("usages: %v", r.doc)
	}
}

func TestRequestsAreChecked(t *testing.T) {
	e := azure.Sample()
	e.Subscriptions[0].Locks = []azure.Lock{{Name: "l", Scope: nsgID("shop-default"), Level: "ReadOnly"}, {Name: "d", Scope: nsgID("shop-web"), Level: "CanNotDelete"}}
	b := newBare(t, e, atOnce)
	sub := "/subscriptions/" + azure.SampleSubscription
	for _, tt := range []struct {
		name, method, path string
		body               any
		want               string
		status             int
	}{
		{"no version", "GET", nsgID("shop-web") + "?api-version=", nil, "MissingApiVersionParameter", 400},
		{"a version that never was", "GET", nsgID("shop-web") + "?api-version=2024-05-02", nil, "NoRegisteredProviderFound", 400},
		{"another's version", "GET", sub + "/resourcegroups?api-version=2024-05-01", nil, "InvalidApiVersionParameter", 400},
		{"an unknown parameter", "GET", nsgID("shop-web") + "?api-version=2024-05-01&$select=x", nil, "InvalidQueryParameter", 400},
		{"an unknown subscription", "GET", strings.Replace(nsgID("shop-web"), "aaaaaaaa", "bbbbbbbb", 1), nil, "SubscriptionNotFound", 404},
		{"no subscription", "GET", "/subscriptions/x/resourcegroups?api-version=2022-12-01", nil, "InvalidSubscriptionId", 400},
		{"an unknown group", "GET", azure.ID(azure.SampleSubscription, "nobody", "Microsoft.Network/networkInterfaces", "x"), nil, "ResourceGroupNotFound", 404},
		{"an unknown resource", "GET", nsgID("nobody"), nil, "ResourceNotFound", 404},
		{"an unknown rule", "GET", nsgID("shop-web") + "/securityRules/nobody", nil, "NotFound", 404},
		{"a rule of nobody", "PUT", nsgID("nobody") + "/securityRules/r", ruleWith(nil), "ParentResourceNotFound", 404},
		{"an unknown provider", "GET", strings.Replace(nsgID("shop-web"), "Microsoft.Network", "Microsoft.Nothing", 1), nil, "InvalidResourceNamespace", 404},
		{"an unknown type", "GET", shopID("Microsoft.Network/loadBalancers", "x"), nil, "InvalidResourceType", 404},
		{"an unknown action", "POST", nsgID("shop-web") + "/explode", nil, "InvalidResourceType", 404},
		{"a wrong method", "POST", nsgID("shop-web"), nil, "MethodNotAllowed", 405},
		{"no object", "PUT", nsgID("new"), []any{}, "InvalidRequestContent", 400},
		{"another name", "PUT", nsgID("new"), azure.Document{"name": "old", "location": "westeurope"}, "InvalidRequestContent", 400},
		{"a bad name", "PUT", nsgID("-new-"), shopPlace.SecurityGroup("x"), "InvalidResourceName", 400},
		{"a token that leads nowhere", "GET", sub + "/providers/Microsoft.Network/networkInterfaces?api-version=2024-05-01&$skiptoken=%25", nil, "InvalidSkipToken", 400},
		{"locked", "PUT", nsgID("shop-default"), shopPlace.SecurityGroup("x"), "ScopeLocked", 409},
		{"what is in it is locked, too", "PUT", nsgID("shop-default") + "/securityRules/r", ruleWith(nil), "ScopeLocked", 409},
		{"its group cannot be deleted either", "DELETE", sub + "/resourceGroups/shop?api-version=2022-12-01", nil, "ScopeLocked", 409},
		{"locked against deletion", "DELETE", nsgID("shop-web"), nil, "ScopeLocked", 409},
		{"nothing to delete", "DELETE", nsgID("nobody"), nil, "", 204},
		{"must not be there", "PUT", nsgID("reports-default"), nil, "InvalidRequestContent", 400},
	} {
		if r := b.do(tt.method, tt.path, tt.body); r.code != tt.want || r.status != tt.status {
			t.Errorf("%s: %d %q, want %d %q", tt.name, r.status, r.code, tt.status, tt.want)
		}
	}
	if r := b.do("PUT", nsgID("shop-web"), shopPlace.SecurityGroup("shop-web"), "If-None-Match", "*"); r.code != "PreconditionFailed" || r.status != 412 {
		t.Errorf("made once more: %v", r)
	}
	if r := b.do("PUT", nsgID("new"), shopPlace.SecurityGroup("new"), "If-Match", "*"); r.code != "PreconditionFailed" {
		t.Errorf("changed what is not there: %v", r)
	}
}

func TestRights(t *testing.T) {
	e := town()
	app := e.Tenants[0].Applications[0]
	app.Roles = []azure.Role{{Scope: "/subscriptions/" + azure.SampleSubscription, Actions: []string{"*/read", "Microsoft.Network/*"}, NotActions: []string{"Microsoft.Network/networkSecurityGroups/join/action"}}}
	app.Deny = []string{"Microsoft.Network/*/delete"}
	b := newBare(t, e, atOnce)
	nic := b.get(nicID("plain-nic"))
	props(nic)["networkSecurityGroup"] = azure.Document{"id": nsgID("none")}
	for _, tt := range []struct {
		name, method, path string
		body               any
		want               string
	}{
		{"reading", "GET", nicID("app-nic"), nil, ""},
		{"writing", "PUT", nsgID("new"), shopPlace.SecurityGroup("new"), ""},
		{"joining", "PUT", nicID("plain-nic"), nic, "LinkedAuthorizationFailed"},
		{"what was joined before", "PUT", nicID("app-nic"), b.get(nicID("app-nic")), ""},
		{"denied", "DELETE", nsgID("new"), nil, "AuthorizationFailed"},
		{"no action of another provider", "POST", shopID("Microsoft.Compute/virtualMachines", "app") + "/deallocate", nil, "AuthorizationFailed"},
	} {
		if r := b.do(tt.method, tt.path, tt.body); r.code != tt.want {
			t.Errorf("%s: %d %q, want %q", tt.name, r.status, r.code, tt.want)
		}
	}
}

func TestThrottling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBare(t, azure.Sample(), azure.Options{Settle: -1, Buckets: map[string]azure.Bucket{azure.WriteBucket: {Burst: 2, PerSecond: 0.5}, azure.NetworkReadBucket: {Burst: 1, PerSecond: 1}}})
		put := func() reply { return b.do("PUT", asgID("new"), shopPlace.ApplicationGroup("new")) }
		put()
		put()
		if r := put(); r.code != "SubscriptionRequestsThrottled" || r.status != 429 || r.header.Get("Retry-After") != "2" {
			t.Errorf("the third write: %v", r)
		}
		time.Sleep(2 * time.Second)
		if r := put(); r.status != 200 {
			t.Errorf("two seconds later: %v", r)
		}
		b.get(asgID("new"))
		if r := b.do("GET", asgID("new"), nil); r.status != 429 || !strings.HasPrefix(r.code, "TooManyRequests") {
			t.Errorf("the second read of Microsoft.Network: %v", r)
		}
		l := b.cloud.Calls()
		if len(l.Writes) != 4 || l.Writes[2].Error != "SubscriptionRequestsThrottled" || l.Counts[0].Operation != "ApplicationSecurityGroups_CreateOrUpdate" || l.Counts[0].Throttled != 1 {
			t.Errorf("calls: %+v", l)
		}
	})
}
