package azure

import "net/netip"

// public is what matters of a public address.
type public struct {
	addr     netip.Addr
	standard bool // closed to what comes in unless a security group opens it
}

// publicType is how public addresses behave.
type publicType struct{}

type publicDoc struct {
	SKU struct {
		Name string `json:"name"`
	} `json:"sku"`
	Properties struct {
		IPAddress                string `json:"ipAddress"`
		PublicIPAddressVersion   string `json:"publicIPAddressVersion"`
		PublicIPAllocationMethod string `json:"publicIPAllocationMethod"`
	} `json:"properties"`
}

func (publicType) parse(r *resource) *apiError {
	sku := object(r.doc, "sku")
	orDefault(sku, "name", "Standard")
	orDefault(sku, "tier", "Regional")
	props := object(r.doc, "properties")
	without(props, "ipConfiguration")
	orDefault(props, "publicIPAddressVersion", "IPv4")
	orDefault(props, "publicIPAllocationMethod", "Static")
	orDefault(props, "idleTimeoutInMinutes", 4)
	orDefault(props, "ipTags", []any{})
	d, err := view[publicDoc](r.doc)
	if err != nil {
		return malformed("InvalidRequestContent", "%v", err)
	}
	p := &public{standard: d.SKU.Name == "Standard"}
	if p.standard && d.Properties.PublicIPAllocationMethod != "Static" {
		return errf("PublicIPAndSkuAllocationMethodMismatch", "Standard sku publicIp %s must have AllocationMethod set to Static.", r.id)
	}
	if d.Properties.IPAddress != "" {
		if p.addr, err = netip.ParseAddr(d.Properties.IPAddress); err != nil || p.addr.Is4() != (d.Properties.PublicIPAddressVersion == "IPv4") {
			return errf("InvalidIPAddressFormat", "IP address %s of %s is not an %s address.", d.Properties.IPAddress, r.id, d.Properties.PublicIPAddressVersion)
		}
	}
	r.view = p
	return nil
}

func (publicType) links(*resource) []link { return nil }

// check gives an address that the writer does not choose.
func (publicType) check(w *world, r, old *resource) *apiError {
	if fail := w.overQuota(r, "PublicIPCountLimitReached", w.quotas(r).PublicAddresses); fail != nil {
		return fail
	}
	p, props := r.view.(*public), object(r.doc, "properties")
	if old != nil {
		p.addr = old.view.(*public).addr
	}
	if !p.addr.IsValid() {
		p.addr = w.newPublic(text(props, "publicIPAddressVersion") == "IPv4")
	}
	props["ipAddress"] = p.addr.String()
	return nil
}

// newPublic makes up an address of the ranges for benchmarks and documentation.
func (w *world) newPublic(v4 bool) netip.Addr {
	a := netip.MustParseAddr("198.18.0.1")
	if !v4 {
		a = netip.MustParseAddr("2001:db8:ffff::1")
	}
	used := map[netip.Addr]bool{}
	for _, r := range w.things {
		if p, ok := r.view.(*public); ok {
			used[p.addr] = true
		}
	}
	for used[a] {
		a = a.Next()
	}
	return a
}

func (publicType) render(w *world, r *resource, body Document) {
	for _, u := range w.usersOf(r.key(), anyInterface...) {
		for _, c := range u.view.(*nic).configs {
			if keyOf(c.public) == r.key() {
				object(body, "properties")["ipConfiguration"] = Document{"id": u.id.child("ipConfigurations", c.name).String()}
			}
		}
	}
}

func (publicType) inUse(w *world, r *resource) *apiError {
	for _, u := range w.usersOf(r.key()) {
		return errf("PublicIPAddressCannotBeDeleted", "Public IP address %s can not be deleted since it is still allocated to resource %s.", r.id, u.id)
	}
	return nil
}
