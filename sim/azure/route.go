package azure

import (
	"net/http"
	"strings"
)

// target is what the path of a call names.
type target struct {
	sub string
	id  resourceID // as far as the path names one; of a list it has one type more than names
}

// scope is the id for which a right is needed: of a list that of what it lists from.
func (t target) scope() string {
	switch {
	case t.sub == "":
		return "/"
	case t.id.group == "":
		return "/subscriptions/" + t.sub
	}
	id := t.id
	id.types = id.types[:len(id.names)]
	if len(id.types) == 0 {
		id.provider = ""
	}
	return id.String()
}

func (t target) provider() string { return t.id.provider }

// operationInfo is one operation of an API.
type operationInfo struct {
	name    string // as NetworkInterfaces_CreateOrUpdate
	method  string
	action  string // the right that it needs
	api     string // whose versions it has
	query   string // parameters that it understands besides api-version and $skiptoken
	mutates bool
	deletes bool
	body    bool // it has one

	makesGroup bool
	run        func(*request) (*answer, *apiError)
}

// isManagement says whether a path is Resource Manager's.
func isManagement(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch fold(first) {
	case "subscriptions", "tenants", "providers":
		return true
	}
	return false
}

func noType(what string) *apiError {
	return errf("InvalidResourceType", "The resource type '%s' could not be found.", clip(what))
}

