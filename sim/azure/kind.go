package azure

import (
	"slices"
	"strings"
)

// kind is a type of tracked resources.
type kind struct {
	name   string // as Microsoft.Network/networkSecurityGroups
	client string // what the names of its operations begin with
	patch  string // the operation of PATCH: UpdateTags, which replaces tags alone, or Update
	loud   bool   // lists write resource groups in capitals, as those of Microsoft.Compute do

	behaviour
	parts []part
}

// behaviour is what differs between kinds.
type behaviour interface {
	// parse normalises a document in place and reads what matters of it. It knows no other resource.
	parse(r *resource) *apiError
	// check refuses what does not fit with what is there. old is nil for a new resource.
	check(w *world, r, old *resource) *apiError
	// links lists what a resource refers to.
	links(r *resource) []link
	// render adds what Azure computes to a copy of the document.
	render(w *world, r *resource, body Document)
	// inUse refuses a deletion.
	inUse(w *world, r *resource) *apiError
}

// part is a kind of resources inside of others: they are a list in their parent's properties.
type part struct {
	list     string // as securityRules, also the type's name
	client   string
	readOnly bool // it is written with its parent alone
}

// link is a reference to a resource, or to one inside of it.
type link struct {
	id     string
	action string // the right that a writer needs there; empty is none
}

// The kinds, read only.
var (
	virtualNetworks = &kind{
		name: "Microsoft.Network/virtualNetworks", client: "VirtualNetworks", patch: "UpdateTags", behaviour: networkType{},
		parts: []part{{list: "subnets", client: "Subnets"}, {list: "virtualNetworkPeerings", client: "VirtualNetworkPeerings"}},
	}
	networkInterfaces = &kind{
		name: "Microsoft.Network/networkInterfaces", client: "NetworkInterfaces", patch: "UpdateTags", behaviour: interfaceType{},
		parts: []part{{list: "ipConfigurations", client: "NetworkInterfaceIPConfigurations", readOnly: true}},
	}
	securityGroups = &kind{
		name: "Microsoft.Network/networkSecurityGroups", client: "NetworkSecurityGroups", patch: "UpdateTags", behaviour: securityGroupType{},
		parts: []part{{list: "securityRules", client: "SecurityRules"}},
	}
	applicationGroups = &kind{name: "Microsoft.Network/applicationSecurityGroups", client: "ApplicationSecurityGroups", patch: "UpdateTags", behaviour: applicationGroupType{}}
	publicAddresses   = &kind{name: "Microsoft.Network/publicIPAddresses", client: "PublicIPAddresses", patch: "UpdateTags", behaviour: publicType{}}
	virtualMachines   = &kind{name: "Microsoft.Compute/virtualMachines", client: "VirtualMachines", patch: "Update", loud: true, behaviour: machineType{}}

	scaleSets = &kind{name: "Microsoft.Compute/virtualMachineScaleSets", client: "VirtualMachineScaleSets", patch: "Update", loud: true, behaviour: scaleSetType{}}
	// What follows is reached through a scale set.
	scaleInterfaces = &kind{
		name: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces", client: "NetworkInterfaces", behaviour: interfaceType{},
		parts: []part{{list: "ipConfigurations", readOnly: true}},
	}
	scaleMachines = &kind{name: "Microsoft.Compute/virtualMachineScaleSets/virtualMachines", client: "VirtualMachineScaleSetVMs", behaviour: scaleMachineType{}}

	// kinds are all of them, what others refer to first.
	kinds = []*kind{
		applicationGroups, securityGroups, publicAddresses, virtualNetworks, networkInterfaces, scaleSets, virtualMachines, scaleInterfaces, scaleMachines,
	}
	anyInterface = []*kind{networkInterfaces, scaleInterfaces}
	anyMachine   = []*kind{virtualMachines, scaleMachines}
)

func (k *kind) provider() string { p, _, _ := strings.Cut(k.name, "/"); return p }
func (k *kind) plural() string   { _, t, _ := strings.Cut(k.name, "/"); return t }

// inNetwork says whether it is as Microsoft.Network writes it.
func (k *kind) inNetwork() bool { return k.provider() == networkAPI || k == scaleInterfaces }

