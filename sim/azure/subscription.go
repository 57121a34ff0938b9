package azure

import (
	"net/http"
	"slices"
	"strings"
)

func (q *request) values(items []Document) (*answer, *apiError) {
	value := []any{}
	for _, i := range items {
		value = append(value, i)
	}
	return &answer{status: http.StatusOK, body: Document{"value": value}}, nil
}

func listTenants(q *request) (*answer, *apiError) {
	t := q.who.tenant
	return q.values([]Document{{"id": "/tenants/" + t.ID, "tenantId": t.ID, "displayName": t.Name, "tenantCategory": "Home"}})
}

func (s *subscription) body() Document {
	state := s.State
	if state == "" {
		state = "Enabled"
	}
	return Document{
		"id": "/subscriptions/" + s.ID, "subscriptionId": s.ID, "tenantId": s.Tenant, "displayName": s.Name, "state": state,
		"authorizationSource": "RoleBased",
	}
}

// listSubscriptions lists those in which the caller may do something.
func listSubscriptions(q *request) (*answer, *apiError) {
	var items []item
	for _, k := range sortedKeys(q.w.subs) {
		s := q.w.subs[k]
		if fold(s.Tenant) != fold(q.who.tenant.ID) || !q.who.sees("/subscriptions/"+s.ID) {
			continue
		}
		items = append(items, item{k, s.body})
	}
	return q.page(items)
}

// sees says whether a principal has any role at a scope, below or above it.
func (p principal) sees(scope string) bool {
	return len(p.app.Roles) == 0 || slices.ContainsFunc(p.app.Roles, func(r Role) bool { return covers(r.Scope, scope) || covers(scope, r.Scope) })
}

func getSubscription(q *request) (*answer, *apiError) {
	return &answer{status: http.StatusOK, body: q.w.subs[fold(q.at.sub)].body()}, nil
}

func listLocations(q *request) (*answer, *apiError) {
	s := q.w.subs[fold(q.at.sub)]
	var out []Document
	for _, l := range s.Locations {
		out = append(out, Document{
			"id": "/subscriptions/" + s.ID + "/locations/" + l, "name": l, "type": "Region", "displayName": l, "regionalDisplayName": l,
			"metadata": Document{"regionType": "Physical", "regionCategory": "Recommended"},
		})
	}
	return q.values(out)
}

func (g *ResourceGroup) body(sub string) Document {
	return Document{
		"id": "/subscriptions/" + sub + "/resourceGroups/" + g.Name, "name": g.Name, "type": "Microsoft.Resources/resourceGroups",
		"location": g.Location, "tags": tagDocument(g.Tags), "properties": Document{"provisioningState": "Succeeded"},
	}
}

func listGroups(q *request) (*answer, *apiError) {
	s := q.w.subs[fold(q.at.sub)]
	var items []item
	for _, k := range sortedKeys(s.groups) {
		items = append(items, item{k, func() Document { return s.groups[k].body(s.ID) }})
	}
	return q.page(items)
}

func groupOperation(method string) operationInfo {
	const name = "Microsoft.Resources/subscriptions/resourceGroups"
	op := operationInfo{method: method, api: resourcesAPI}
	switch method {
	case http.MethodGet, http.MethodHead:
		op.name, op.action, op.run = "ResourceGroups_Get", name+"/read", getGroup
	case http.MethodPut:
		op.name, op.action, op.mutates, op.body, op.makesGroup, op.run = "ResourceGroups_CreateOrUpdate", name+"/write", true, true, true, putGroup
	case http.MethodPatch:
		op.name, op.action, op.mutates, op.body, op.run = "ResourceGroups_Update", name+"/write", true, true, patchGroup
	case http.MethodDelete:
		op.name, op.action, op.mutates, op.deletes, op.query, op.run = "ResourceGroups_Delete", name+"/delete", true, true, "forceDeletionTypes", deleteGroup
	}
	return op
}

// group is the resource group of the path; admit has seen that it is there.
func (q *request) group() *ResourceGroup { return q.w.subs[fold(q.at.sub)].groups[fold(q.at.id.group)] }

func getGroup(q *request) (*answer, *apiError) {
	if q.op.method == http.MethodHead {
		return &answer{status: http.StatusNoContent}, nil
	}
	return &answer{status: http.StatusOK, body: q.group().body(q.at.sub)}, nil
}

func putGroup(q *request) (*answer, *apiError) {
	s := q.w.subs[fold(q.at.sub)]
	old := q.group()
	location := region(text(q.body, "location"))
	tags, err := tagsOf(q.body)
	switch {
	case err != nil:
		return nil, errf("InvalidRequestContent", "%v", err)
	case location == "":
		return nil, errf("LocationRequired", "The location property is required for this definition.")
	case !slices.Contains(s.Locations, location):
		return nil, errf("LocationNotAvailableForResourceGroup", "The provided location '%s' is not available for resource group.", clip(location))
	case old != nil && old.Location != location:
		return nil, errf("InvalidResourceGroupLocation", "Invalid resource group location '%s'. The Resource group already exists in location '%s'.", clip(location), old.Location)
	}
	if fail := checkTags(tags); fail != nil {
		return nil, fail
	}
	g := &ResourceGroup{Name: q.at.id.group, Location: location, Tags: tags}
	status := http.StatusCreated
	if old != nil {
		g.Name, status = old.Name, http.StatusOK
	}
	s.groups[fold(g.Name)] = g
	return &answer{status: status, body: g.body(s.ID)}, nil
}