// route finds the operation that a call asks for.
func route(method, path string) (target, operationInfo, *apiError) {
	var t target
	var op operationInfo
	rest := strings.Split(strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/"), "/")
	if len(path) > maxID {
		return t, op, errf("InvalidRequestUri", "The request URI is too long.")
	}
	if rest[0] = fold(rest[0]); rest[0] == "tenants" && len(rest) == 1 {
		return t, operationInfo{name: "Tenants_List", api: resourcesAPI, run: listTenants}.reading(method), methodFail(method, "GET")
	}
	if rest[0] != "subscriptions" {
		return t, op, noType(path)
	}
	if len(rest) == 1 {
		return t, operationInfo{name: "Subscriptions_List", api: resourcesAPI, run: listSubscriptions}.reading(method), methodFail(method, "GET")
	}
	if t.sub = rest[1]; !guidRE.MatchString(t.sub) {
		return t, op, errf("InvalidSubscriptionId", "The provided subscription identifier '%s' is malformed or invalid.", clip(t.sub))
	}
	t.id.subscription = t.sub
	if n := len(rest); n >= 5 && strings.EqualFold(strings.Join(rest[n-4:], "/"), "providers/Microsoft.Resources/tags/default") {
		return routeTags(method, t, rest[2:n-4])
	}
	rest = rest[2:]
	if len(rest) == 0 {
		return t, operationInfo{name: "Subscriptions_Get", action: "Microsoft.Resources/subscriptions/read", api: resourcesAPI, run: getSubscription}.reading(method), methodFail(method, "GET")
	}
	switch fold(rest[0]) {
	case "locations":
		if len(rest) == 1 {
			return t, operationInfo{name: "Subscriptions_ListLocations", action: "Microsoft.Resources/subscriptions/locations/read", api: resourcesAPI, run: listLocations}.reading(method), methodFail(method, "GET")
		}
	case "resources":
		if len(rest) == 1 {
			return t, operationInfo{name: "Resources_List", action: "Microsoft.Resources/subscriptions/resources/read", api: resourcesAPI, query: "$expand", run: listResources}.reading(method), methodFail(method, "GET")
		}
	case "resourcegroups":
		return routeGroup(method, t, rest[1:])
	case "providers":
		return routeProvider(method, t, rest[1:])
	}
	return t, op, noType(path)
}

// reading completes an operation that only reads.
func (o operationInfo) reading(method string) operationInfo { o.method = method; return o }

func methodFail(method string, allowed ...string) *apiError {
	for _, a := range allowed {
		if method == a {
			return nil
		}
	}
	return errf("MethodNotAllowed", "The HTTP method '%s' is not supported here.", clip(method))
}

func routeGroup(method string, t target, rest []string) (target, operationInfo, *apiError) {
	if len(rest) == 0 {
		return t, operationInfo{name: "ResourceGroups_List", action: "Microsoft.Resources/subscriptions/resourceGroups/read", api: resourcesAPI, run: listGroups}.reading(method), methodFail(method, "GET")
	}
	if t.id.group = rest[0]; !groupRE.MatchString(t.id.group) {
		return t, operationInfo{}, errf("InvalidResourceGroup", "The provided resource group name '%s' has these invalid characters.", clip(t.id.group))
	}
	switch {
	case len(rest) == 1:
		return t, groupOperation(method), methodFail(method, "GET", "HEAD", "PUT", "PATCH", "DELETE")
	case len(rest) == 2 && fold(rest[1]) == "resources":
		return t, operationInfo{name: "Resources_ListByResourceGroup", action: "Microsoft.Resources/subscriptions/resourceGroups/resources/read", api: resourcesAPI, query: "$expand", run: listResources}.reading(method), methodFail(method, "GET")
	case len(rest) >= 4 && fold(rest[1]) == "providers":
		return routeResource(method, t, rest[2], rest[3:])
	}
	return t, operationInfo{}, noType(strings.Join(rest, "/"))
}

// routeProvider is for what a provider has in a subscription.
func routeProvider(method string, t target, rest []string) (target, operationInfo, *apiError) {
	switch {
	case len(rest) == 0:
		return t, operationInfo{name: "Providers_List", action: "Microsoft.Resources/subscriptions/providers/read", api: resourcesAPI, run: listProviders}.reading(method), methodFail(method, "GET")
	case versionsOf(rest[0]) == nil:
		return t, operationInfo{}, errf("InvalidResourceNamespace", "The resource namespace '%s' is invalid.", clip(rest[0]))
	}
	t.id.provider = properProvider(rest[0])
	switch {
	case len(rest) == 1:
		return t, operationInfo{name: "Providers_Get", action: "Microsoft.Resources/subscriptions/providers/read", api: resourcesAPI, run: getProvider}.reading(method), methodFail(method, "GET")
	case len(rest) == 2 && fold(rest[1]) == "register":
		return t, operationInfo{name: "Providers_Register", method: method, action: t.id.provider + "/register/action", api: resourcesAPI, run: getProvider}, methodFail(method, "POST")
	case len(rest) == 2:
		t.id.types = rest[1:]
		if k := kindOf(t.id.provider, rest[1]); k != nil {
			return t, operationInfo{name: k.client + "_ListAll", action: k.name + "/read", api: k.provider(), query: k.listQuery(), run: listKind(k)}.reading(method), methodFail(method, "GET")
		}
	case len(rest) == 5 && fold(rest[1]) == "locations" && fold(rest[3]) == "operations":
		return t, operationInfo{name: "Operations_Get", action: t.id.provider + "/locations/operations/read", api: t.id.provider, run: getOperation(rest[4])}.reading(method), methodFail(method, "GET")
	case len(rest) == 5 && fold(rest[1]) == "locations" && fold(rest[3]) == "operationresults":
		return t, operationInfo{name: "OperationResults_Get", action: t.id.provider + "/locations/operationResults/read", api: t.id.provider, run: getOperationResult(rest[4])}.reading(method), methodFail(method, "GET")
	case len(rest) == 4 && fold(rest[1]) == "locations" && fold(rest[3]) == "usages" && t.id.provider == networkAPI:
		return t, operationInfo{name: "Usages_List", action: "Microsoft.Network/locations/usages/read", api: t.id.provider, run: listUsages(region(rest[2]))}.reading(method), methodFail(method, "GET")
	}
	return t, operationInfo{}, noType(strings.Join(rest, "/"))
}

// routeResource is for resources, what is in them, lists of both and actions on them.
func routeResource(method string, t target, provider string, rest []string) (target, operationInfo, *apiError) {
	if versionsOf(provider) == nil {
		return t, operationInfo{}, errf("InvalidResourceNamespace", "The resource namespace '%s' is invalid.", clip(provider))
	}
	t.id.provider = properProvider(provider)
	k := kindOf(t.id.provider, rest[0])
	if k == nil {
		return t, operationInfo{}, noType(provider + "/" + rest[0])
	}
	t.id.types = []string{k.plural()}
	if len(rest) == 1 {
		return t, operationInfo{name: k.client + "_List", action: k.name + "/read", api: k.provider(), query: k.listQuery(), run: listKind(k)}.reading(method), methodFail(method, "GET")
	}
	t.id.names = []string{rest[1]}
	if err := t.id.check(); err != nil {
		return t, operationInfo{}, errf("InvalidResourceName", "%v", err)
	}
	if k == scaleSets && len(rest) > 2 {
		return routeSet(method, t, rest[2:])
	}
	if len(rest) == 2 {
		return t, k.operation(method), methodFail(method, "GET", "PUT", "PATCH", "DELETE")
	}
	if p := k.part(rest[2]); p != nil && len(rest) <= 4 {
		t.id.types = append(t.id.types, p.list)
		if len(rest) == 3 {
			return t, operationInfo{name: p.client + "_List", action: k.name + "/read", api: k.provider(), run: listPart(k, p)}.reading(method), methodFail(method, "GET")
		}
		t.id.names = append(t.id.names, rest[3])
		if err := t.id.check(); err != nil {
			return t, operationInfo{}, errf("InvalidResourceName", "%v", err)
		}
		allowed := []string{"GET", "PUT", "DELETE"}
		if p.readOnly {
			allowed = allowed[:1]
		}
		return t, k.partOperation(p, method), methodFail(method, allowed...)
	}
	if len(rest) == 3 {
		if op, allowed := k.action(rest[2]); op.run != nil {
			op.method = method
			return t, op, methodFail(method, allowed)
		}
	}
	return t, operationInfo{}, noType(provider + "/" + strings.Join(rest, "/"))
}

// operation is what a method does with a resource.
func (k *kind) operation(method string) operationInfo {
	op := operationInfo{method: method, api: k.provider()}
	switch method {
	case http.MethodGet:
		op.name, op.action, op.query, op.run = k.client+"_Get", k.name+"/read", "$expand", getResource(k)
	case http.MethodPut:
		op.name, op.action, op.mutates, op.body, op.run = k.client+"_CreateOrUpdate", k.name+"/write", true, true, putResource(k)
	case http.MethodPatch:
		op.name, op.action, op.mutates, op.body, op.run = k.client+"_"+k.patch, k.name+"/write", true, true, patchResource(k)
	case http.MethodDelete:
		op.name, op.action, op.mutates, op.deletes, op.query, op.run = k.client+"_Delete", k.name+"/delete", true, true, "forceDeletion", deleteResource(k)
	}
	return op
}

func (k *kind) partOperation(p *part, method string) operationInfo {
	op := operationInfo{method: method, api: k.provider()}
	name := k.name + "/" + p.list
	switch method {
	case http.MethodGet:
		op.name, op.action, op.query, op.run = p.client+"_Get", name+"/read", "$expand", getPart(k, p)
	case http.MethodPut:
		op.name, op.action, op.mutates, op.body, op.query, op.run = p.client+"_CreateOrUpdate", name+"/write", true, true, "syncRemoteAddressSpace", putPart(k, p)
	case http.MethodDelete:
		op.name, op.action, op.mutates, op.deletes, op.run = p.client+"_Delete", name+"/delete", true, true, deletePart(k, p)
	}
	return op
}

// action finds what a trailing segment does with a resource, and by which method.
func (k *kind) action(name string) (operationInfo, string) {
	switch {
	case k == virtualNetworks && fold(name) == "listnetworkmanagereffectivesecurityadminrules":
		return operationInfo{
			name: "ListNetworkManagerEffectiveSecurityAdminRules", action: k.name + "/listNetworkManagerEffectiveSecurityAdminRules/action", api: k.provider(), query: "$top", run: listAdminRules,
		}, "POST"
	case k != virtualMachines:
		return operationInfo{}, ""
	}
	if fold(name) == "instanceview" {
		return operationInfo{name: "VirtualMachines_InstanceView", action: k.name + "/instanceView/read", api: k.provider(), run: getInstanceView}, "GET"
	}
	verbs := map[string]string{"start": "Start", "restart": "Restart", "poweroff": "PowerOff", "deallocate": "Deallocate"}
	v := verbs[fold(name)]
	if v == "" {
		return operationInfo{}, ""
	}
	return operationInfo{
		name: k.client + "_" + v, action: k.name + "/" + fold(v[:1]) + v[1:] + "/action", api: k.provider(), query: "skipShutdown hibernate",
		mutates: true, run: powerMachine(powerActions[fold(name)]),
	}, "POST"
}

// listQuery are the parameters of a kind's lists.
func (k *kind) listQuery() string {
	if k == virtualMachines {
		return "statusOnly $expand $filter"
	}
	return ""
}