// kindOf finds a kind by its provider and type.
func kindOf(provider, t string) *kind {
	i := slices.IndexFunc(kinds, func(k *kind) bool { return strings.EqualFold(k.name, provider+"/"+t) })
	if i < 0 {
		return nil
	}
	return kinds[i]
}

// part finds what is inside of resources of the kind by its type.
func (k *kind) part(t string) *part {
	for i := range k.parts {
		if strings.EqualFold(k.parts[i].list, t) {
			return &k.parts[i]
		}
	}
	return nil
}

// load makes a resource of a document, which it takes over. What Azure computes is taken out.
func (k *kind) load(id resourceID, doc Document) (*resource, *apiError) {
	r := &resource{id: id, kind: k, doc: doc, state: "Succeeded"}
	without(doc, "id", "name", "type", "etag", "systemData")
	props := object(doc, "properties")
	without(props, "provisioningState", "resourceGuid")
	tags, err := tagsOf(doc)
	if err != nil {
		return nil, malformed("InvalidRequestContent", "%v", err)
	}
	if fail := checkTags(tags); fail != nil {
		return nil, fail
	}
	for _, p := range k.parts {
		if fail := trimParts(props, p.list); fail != nil {
			return nil, fail
		}
	}
	if s, ok := doc["location"].(string); ok {
		doc["location"] = region(s)
	}
	if fail := k.parse(r); fail != nil {
		return nil, fail
	}
	return r, nil
}

// region is a location's name as Azure keeps it: westeurope for West Europe.
func region(s string) string { return strings.ReplaceAll(fold(s), " ", "") }

func (r *resource) location() string { return text(r.doc, "location") }

// trimParts takes what Azure computes out of the parts, and refuses those without a proper name or with
// one that another has.
func trimParts(props Document, list string) *apiError {
	items, ok := props[list].([]any)
	if props[list] != nil && !ok {
		return malformed("InvalidRequestContent", "%s is not a list.", list)
	}
	if items == nil {
		items = []any{}
	}
	props[list] = items
	taken := map[string]bool{}
	for i, it := range items {
		o, ok := it.(map[string]any)
		if !ok {
			return malformed("InvalidRequestContent", "%s[%d] is not an object.", list, i)
		}
		without(o, "id", "etag", "type")
		without(object(o, "properties"), "provisioningState")
		name := text(o, "name")
		if fail := checkName(name); fail != nil {
			return fail
		}
		if taken[fold(name)] {
			return malformed("DuplicateResourceName", "Resource %s has two child resources with the same name (%s).", list, name)
		}
		taken[fold(name)] = true
	}
	return nil
}

func checkName(name string) *apiError {
	if nameRE.MatchString(name) {
		return nil
	}
	return errf("InvalidResourceName", "Resource name %s is invalid. The name can be up to 80 characters long. It must begin with a word character, and it must end with a word character or with '_'. The name may contain word characters or '.', '-', '_'.", name)
}

// body is how a resource is answered.
func (w *world) body(r *resource) Document {
	body := copied(r.doc).(Document)
	body["id"], body["name"], body["type"] = r.id.String(), r.id.name(), r.kind.name
	props := object(body, "properties")
	props["provisioningState"] = r.state
	body["etag"] = r.etag
	if r.kind.inNetwork() {
		props["resourceGuid"] = r.guid
	}
	for _, p := range r.kind.parts {
		for _, o := range objects(props, p.list) {
			o["id"], o["etag"] = r.id.child(p.list, text(o, "name")).String(), r.etag
			o["type"] = r.kind.name + "/" + p.list
			object(o, "properties")["provisioningState"] = r.state
		}
	}
	r.kind.render(w, r, body)
	return body
}

// partBody is how a part of a resource is answered, as it is written in its parent; nil when there is none.
func (w *world) partBody(r *resource, list, name string) Document {
	for _, o := range objects(object(w.body(r), "properties"), list) {
		if strings.EqualFold(text(o, "name"), name) {
			return o
		}
	}
	return nil
}

func references(ids []string) []any {
	out := []any{}
	for _, id := range ids {
		out = append(out, Document{"id": id})
	}
	return out
}

// reference is a link as documents have it.
type reference struct {
	ID string `json:"id"`
}

func (r *reference) id() string {
	if r == nil {
		return ""
	}
	return r.ID
}