func patchGroup(q *request) (*answer, *apiError) {
	tags, err := tagsOf(q.body)
	if err != nil {
		return nil, errf("InvalidRequestContent", "%v", err)
	}
	if fail := checkTags(tags); fail != nil {
		return nil, fail
	}
	g := *q.group()
	if q.body["tags"] != nil {
		g.Tags = tags
	}
	q.w.subs[fold(q.at.sub)].groups[fold(g.Name)] = &g
	return &answer{status: http.StatusOK, body: g.body(q.at.sub)}, nil
}

// deleteGroup deletes what is in a resource group, users first, and the group. It is done at once, and
// not at all when something outside still uses what is inside.
func deleteGroup(q *request) (*answer, *apiError) {
	s := q.w.subs[fold(q.at.sub)]
	trial := q.w.frozen()
	for _, k := range slices.Backward(kinds) {
		for _, key := range q.w.list(s.ID, k) {
			r := trial.things[key]
			if r == nil || !strings.EqualFold(r.id.group, q.at.id.group) {
				continue
			}
			if fail := k.inUse(trial, r); fail != nil {
				return nil, errf("ResourceGroupDeletionBlocked", "Deletion of resource group '%s' did not finish successfully, because %s is in use.", q.at.id.group, r.id).with(fail)
			}
			trial.remove(r)
		}
	}
	for _, k := range slices.Backward(kinds) {
		for _, key := range slices.Clone(q.w.list(s.ID, k)) {
			if r := q.w.things[key]; r != nil && strings.EqualFold(r.id.group, q.at.id.group) {
				q.w.remove(r)
			}
		}
	}
	delete(s.groups, fold(q.at.id.group))
	return &answer{status: http.StatusOK}, nil
}

// listResources lists everything in brief.
func listResources(q *request) (*answer, *apiError) {
	if x := q.query.Get("$expand"); x != "" {
		return nil, errf("InvalidParameter", "The parameter '$expand' is not simulated.")
	}
	var items []item
	for _, k := range kinds {
		if strings.Count(k.name, "/") > 1 {
			continue // inside of another
		}
		for _, key := range q.w.list(q.at.sub, k) {
			r := q.w.things[key]
			if q.at.id.group != "" && !strings.EqualFold(r.id.group, q.at.id.group) {
				continue
			}
			items = append(items, item{key, func() Document {
				d := Document{"id": r.id.String(), "name": r.id.name(), "type": k.name, "location": r.location()}
				if t, ok := r.doc["tags"]; ok {
					d["tags"] = t
				}
				return d
			}})
		}
	}
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.key, b.key) })
	return q.page(items)
}

func (q *request) providerBody(name string) Document {
	var types []any
	for _, k := range kinds {
		if k.provider() != name {
			continue
		}
		types = append(types, Document{"resourceType": k.plural(), "apiVersions": versionsOf(name), "locations": q.w.subs[fold(q.at.sub)].Locations})
	}
	return Document{
		"id": "/subscriptions/" + q.at.sub + "/providers/" + name, "namespace": name, "registrationState": "Registered",
		"registrationPolicy": "RegistrationRequired", "resourceTypes": types,
	}
}

func listProviders(q *request) (*answer, *apiError) {
	return q.values([]Document{q.providerBody(computeAPI), q.providerBody(networkAPI)})
}

func getProvider(q *request) (*answer, *apiError) {
	return &answer{status: http.StatusOK, body: q.providerBody(q.at.id.provider)}, nil
}

// listUsages tells what of the quotas of a location is used.
func listUsages(location string) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		s := q.w.subs[fold(q.at.sub)]
		if !slices.Contains(s.Locations, location) {
			return nil, errf("LocationNotAvailableForResourceType", "The provided location '%s' is not available.", clip(location))
		}
		l := s.Quotas.filled()
		var out []Document
		for _, u := range []struct {
			name string
			kind *kind
			most int
		}{
			{"VirtualNetworks", virtualNetworks, l.VirtualNetworks}, {"NetworkSecurityGroups", securityGroups, l.SecurityGroups},
			{"ApplicationSecurityGroups", applicationGroups, l.ApplicationGroups}, {"NetworkInterfaces", networkInterfaces, l.Interfaces},
			{"PublicIPAddresses", publicAddresses, l.PublicAddresses}, {"SecurityRulesPerNetworkSecurityGroup", nil, l.RulesPerSecurityGroup},
			{"SecurityRuleAddressesOrPortsPerNetworkSecurityGroup", nil, l.AddressesPerGroup},
		} {
			n := 0
			if u.kind != nil {
				n = q.w.counts[fold(s.ID+" "+u.kind.name)+" "+location]
			}
			out = append(out, Document{
				"id":           "/subscriptions/" + s.ID + "/providers/Microsoft.Network/locations/" + location + "/usages/" + u.name,
				"currentValue": n, "limit": u.most, "unit": "Count", "name": Document{"value": u.name, "localizedValue": u.name},
			})
		}
		return q.values(out)
	}
}
