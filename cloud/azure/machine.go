package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"isobar.dev/cloud"
)

// machine is a virtual machine, or an instance of a uniform scale set.
type machine struct {
	head
	Properties struct {
		VMID              string `json:"vmId"`
		ProvisioningState string `json:"provisioningState"`
		Created           string `json:"timeCreated"`
		Network           struct {
			Interfaces []reference `json:"networkInterfaces"`
		} `json:"networkProfile"`
		View struct {
			Statuses []status `json:"statuses"`
		} `json:"instanceView"`
	} `json:"properties"`
}

type status struct {
	Code string `json:"code"`
}

// The types of what uniform scale sets consist of.
const (
	typeInstance    = typeScaleSet + "/virtualMachines"
	typeInstanceNIC = typeInstance + "/networkInterfaces"
	typeInstanceIP  = typeInstanceNIC + "/ipConfigurations/publicIPAddresses"
)

// isInstanceNIC says whether an ID is that of an interface which is its scale set's, and
// cannot be written.
func isInstanceNIC(id string) bool {
	x, err := parseID(id)
	return err == nil && x.is(typeInstanceNIC)
}

// powerStates are ours for Azure's; who is told another one does not know it.
var powerStates = map[string]string{ // read only
	"running": "running", "starting": "starting", "stopping": "stopping", "stopped": "stopped",
	"deallocated": "stopped", "deallocating": "shutting down", "unknown": "unknown",
}

// stateOf returns the state that Azure tells among other things, or "unknown".
func stateOf(statuses []status) string {
	for _, s := range statuses {
		if code, ok := strings.CutPrefix(strings.ToLower(s.Code), "powerstate/"); ok {
			if state := powerStates[code]; state != "" {
				return state
			}
		}
	}
	return "unknown"
}

// created returns when it was made.
func (m *machine) created() time.Time {
	at, err := time.Parse(time.RFC3339, m.Properties.Created)
	if err != nil {
		return time.Time{}
	}
	return at
}

// isStarting says whether it is not up yet.
func (m *machine) isStarting(state string) bool {
	return state == "starting" || strings.EqualFold(m.Properties.ProvisioningState, "Creating")
}

// estate is what is in a region, as far as VMs need it, all listed one after another:
// what a VM refers to is listed after it.
type estate struct {
	region   *region
	machines []*machine        // by key
	states   map[string]string // by the machine's key
	created  []creation        // of all machines of the subscription
	nics     map[string]*nic
	ips      map[string]*publicIP
	networks map[string]*vnet  // of the whole subscription
	names    map[string]string // of the objects of networks, by key
	looked   int               // resources read one by one
}

// creation is what the name of an object depends on.
type creation struct {
	key string
	at  time.Time // zero where Azure does not tell
}

// estate lists what is in the region.
func (r *region) estate(ctx context.Context) (*estate, error) {
	e := &estate{region: r, states: map[string]string{}, nics: map[string]*nic{}, ips: map[string]*publicIP{}, networks: map[string]*vnet{}}
	for _, step := range []func(context.Context) error{e.listMachines, e.listStates, e.listScaleSets, e.listNetwork} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *estate) listMachines(ctx context.Context) error {
	all, err := resources[machine](ctx, e.region.client, typeVM, computeVersion, "")
	if err != nil {
		return err
	}
	for _, m := range all {
		e.created = append(e.created, creation{m.key(), m.created()})
		if locationOf(m.Location) == e.region.name {
			e.machines = append(e.machines, m)
		}
	}
	return nil
}

