package aws

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

var noInstance = idError("InvalidInstanceID.NotFound", "i", "instance ID")

// primary is the first interface, nil when the instance has ended.
func (i *Instance) primary() *Interface {
	if len(i.Interfaces) == 0 {
		return nil
	}
	return i.Interfaces[0]
}

// over makes a filter that an instance passes when one of its interfaces does.
func over(f func(*Interface) []string) func(*Instance) []string {
	return func(i *Instance) []string {
		var out []string
		for _, n := range i.Interfaces {
			out = append(out, f(n)...)
		}
		return out
	}
}

// first makes a filter of the primary interface.
func first(f func(*Interface) []string) func(*Instance) []string {
	return func(i *Instance) []string {
		if n := i.primary(); n != nil {
			return f(n)
		}
		return nil
	}
}

func (q *request) instanceFilters() filters[*Instance] {
	f := filters[*Instance]{
		"instance-id":         one(func(i *Instance) string { return i.ID }),
		"instance-state-name": one(func(i *Instance) string { return i.State }),
		"instance-state-code": one(func(i *Instance) string { return itoa(stateCodes[i.State]) }),
		"instance-type":       one(func(i *Instance) string { return i.Type }),
		"image-id":            one(func(i *Instance) string { return i.Image }),
		"key-name":            one(func(i *Instance) string { return i.Key }),
		"reservation-id":      one(func(i *Instance) string { return i.Reservation }),
		"launch-time":         one(func(i *Instance) string { return i.Launched.UTC().Format("2006-01-02T15:04:05.000Z") }),
		"architecture":        one(func(*Instance) string { return "x86_64" }),
		"vpc-id":              first(func(n *Interface) []string { return []string{n.vpc} }),
		"subnet-id":           first(func(n *Interface) []string { return []string{n.Subnet} }),
		"availability-zone":   first(func(n *Interface) []string { return []string{q.zone(n)} }),
		"private-ip-address":  first(func(n *Interface) []string { return addrTexts(n.PrivateIPs[:1]) }),
		"ip-address":          first(publicTexts),
		"ipv6-address":        over(func(n *Interface) []string { return addrTexts(n.IPv6) }),
		"instance.group-id":   over(q.lagging),
		"instance.group-name": over(func(n *Interface) []string { return q.groupNames(q.lagging(n)) }),
	}
	for name, get := range q.interfaceFilters() {
		switch name {
		case "group-id":
			get = q.lagging
		case "group-name":
			get = func(n *Interface) []string { return q.groupNames(q.lagging(n)) }
		}
		f["network-interface."+name] = over(get)
	}
	return withOwner(f, q)
}

// lagging are the groups of an interface as DescribeInstances knows them.
func (q *request) lagging(n *Interface) []string {
	if !n.changed.IsZero() && q.now.Before(n.changed.Add(q.c.opts.InstanceLag)) {
		return n.was
	}
	return n.Groups
}

