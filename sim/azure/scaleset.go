package azure

import (
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// scaleSet is what matters of a virtual machine scale set. Its machines and their interfaces are resources
// of their own, which nobody lists but through the set. Flexible sets have ordinary machines.
type scaleSet struct {
	capacity  int
	flexible  bool
	automatic bool       // machines follow the model at once, and not only when they are told to
	model     []Document // network interface configurations
}

// scaleSetType is how scale sets behave, scaleMachineType how their machines do.
type (
	scaleSetType     struct{}
	scaleMachineType struct{}
)

type scaleSetDoc struct {
	SKU struct {
		Capacity int `json:"capacity"`
	} `json:"sku"`
	Properties struct {
		OrchestrationMode string `json:"orchestrationMode"`
		UpgradePolicy     struct {
			Mode string `json:"mode"`
		} `json:"upgradePolicy"`
	} `json:"properties"`
}

// maxCapacity is how many machines a set may have.
const maxCapacity = 1000

func (scaleSetType) parse(r *resource) *apiError {
	props := object(r.doc, "properties")
	without(props, "uniqueId", "timeCreated")
	orDefault(props, "orchestrationMode", "Uniform")
	orDefault(object(props, "upgradePolicy"), "mode", "Manual")
	d, err := view[scaleSetDoc](r.doc)
	if err != nil {
		return errf("InvalidParameter", "The scale set cannot be read: %v", err)
	}
	s := &scaleSet{
		capacity: d.SKU.Capacity, flexible: d.Properties.OrchestrationMode == "Flexible", automatic: d.Properties.UpgradePolicy.Mode == "Automatic",
		model: objects(inside(r.doc, "properties", "virtualMachineProfile", "networkProfile"), "networkInterfaceConfigurations"),
	}
	if s.capacity < 0 || s.capacity > maxCapacity {
		return errf("InvalidParameter", "The value '%d' of parameter 'sku.capacity' is out of range.", s.capacity)
	}
	if !s.flexible && len(s.model) == 0 {
		return errf("InvalidParameter", "Required parameter 'networkProfile' is missing (null).")
	}
	r.view = s
	return nil
}

// instanceNIC is the document of an interface that a machine of the set has by a configuration.
func instanceNIC(set *resource, c Document) Document {
	return Document{"location": set.location(), "properties": object(copied(c).(Document), "properties")}
}

func (s *scaleSet) nicID(set resourceID, instance string, c Document) resourceID {
	return set.child("virtualMachines", instance).child("networkInterfaces", text(c, "name"))
}

func (scaleSetType) links(r *resource) []link {
	s := r.view.(*scaleSet)
	var out []link
	for _, c := range s.model {
		if n, fail := scaleInterfaces.load(s.nicID(r.id, "0", c), instanceNIC(r, c)); fail == nil {
			out = append(out, interfaceType{}.links(n)...)
		}
	}
	return out
}

func (scaleSetType) check(w *world, r, old *resource) *apiError {
	s := r.view.(*scaleSet)
	if old != nil && old.view.(*scaleSet).flexible != s.flexible {
		return errf("PropertyChangeNotAllowed", "Changing property 'orchestrationMode' is not allowed.")
	}
	for _, c := range s.model {
		id := s.nicID(r.id, "0", c)
		if fail := checkName(text(c, "name")); fail != nil {
			return fail
		}
		n, fail := scaleInterfaces.load(id, instanceNIC(r, c))
		if fail != nil {
			return fail
		}
		if fail := scaleInterfaces.check(w, n, w.things[id.key()]); fail != nil {
			return fail
		}
	}
	return nil
}

func (scaleSetType) render(_ *world, r *resource, body Document) {
	object(body, "properties")["uniqueId"] = r.guid
}

func (scaleSetType) inUse(w *world, r *resource) *apiError {
	for _, u := range w.usersOf(r.key(), virtualMachines) {
		return errf("OperationNotAllowed", "Virtual machine scale set %s has virtual machine %s.", r.id, u.id)
	}
	return nil
}

func (scaleMachineType) parse(r *resource) *apiError                  { return machineType{}.parse(r) }
func (scaleMachineType) links(r *resource) []link                     { return machineType{}.links(r) }
func (scaleMachineType) inUse(*world, *resource) *apiError            { return nil }
func (scaleMachineType) check(*world, *resource, *resource) *apiError { return nil }

func (scaleMachineType) render(w *world, r *resource, body Document) {
	set := w.things[r.id.parent().key()]
	body["instanceId"] = r.id.name()
	props := object(body, "properties")
	props["vmId"] = r.guid
	if set == nil {
		return
	}
	body["name"] = set.id.name() + "_" + r.id.name()
	props["latestModelApplied"] = reflect.DeepEqual(configurations(r.doc), set.view.(*scaleSet).model)
}

// configurations are the network interface configurations of a machine of a set.
func configurations(doc Document) []Document {
	return objects(inside(doc, "properties", "networkProfileConfiguration"), "networkInterfaceConfigurations")
}

// inSet are the resources of a kind in a set, or in a machine of one.
func (w *world) inSet(r *resource, k *kind) []*resource {
	var out []*resource
	for _, key := range w.list(r.id.subscription, k) {
		if strings.HasPrefix(key, r.key()+"/") {
			out = append(out, w.things[key])
		}
	}
	return out
}

// equip gives a machine of a set interfaces by configurations, and the machine itself when it is new.
// undo gets what puts back what was there.
func (w *world) equip(set *resource, instance string, model []Document, undo *[]func()) *apiError {
	store := func(r *resource) {
		old, key := w.things[r.key()], r.key()
		*undo = append(*undo, func() {
			if w.drop(key); old != nil {
				w.put(old)
			}
		})
		w.put(r)
	}
	s := set.view.(*scaleSet)
	nics, configs := []any{}, []any{}
	for i, c := range model {
		id := s.nicID(set.id, instance, c)
		old := w.things[id.key()]
		n, fail := scaleInterfaces.load(id, instanceNIC(set, c))
		if fail == nil {
			fail = scaleInterfaces.check(w, n, old)
		}
		if fail != nil {
			return fail
		}
		n.state, n.etag, n.guid = "Updating", w.newETag(), w.guid("resource")
		if old != nil {
			n.live, n.guid = old.live, old.guid
		}
		store(n)
		primary, _ := inside(c, "properties")["primary"].(bool)
		nics = append(nics, Document{"id": id.String(), "properties": Document{"primary": primary || len(model) == 1 && i == 0}})
		configs = append(configs, copied(c))
	}
	id := set.id.child("virtualMachines", instance)
	old := w.things[id.key()]
	doc := Document{"location": set.location(), "properties": Document{}}
	if old != nil {
		doc = copied(old.doc).(Document)
	}
	props := object(doc, "properties")
	props["networkProfile"] = Document{"networkInterfaces": nics}
	props["networkProfileConfiguration"] = Document{"networkInterfaceConfigurations": configs}
	m, fail := scaleMachines.load(id, doc)
	if fail != nil {
		return fail
	}
	m.state, m.etag, m.guid = "Updating", w.newETag(), w.guid("resource")
	if old != nil {
		m.live, m.guid, m.power, m.op = old.live, old.guid, old.power, old.op
	}
	store(m)
	return nil
}

// fill makes the machines that a set lacks, and changes those that follow its model at once. It does all
// or nothing.
func (w *world) fill(r *resource) *apiError {
	s := r.view.(*scaleSet)
	if s.flexible {
		return nil
	}
	have := w.inSet(r, scaleMachines)
	next := 0
	var todo []string
	for _, m := range have {
		n, _ := strconv.Atoi(m.id.name())
		next = max(next, n+1)
		if s.automatic && !reflect.DeepEqual(configurations(m.doc), s.model) {
			todo = append(todo, m.id.name())
		}
	}
	for i := len(have); i < s.capacity; i++ {
		todo = append(todo, strconv.Itoa(next))
		next++
	}
	return w.equipAll(r, todo, s.model)
}

func (w *world) equipAll(set *resource, instances []string, model []Document) *apiError {
	var undo []func()
	for _, i := range instances {
		if fail := w.equip(set, i, model, &undo); fail != nil {
			for _, u := range slices.Backward(undo) {
				u()
			}
			return fail
		}
	}
	return nil
}

// settleSet brings what is in a set, or in a machine of one, into force, and removes machines that are
// more than the set shall have: the youngest.
func (w *world) settleSet(r *resource) {
	if s, ok := r.view.(*scaleSet); ok && !s.flexible {
		ms := w.inSet(r, scaleMachines)
		slices.SortFunc(ms, func(a, b *resource) int {
			x, _ := strconv.Atoi(a.id.name())
			y, _ := strconv.Atoi(b.id.name())
			return x - y
		})
		for len(ms) > s.capacity {
			w.removeMachine(ms[len(ms)-1])
			ms = ms[:len(ms)-1]
		}
	}
	for _, k := range []*kind{scaleInterfaces, scaleMachines} {
		for _, was := range w.inSet(r, k) {
			c := *was
			c.live, c.state, c.etag = c.view, "Succeeded", w.newETag()
			if k == scaleMachines && c.power == "" {
				c.power = "running"
			}
			w.put(&c)
		}
	}
}

// removeMachine drops a machine of a set with its interfaces.
func (w *world) removeMachine(m *resource) {
	for _, n := range w.inSet(m, scaleInterfaces) {
		w.drop(n.key())
	}
	w.drop(m.key())
}

// upgradeSet makes machines follow the model.
func upgradeSet(q *request) (*answer, *apiError) {
	old := q.w.things[q.at.id.key()]
	if old == nil {
		return nil, noResource(q.at.id)
	}
	if fail := busy(old); fail != nil {
		return nil, fail
	}
	wanted, _ := q.body["instanceIds"].([]any)
	if len(wanted) == 0 {
		return nil, errf("InvalidParameter", "Required parameter 'instanceIds' is missing (null).")
	}
	var todo []string
	for _, m := range q.w.inSet(old, scaleMachines) {
		if slices.Contains(wanted, any(m.id.name())) || slices.Contains(wanted, any("*")) {
			todo = append(todo, m.id.name())
		}
	}
	if len(todo) < len(wanted) {
		return nil, errf("InvalidParameter", "The provided instanceId is not an active Virtual Machine Scale Set VM instanceId.")
	}
	if fail := q.w.equipAll(old, todo, old.view.(*scaleSet).model); fail != nil {
		return nil, fail
	}
	r := *old
	r.state, r.etag = "Updating", q.w.newETag()
	o := q.begin(&r, "put")
	q.w.put(&r)
	return &answer{status: http.StatusAccepted, header: q.async(o, true)}, nil
}

// putScaleMachine replaces what is a machine's own: its network interface configurations.
func putScaleMachine(q *request) (*answer, *apiError) {
	old, set := q.w.things[q.at.id.key()], q.w.things[q.at.id.parent().key()]
	if old == nil || set == nil {
		return nil, noResource(q.at.id)
	}
	for _, r := range []*resource{set, old} {
		if fail := busy(r); fail != nil {
			return nil, fail
		}
	}
	if fail := q.precondition(old, true); fail != nil {
		return nil, fail
	}
	model := configurations(q.body)
	if len(model) == 0 {
		return nil, errf("InvalidParameter", "Required parameter 'networkProfileConfiguration' is missing (null).")
	}
	for _, c := range model {
		if fail := checkName(text(c, "name")); fail != nil {
			return nil, fail
		}
	}
	if fail := q.w.equipAll(set, []string{old.id.name()}, model); fail != nil {
		return nil, fail
	}
	r := *q.w.things[old.key()]
	q.begin(&r, "put")
	q.w.put(&r)
	return q.accepted(&r, false, nil), nil
}

// listInSet lists machines or interfaces of a set, or interfaces of one machine.
func listInSet(k *kind) func(*request) (*answer, *apiError) {
	return func(q *request) (*answer, *apiError) {
		id := q.at.id
		id.types = id.types[:len(id.names)]
		r := q.w.things[id.key()]
		if r == nil {
			return nil, noResource(id)
		}
		expand := strings.EqualFold(q.query.Get("$expand"), "instanceView")
		if x := q.query.Get("$expand"); x != "" && !expand {
			return nil, errf("InvalidParameter", "The value '%s' of parameter '$expand' is not simulated.", clip(x))
		}
		var items []item
		for _, m := range q.w.inSet(r, k) {
			items = append(items, item{m.key(), func() Document {
				body := q.w.body(m)
				if expand {
					object(body, "properties")["instanceView"] = m.instanceView()
				}
				return body
			}})
		}
		return q.page(items)
	}
}

// routeSet is for what is in a scale set. rest begins after the set's name.
func routeSet(method string, t target, rest []string) (target, operationInfo, *apiError) {
	name := scaleSets.name
	reading := func(op operationInfo) (target, operationInfo, *apiError) {
		return t, op.reading(method), methodFail(method, "GET")
	}
	in := func(kind string) { t.id.types = append(t.id.types, kind) }
	nics := operationInfo{api: scaleNICAPI, query: "$expand", run: listInSet(scaleInterfaces)}
	switch {
	case len(rest) == 1 && fold(rest[0]) == "manualupgrade":
		return t, operationInfo{name: "VirtualMachineScaleSets_UpdateInstances", method: method, action: name + "/manualUpgrade/action", api: computeAPI, mutates: true, body: true, run: upgradeSet}, methodFail(method, "POST")
	case len(rest) == 1 && fold(rest[0]) == "networkinterfaces":
		in("networkInterfaces")
		nics.name, nics.action = "NetworkInterfaces_ListVirtualMachineScaleSetNetworkInterfaces", name+"/networkInterfaces/read"
		return reading(nics)
	case fold(rest[0]) != "virtualmachines":
		return t, operationInfo{}, noType(name + "/" + rest[0])
	}
	in("virtualMachines")
	name += "/virtualMachines"
	if len(rest) == 1 {
		return reading(operationInfo{name: "VirtualMachineScaleSetVMs_List", action: name + "/read", api: computeAPI, query: "$expand", run: listInSet(scaleMachines)})
	}
	t.id.names = append(t.id.names, rest[1])
	if err := t.id.check(); err != nil {
		return t, operationInfo{}, errf("InvalidResourceName", "%v", err)
	}
	switch {
	case len(rest) == 2 && method == http.MethodPut:
		return t, operationInfo{name: "VirtualMachineScaleSetVMs_Update", method: method, action: name + "/write", api: computeAPI, mutates: true, body: true, run: putScaleMachine}, nil
	case len(rest) == 2:
		return reading(operationInfo{name: "VirtualMachineScaleSetVMs_Get", action: name + "/read", api: computeAPI, query: "$expand", run: getResource(scaleMachines)})
	case len(rest) == 3 && fold(rest[2]) == "instanceview":
		return reading(operationInfo{name: "VirtualMachineScaleSetVMs_GetInstanceView", action: name + "/instanceView/read", api: computeAPI, run: getInstanceView})
	case len(rest) > 4 || fold(rest[2]) != "networkinterfaces":
		return t, operationInfo{}, noType(name + "/" + rest[2])
	}
	in("networkInterfaces")
	nics.name, nics.action = "NetworkInterfaces_ListVirtualMachineScaleSetVMNetworkInterfaces", name+"/networkInterfaces/read"
	if len(rest) == 4 {
		t.id.names = append(t.id.names, rest[3])
		nics.name, nics.run = "NetworkInterfaces_GetVirtualMachineScaleSetNetworkInterface", getResource(scaleInterfaces)
	}
	return reading(nics)
}