// listStates reads the power states, which Azure tells apart from the rest.
func (e *estate) listStates(ctx context.Context) error {
	if len(e.machines) == 0 {
		return nil
	}
	path, query := "/subscriptions/"+e.region.subscription+"/providers/"+typeVM, url.Values{"api-version": {computeVersion}, "statusOnly": {"true"}}
	err := e.region.listAt(ctx, path, query, func(raw json.RawMessage) error {
		m, err := parseResource[machine](raw, typeVM)
		if err == nil {
			e.states[m.key()] = stateOf(m.Properties.View.Statuses)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("region %s: list states of %s: %w", e.region.name, typeVM, err)
	}
	return nil
}

// scaleSet is a set of machines. In a flexible one these are virtual machines like
// others.
type scaleSet struct {
	head
	Properties struct {
		Mode    string `json:"orchestrationMode"`
		Profile struct {
			Network struct {
				Interfaces []struct {
					Properties struct {
						Configs []ipConfig `json:"ipConfigurations"`
					} `json:"properties"`
				} `json:"networkInterfaceConfigurations"`
			} `json:"networkProfile"`
		} `json:"virtualMachineProfile"`
	} `json:"properties"`
}

// asgs returns the keys of the application security groups that interfaces of its
// machines are made with, sorted.
func (s *scaleSet) asgs() []string {
	var out []string
	for _, n := range s.Properties.Profile.Network.Interfaces {
		for _, c := range n.Properties.Configs {
			for _, g := range c.Properties.ASGs {
				out = append(out, strings.ToLower(g.ID))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// listScaleSets reads the instances of uniform scale sets, which are told of set by set.
func (e *estate) listScaleSets(ctx context.Context) error {
	sets, err := resources[scaleSet](ctx, e.region.client, typeScaleSet, computeVersion, e.region.name)
	if err != nil {
		return err
	}
	for _, s := range sets {
		if strings.EqualFold(s.Properties.Mode, "Flexible") {
			continue
		}
		if err := e.listInstances(ctx, s); err != nil && resultOf(err) != ResultGone {
			return fmt.Errorf("region %s: scale set %s: %w", e.region.name, s.id.name(), err)
		}
	}
	return nil
}

func (e *estate) listInstances(ctx context.Context, s *scaleSet) error {
	var machines []*machine
	err := e.region.listAt(ctx, s.id.path()+"/virtualMachines", url.Values{"api-version": {computeVersion}, "$expand": {"instanceView"}}, func(raw json.RawMessage) error {
		m, err := parseResource[machine](raw, typeInstance)
		if err == nil {
			machines = append(machines, m)
		}
		return err
	})
	if err != nil || len(machines) == 0 {
		return err
	}
	hasPublic := false
	query := url.Values{"api-version": {scaleSetVersion}}
	err = e.region.listAt(ctx, s.id.path()+"/networkInterfaces", query, func(raw json.RawMessage) error {
		n, err := parseResource[nic](raw, typeInstanceNIC)
		if err != nil {
			return err
		}
		e.nics[n.key()] = n
		for _, c := range n.Properties.Configs {
			hasPublic = hasPublic || c.Properties.PublicIP != nil
		}
		return nil
	})
	if err == nil && hasPublic {
		err = e.region.listAt(ctx, s.id.path()+"/publicIPAddresses", query, func(raw json.RawMessage) error {
			p, err := parseResource[publicIP](raw, typeInstanceIP)
			if err == nil {
				e.ips[p.key()] = p
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	for _, m := range machines {
		if _, twice := e.states[m.key()]; !twice { // as in resources
			e.machines = append(e.machines, m)
		}
		e.states[m.key()] = stateOf(m.Properties.View.Statuses)
	}
	return nil
}

func (e *estate) listNetwork(ctx context.Context) error {
	if len(e.machines) == 0 {
		return nil
	}
	nics, err := e.region.networkInterfaces(ctx, e.region.name)
	if err != nil {
		return err
	}
	for _, n := range nics {
		e.nics[n.key()] = n
	}
	ips, err := e.region.publicAddresses(ctx, e.region.name)
	if err != nil {
		return err
	}
	for _, p := range ips {
		e.ips[p.key()] = p
	}
	networks, err := e.region.networks(ctx, "")
	if err != nil {
		return err
	}
	e.names = networkNames(networks)
	for _, n := range networks {
		e.networks[n.key()] = n
	}
	return nil
}

// maxLooked bounds how many resources are read one by one that a listing has left
// out, although others refer to them: Azure's lists lag behind.
const maxLooked = 200

// look reads a resource that a listing has left out. It returns nil when it is gone.
func (e *estate) look(ctx context.Context, ref, kind string) ([]byte, error) {
	id, err := parseID(ref)
	if err != nil {
		return nil, err
	}
	if !id.is(kind) {
		return nil, nil // such a one has come and gone with its scale set
	}
	if e.looked++; e.looked > maxLooked {
		return nil, errors.New("the lists lack too much of what their machines have")
	}
	doc, err := e.region.get(ctx, id)
	if resultOf(err) == ResultGone {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", id, err)
	}
	return json.Marshal(doc)
}

func (e *estate) nic(ctx context.Context, ref string) (*nic, error) {
	if n := e.nics[strings.ToLower(ref)]; n != nil {
		return n, nil
	}
	raw, err := e.look(ctx, ref, typeNIC)
	if err != nil || raw == nil {
		return nil, err
	}
	n, err := parseResource[nic](raw, typeNIC)
	if err == nil {
		e.nics[n.key()] = n
	}
	return n, err
}

func (e *estate) publicIP(ctx context.Context, ref string) (*publicIP, error) {
	if p := e.ips[strings.ToLower(ref)]; p != nil {
		return p, nil
	}
	raw, err := e.look(ctx, ref, typePublicIP)
	if err != nil || raw == nil {
		return nil, err
	}
	p, err := parseResource[publicIP](raw, typePublicIP)
	if err == nil {
		e.ips[p.key()] = p
	}
	return p, err
}

// vms returns the machines as VMs, by ID. One that is in no network has no interface
// left: it is about to go, and is left out.
func (e *estate) vms(ctx context.Context) ([]listed, error) {
	names := objectNames(e.created)
	var out []listed
	for _, m := range e.machines {
		x, err := e.vm(ctx, m, names)
		if err != nil {
			return nil, fmt.Errorf("region %s: VM %s: %w", e.region.name, m.id, err)
		}
		if x.NetworkID != "" {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, func(a, b listed) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// listed is a VM, with all the subnets that it is in.
type listed struct {
	cloud.VM
	subnets []string
}

func (e *estate) vm(ctx context.Context, m *machine, names map[string]string) (listed, error) {
	key := m.key()
	state := e.states[key]
	if state == "" {
		state = "unknown" // it has come since the states were listed
	}
	x := listed{VM: cloud.VM{
		ID: key, UID: strings.ToLower(m.Properties.VMID), Name: strings.ToLower(m.id.name()), Region: e.region.name,
		State: state, Starting: m.isStarting(state), Tags: m.Tags,
	}}
	if x.Object = names[key]; m.id.is(typeInstance) {
		x.Name = strings.ToLower(m.Name) // its ID ends in a number
		x.Object = instanceName(x.Name, key)
	}
	for _, ref := range m.Properties.Network.Interfaces {
		n, err := e.nic(ctx, ref.ID)
		if err != nil {
			return x, err
		}
		if n == nil {
			continue
		}
		i, err := e.networkInterface(ctx, n)
		if err != nil {
			return x, err
		}
		x.Interfaces = append(x.Interfaces, i)
		x.subnets = append(x.subnets, n.subnets()...)
		if network := n.network(); x.NetworkID == "" && network != "" {
			x.NetworkID = network
			x.NetworkObject, x.NetworkUID, x.NetworkName, x.NetworkRef = e.network(network)
		}
	}
	slices.SortFunc(x.Interfaces, func(a, b cloud.Interface) int { return strings.Compare(a.ID, b.ID) })
	return x, nil
}

// network returns what VNets are called besides their ID.
func (e *estate) network(key string) (object, uid, name, ref string) {
	if v := e.networks[key]; v != nil {
		uid = strings.ToLower(v.Properties.GUID)
	}
	id, err := parseID(key)
	if err != nil {
		return "", "", "", ""
	}
	return cmp.Or(e.names[key], objectName(id)), uid, strings.ToLower(id.name()), id.ref()
}

func (e *estate) networkInterface(ctx context.Context, n *nic) (cloud.Interface, error) {
	x := cloud.Interface{ID: n.key(), MAC: macOf(n.Properties.MAC), ApplicationGroups: n.asgs()}
	if g := n.Properties.NSG.idOf(); g != "" {
		x.Groups = []string{strings.ToLower(g)}
	}
	for _, c := range n.Properties.Configs {
		if s := strings.ToLower(c.Properties.Subnet.idOf()); s != "" && (x.Subnet == "" || c.Properties.Primary) {
			x.Subnet = s
		}
		var err error
		if x.Private, err = appendAddr(x.Private, c.Properties.Private); err != nil {
			return x, err
		}
		if c.Properties.PublicIP == nil {
			continue
		}
		p, err := e.publicIP(ctx, c.Properties.PublicIP.ID)
		if err != nil {
			return x, err
		}
		if p == nil {
			continue
		}
		if x.Public, err = appendAddr(x.Public, p.Properties.Address); err != nil {
			return x, err
		}
	}
	return x, nil
}
