package azure

import (
	"slices"
	"strings"
	"time"
)

// machine is what matters of a virtual machine.
type machine struct {
	id      resourceID
	nics    []string // ids
	primary int
	drop    []string // keys of the interfaces that go with it
	set     string   // id of its scale set; empty is none
}

// loudID is the id as Microsoft.Compute tells it to others: with the resource group in capitals.
func (m *machine) loudID() string {
	id := m.id
	id.group = strings.ToUpper(id.group)
	return id.String()
}

// machineType is how virtual machines behave.
type machineType struct{}

type machineDoc struct {
	Properties struct {
		NetworkProfile struct {
			NetworkInterfaces []struct {
				ID         string `json:"id"`
				Properties struct {
					Primary      *bool  `json:"primary"`
					DeleteOption string `json:"deleteOption"`
				} `json:"properties"`
			} `json:"networkInterfaces"`
			NetworkInterfaceConfigurations []struct{} `json:"networkInterfaceConfigurations"`
		} `json:"networkProfile"`
		VirtualMachineScaleSet *reference `json:"virtualMachineScaleSet"`
	} `json:"properties"`
}

func (machineType) parse(r *resource) *apiError {
	props := object(r.doc, "properties")
	without(props, "vmId", "instanceView", "timeCreated")
	without(r.doc, "resources")
	d, err := view[machineDoc](r.doc)
	if err != nil {
		return errf("InvalidParameter", "Required parameter 'networkProfile' is malformed: %v", err)
	}
	p := d.Properties.NetworkProfile
	if len(p.NetworkInterfaceConfigurations) > 0 {
		return errf("OperationNotAllowed", "networkInterfaceConfigurations are not simulated: make the network interfaces first")
	}
	if len(p.NetworkInterfaces) == 0 {
		return errf("InvalidParameter", "Virtual machine must have at least one network interface.")
	}
	m := &machine{id: r.id, set: d.Properties.VirtualMachineScaleSet.id()}
	primaries := 0
	for i, n := range p.NetworkInterfaces {
		id, err := parseID(n.ID)
		if err != nil {
			return errf("InvalidParameter", "The value '%s' of parameter 'networkProfile.networkInterfaces.id' is invalid.", n.ID)
		}
		if slices.ContainsFunc(m.nics, func(o string) bool { return keyOf(o) == id.key() }) {
			return errf("InvalidParameter", "Network interface %s is given twice.", n.ID)
		}
		m.nics = append(m.nics, n.ID)
		if n.Properties.Primary != nil && *n.Properties.Primary {
			m.primary = i
			primaries++
		}
		if n.Properties.DeleteOption == "Delete" {
			m.drop = append(m.drop, id.key())
		}
	}
	if len(m.nics) > 1 && primaries != 1 {
		return errf("VirtualMachineMustHaveOneNetworkInterfaceAsPrimary", "Virtual machine %s must have one network interface set as the primary.", r.id.name())
	}
	r.view = m
	return nil
}

func (machineType) links(r *resource) []link {
	m := r.view.(*machine)
	out := make([]link, 0, len(m.nics))
	for _, n := range m.nics {
		out = append(out, link{n, "Microsoft.Network/networkInterfaces/join/action"})
	}
	if m.set != "" {
		out = append(out, link{m.set, ""})
	}
	return out
}

func (machineType) check(w *world, r, old *resource) *apiError {
	m := r.view.(*machine)
	if fail := w.overQuota(r, "QuotaExceeded", w.quotas(r).VirtualMachines); fail != nil {
		return fail
	}
	network := ""
	for _, n := range m.nics {
		if fail := w.resolve(r, n, networkInterfaces, true); fail != nil {
			return fail
		}
		for _, u := range w.usersOf(keyOf(n), virtualMachines) {
			if u.key() != r.key() {
				return errf("NicInUse", "Network Interface %s is used by existing resource %s.", n, u.id)
			}
		}
		o := w.things[keyOf(n)].networkOf()
		if network != "" && o != network {
			return errf("InvalidParameter", "All network interfaces of virtual machine %s must be in the same virtual network.", r.id.name())
		}
		network = o
	}
	if old == nil {
		return nil
	}
	was := old.view.(*machine)
	if !slices.Equal(foldedSet(was.nics), foldedSet(m.nics)) && old.power != "deallocated" {
		return errf("OperationNotAllowed", "Network interfaces can be added to and removed from virtual machine '%s' only while it is deallocated.", r.id.name())
	}
	return nil
}

// powerNames are the display statuses of power states.
var powerNames = map[string]string{ // read only
	"running": "VM running", "starting": "VM starting", "stopped": "VM stopped", "stopping": "VM stopping",
	"deallocated": "VM deallocated", "deallocating": "VM deallocating",
}

func (machineType) render(w *world, r *resource, body Document) {
	props := object(body, "properties")
	props["vmId"] = r.guid
	props["timeCreated"] = r.born
}

// instanceView is what is known of a running machine.
func (r *resource) instanceView() Document {
	statuses := []any{Document{
		"code": "ProvisioningState/" + fold(r.state), "level": "Info", "displayStatus": "Provisioning " + fold(r.state),
		"time": time.Unix(1704067200, 0).UTC().Format(time.RFC3339),
	}}
	if r.power != "" {
		statuses = append(statuses, Document{"code": "PowerState/" + r.power, "level": "Info", "displayStatus": powerNames[r.power]})
	}
	return Document{"statuses": statuses}
}

// powerOf reads the power state of a document with an instance view; running when it has none.
func powerOf(doc Document) string {
	v, _ := object(doc, "properties")["instanceView"].(map[string]any)
	for _, s := range objects(v, "statuses") {
		if p, ok := strings.CutPrefix(text(s, "code"), "PowerState/"); ok && powerNames[p] != "" {
			return p
		}
	}
	return "running"
}

func (machineType) inUse(*world, *resource) *apiError { return nil }

// powerAction is what an action makes of a machine: at once, and when it is done.
type powerAction struct{ passing, then string }

var powerActions = map[string]powerAction{ // read only
	"start":      {"starting", "running"},
	"restart":    {"running", "running"},
	"poweroff":   {"stopping", "stopped"},
	"deallocate": {"deallocating", "deallocated"},
}