func describeInstances(q *request) ([]elem, error) {
	ids := q.p.list("InstanceId")
	if len(ids) > 0 && q.p.has("MaxResults") {
		return nil, errf("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	is, err := pick(q.s.instances, ids, noInstance)
	if err != nil {
		return nil, err
	}
	is, err = sift(q, is, q.instanceFilters(), func(i *Instance) map[string]string { return i.Tags })
	if err != nil {
		return nil, err
	}
	key := func(i *Instance) string { return i.Reservation + "/" + i.ID }
	slices.SortFunc(is, func(a, b *Instance) int { return cmp.Compare(key(a), key(b)) })
	is, next, err := cut(q, is, key, usual)
	if err != nil {
		return nil, err
	}
	var reservations [][]*Instance
	for k, i := range is {
		if k == 0 || is[k-1].Reservation != i.Reservation {
			reservations = append(reservations, nil)
		}
		last := len(reservations) - 1
		reservations[last] = append(reservations[last], i)
	}
	return []elem{items("reservationSet", reservations, q.reservationXML), opt("nextToken", next)}, nil
}

func (q *request) reservationXML(is []*Instance) []elem {
	return []elem{
		tx("reservationId", is[0].Reservation), tx("ownerId", q.key.account), el("groupSet"), items("instancesSet", is, q.instanceXML),
	}
}

func stateXML(name, state string) elem {
	return el(name, integer("code", stateCodes[state]), tx("name", state))
}

func (q *request) instanceXML(i *Instance) []elem {
	e := []elem{
		tx("instanceId", i.ID), tx("imageId", i.Image), stateXML("instanceState", i.State), tx("privateDnsName", ""), tx("dnsName", ""),
		tx("reason", ""), opt("keyName", i.Key), integer("amiLaunchIndex", 0), tx("instanceType", i.Type), instant("launchTime", i.Launched),
		el("monitoring", tx("state", "disabled")), tx("architecture", "x86_64"), tx("rootDeviceType", "ebs"), tx("rootDeviceName", "/dev/xvda"),
		tx("virtualizationType", "hvm"), tx("hypervisor", "xen"), boolean("ebsOptimized", false), boolean("enaSupport", true), tagSet(i.Tags),
	}
	n := i.primary()
	if n == nil {
		return append(e, el("placement", tx("availabilityZone", q.key.region+"a"), tx("tenancy", "default")), el("groupSet"), el("networkInterfaceSet"))
	}
	e = append(e,
		el("placement", tx("availabilityZone", q.zone(n)), tx("groupName", ""), tx("tenancy", "default")),
		tx("subnetId", n.Subnet), tx("vpcId", n.vpc), tx("privateIpAddress", n.PrivateIPs[0].String()), boolean("sourceDestCheck", true),
		q.groupSet(q.lagging(n)),
		items("networkInterfaceSet", i.Interfaces, func(n *Interface) []elem { return q.interfaceXML(n, q.lagging(n), "") }))
	if n.PublicIP.IsValid() {
		e = append(e, tx("ipAddress", n.PublicIP.String()))
	}
	if len(n.IPv6) > 0 {
		e = append(e, tx("ipv6Address", n.IPv6[0].String()))
	}
	return e
}

const runParams = "ImageId! MinCount! MaxCount! InstanceType KeyName SubnetId SecurityGroupId PrivateIpAddress NetworkInterface " +
	"Ipv6AddressCount TagSpecification ClientToken UserData Monitoring EbsOptimized DisableApiTermination"

// wanted is one interface that RunInstances asks for.
type wanted struct {
	subnet      *Subnet
	groups      []string
	address     netip.Addr
	public      bool
	ipv6        int
	description string
}

func (q *request) wanted() ([]wanted, error) {
	specs := q.p.structs("NetworkInterface")
	if len(specs) == 0 {
		w, err := q.wantedOne(q.p, "SecurityGroupId")
		return []wanted{w}, err
	}
	if q.p.has("SubnetId") || q.p.has("SecurityGroupId") || q.p.has("PrivateIpAddress") || q.p.has("Ipv6AddressCount") {
		return nil, errf("InvalidParameterCombination", "Network interfaces and an instance-level subnet ID, address or security groups may not be specified on the same request")
	}
	var out []wanted
	for i, p := range specs {
		p.allow("DeviceIndex", "SubnetId", "SecurityGroupId", "PrivateIpAddress", "AssociatePublicIpAddress", "Ipv6AddressCount", "Description", "DeleteOnTermination")
		if d, _ := p.num("DeviceIndex"); d != i {
			return nil, invalid("The device indexes must be 0, 1, ... in order")
		}
		w, err := q.wantedOne(p, "SecurityGroupId")
		if err != nil {
			return nil, err
		}
		out = append(out, w)
	}
	return out, nil
}

func (q *request) wantedOne(p *params, groups string) (wanted, error) {
	w := wanted{subnet: q.s.subnets[p.str("SubnetId")], groups: p.list(groups), description: p.str("Description")}
	w.ipv6, _ = p.num("Ipv6AddressCount")
	if !p.has("SubnetId") {
		for _, n := range sortedValues(q.s.subnets) {
			if q.s.vpcs[n.VPC].Default && w.subnet == nil {
				w.subnet = n
			}
		}
		if w.subnet == nil {
			return w, errf("MissingInput", "No subnets found for the default VPC. Please specify a subnet.")
		}
	}
	if w.subnet == nil {
		return w, idError("InvalidSubnetID.NotFound", "subnet", "subnet ID")(p.str("SubnetId"))
	}
	w.public = w.subnet.PublicIP
	if p.has("AssociatePublicIpAddress") {
		w.public = p.flag("AssociatePublicIpAddress")
	}
	if w.ipv6 < 0 || w.ipv6 > 1 || w.ipv6 > 0 && len(w.subnet.CIDRs) < 2 {
		return w, invalid("Invalid number of IPv6 addresses %d for %s", w.ipv6, w.subnet.ID)
	}
	if p.has("PrivateIpAddress") {
		a, err := netip.ParseAddr(p.str("PrivateIpAddress"))
		if err != nil || !w.subnet.CIDRs[0].Contains(a) {
			return w, invalid("Address %s does not fall within the subnet's address range", p.str("PrivateIpAddress"))
		}
		if q.s.owner(w.subnet.VPC, a) != nil {
			return w, errf("InvalidIPAddress.InUse", "Address %s is in use.", a)
		}
		w.address = a
	}
	if len(w.groups) == 0 {
		w.groups = []string{q.s.groupNamed(w.subnet.VPC, "default").ID}
	}
	return w, q.checkGroups(w.groups, w.subnet.VPC)
}

func runInstances(q *request) ([]elem, error) {
	least, _ := q.p.num("MinCount")
	most, _ := q.p.num("MaxCount")
	tags, err := q.tagSpecsOf("instance", "network-interface", "volume")
	if err != nil {
		return nil, err
	}
	if least < 1 || most < least || most > 1000 {
		return nil, invalid("MinCount %d and MaxCount %d must be from 1 to 1000, in order", least, most)
	}
	want, err := q.wanted()
	if err == nil && q.p.bad != nil {
		err = q.p.bad
	}
	if err != nil {
		return nil, err
	}
	free := q.s.limits().Interfaces - len(q.s.enis)
	count := min(most, free/len(want))
	if count < least {
		return nil, errf("InstanceLimitExceeded", "You have requested more instances or interfaces than your current limit allows.")
	}
	var is []*Instance
	reservation := q.w.newID("r")
	for range count {
		i := &Instance{
			ID: q.w.newID("i"), Reservation: reservation, Image: q.p.str("ImageId"), Type: cmp.Or(q.p.str("InstanceType"), "m1.small"),
			Key: q.p.str("KeyName"), State: "pending", Launched: q.now.UTC().Truncate(time.Second), Tags: cloneTags(tags["instance"]),
		}
		for device, w := range want {
			n, err := q.build(w, i, device)
			if err != nil { // a full subnet: give back what this call took
				for _, done := range append(is, i) {
					for _, n := range done.Interfaces {
						q.s.unplug(n)
					}
					delete(q.s.instances, done.ID)
				}
				return nil, err
			}
			n.Tags = cloneTags(tags["network-interface"])
			i.Interfaces = append(i.Interfaces, n)
		}
		q.w.arm(i, q.now)
		q.s.instances[i.ID] = i
		is = append(is, i)
	}
	return q.reservationXML(is), nil
}

// build makes and plugs in one interface.
func (q *request) build(w wanted, i *Instance, device int) (*Interface, error) {
	n := &Interface{
		ID: q.w.newID("eni"), Subnet: w.subnet.ID, Description: w.description, Attachment: q.w.newID("eni-attach"),
		Groups: slices.Clone(w.groups), vpc: w.subnet.VPC, instance: i, device: device,
	}
	n.MAC = macOf(n.ID)
	a := w.address
	if !a.IsValid() || q.s.owner(n.vpc, a) != nil {
		var err error
		if a, err = q.s.freeAddr(w.subnet); err != nil {
			return nil, errf("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", w.subnet.ID)
		}
	}
	n.PrivateIPs = []netip.Addr{a}
	if w.public {
		n.PublicIP = q.w.newPublicIP()
	}
	if w.ipv6 > 0 {
		six := w.subnet.CIDRs[1].Addr()
		for range 5 {
			six = six.Next()
		}
		for q.s.owner(n.vpc, six) != nil {
			six = six.Next()
		}
		n.IPv6 = []netip.Addr{six}
	}
	q.s.plug(n)
	return n, nil
}

// change is what a lifecycle call does to an instance in a state: the new state, or empty when it may not.
type change func(state string) string

func start(state string) string {
	switch state {
	case "stopped":
		return "pending"
	case "pending", "running":
		return state
	}
	return ""
}

func stop(state string) string {
	switch state {
	case "running", "pending":
		return "stopping"
	case "stopping", "stopped":
		return state
	}
	return ""
}

func terminate(state string) string {
	switch state {
	case "shutting-down", "terminated":
		return state
	}
	return "shutting-down"
}

// changeInstances moves all the named instances, or none.
func changeInstances(f change) func(*request) ([]elem, error) {
	return func(q *request) ([]elem, error) {
		is, err := pick(q.s.instances, q.p.list("InstanceId"), noInstance)
		if err != nil {
			return nil, err
		}
		if q.p.bad != nil {
			return nil, q.p.bad
		}
		for _, i := range is {
			if f(i.State) == "" {
				return nil, errf("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be changed: %s", i.ID, i.State)
			}
		}
		before := map[string]string{}
		for _, i := range is {
			before[i.ID] = i.State
			to := f(i.State)
			if to == i.State {
				continue
			}
			i.State = to
			q.w.arm(i, q.now)
			for _, n := range i.Interfaces {
				if to == "pending" && n.autoPublic {
					n.PublicIP, n.autoPublic = q.w.newPublicIP(), false
				}
			}
		}
		return []elem{items("instancesSet", is, func(i *Instance) []elem {
			return []elem{tx("instanceId", i.ID), stateXML("currentState", i.State), stateXML("previousState", before[i.ID])}
		})}, nil
	}
}
