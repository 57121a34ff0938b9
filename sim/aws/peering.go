package aws

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

var peeringMessages = map[string]string{
	"initiating-request": "Initiating Request", "pending-acceptance": "Pending Acceptance", "provisioning": "Provisioning",
	"active": "Active", "deleted": "Deleted", "rejected": "Rejected", "expired": "Expired", "failed": "Failed",
}

// joins says whether p is between two VPCs; an empty one is any.
func (p *Peering) joins(a, b string) bool {
	x, y := p.Requester.VPC, p.Accepter.VPC
	return (a == x || a == "") && (b == y || b == "") || (a == y || a == "") && (b == x || b == "")
}

// touches says whether the account and region is one of the ends.
func (p *Peering) touches(k siteKey) bool {
	return siteKey{p.Requester.Account, p.Requester.Region} == k || siteKey{p.Accepter.Account, p.Accepter.Region} == k
}

func (q *request) peerings() map[string]*Peering {
	out := map[string]*Peering{}
	for id, p := range q.w.peerings {
		if p.touches(q.key) {
			out[id] = p
		}
	}
	return out
}

var noPeering = idError("InvalidVpcPeeringConnectionID.NotFound", "pcx", "vpcPeeringConnection ID")

func describePeerings(q *request) ([]elem, error) {
	ps, err := pick(q.peerings(), q.p.list("VpcPeeringConnectionId"), noPeering)
	if err != nil {
		return nil, err
	}
	f := filters[*Peering]{
		"vpc-peering-connection-id": one(func(p *Peering) string { return p.ID }),
		"status-code":               one(func(p *Peering) string { return p.State }),
		"status-message":            one(func(p *Peering) string { return peeringMessages[p.State] }),
	}
	for side, end := range map[string]func(*Peering) End{
		"requester-vpc-info.": func(p *Peering) End { return p.Requester },
		"accepter-vpc-info.":  func(p *Peering) End { return p.Accepter },
	} {
		f[side+"vpc-id"] = one(func(p *Peering) string { return end(p).VPC })
		f[side+"owner-id"] = one(func(p *Peering) string { return end(p).Account })
		f[side+"cidr-block"] = func(p *Peering) []string {
			if v := q.w.vpcAt(end(p)); v != nil {
				return family(v.CIDRs, true)
			}
			return nil
		}
	}
	ps, err = sift(q, ps, f, func(p *Peering) map[string]string { return p.Tags })
	if err != nil {
		return nil, err
	}
	ps, next, err := cut(q, ps, func(p *Peering) string { return p.ID }, usual)
	if err != nil {
		return nil, err
	}
	return []elem{items("vpcPeeringConnectionSet", ps, q.peeringXML), opt("nextToken", next)}, nil
}

func (q *request) peeringXML(p *Peering) []elem {
	end := func(name string, e End) elem {
		x := el(name, tx("ownerId", e.Account), tx("vpcId", e.VPC), tx("region", e.Region))
		// EC2 tells the networks of the ends only while both agree.
		if v := q.w.vpcAt(e); v != nil && (p.State == "active" || p.State == "provisioning") {
			x.kids = append(x.kids, tx("cidrBlock", v.CIDRs[0].String()),
				items("cidrBlockSet", family(v.CIDRs, true), func(c string) []elem { return []elem{tx("cidrBlock", c)} }))
			if six := family(v.CIDRs, false); len(six) > 0 {
				x.kids = append(x.kids, items("ipv6CidrBlockSet", six, func(c string) []elem { return []elem{tx("ipv6CidrBlock", c)} }))
			}
		}
		return x
	}
	e := []elem{
		tx("vpcPeeringConnectionId", p.ID), end("requesterVpcInfo", p.Requester), end("accepterVpcInfo", p.Accepter),
		el("status", tx("code", p.State), tx("message", peeringMessages[p.State])), tagSet(p.Tags),
	}
	if p.State == "pending-acceptance" {
		e = append(e, instant("expirationTime", p.due))
	}
	return e
}

func createPeering(q *request) ([]elem, error) {
	tags, err := q.tagSpecs("vpc-peering-connection")
	if err != nil {
		return nil, err
	}
	from := End{q.key.account, q.key.region, q.p.str("VpcId")}
	to := End{cmp.Or(q.p.str("PeerOwnerId"), q.key.account), cmp.Or(q.p.str("PeerRegion"), q.key.region), q.p.str("PeerVpcId")}
	mine, theirs := q.w.vpcAt(from), q.w.vpcAt(to)
	if mine == nil {
		return nil, idError("InvalidVpcID.NotFound", "vpc", "vpc ID")(from.VPC)
	}
	if from == to {
		return nil, errf("OperationNotPermitted", "A VPC cannot be peered with itself")
	}
	live := 0
	for _, p := range q.w.peerings {
		if !slices.Contains([]string{"active", "pending-acceptance", "provisioning", "initiating-request"}, p.State) {
			continue
		}
		if p.joins(from.VPC, "") {
			live++
		}
		if p.joins(from.VPC, to.VPC) {
			return nil, errf("VpcPeeringConnectionAlreadyExists", "A peering of these VPCs exists: %s", p.ID)
		}
	}
	if live >= q.s.limits().PeeringsPerVPC {
		return nil, errf("ActiveVpcPeeringConnectionPerVpcLimitExceeded", "The VPC has the most peerings that it may have")
	}
	p := &Peering{ID: q.w.newID("pcx"), Requester: from, Accepter: to, State: "initiating-request", Tags: tags}
	// EC2 finds out later that the other VPC does not exist or that the networks overlap.
	if theirs == nil || slices.ContainsFunc(mine.CIDRs, func(a netip.Prefix) bool { return slices.ContainsFunc(theirs.CIDRs, a.Overlaps) }) {
		p.State = "failed"
	}
	q.w.peerings[p.ID] = p
	q.w.armPeering(p, q.now)
	return []elem{el("vpcPeeringConnection", q.peeringXML(p)...)}, nil
}

// change moves a peering from one of some states to another.
func (q *request) change(to string, accepterOnly bool, from ...string) (*Peering, error) {
	id := q.p.str("VpcPeeringConnectionId")
	p := q.peerings()[id]
	if p == nil {
		return nil, noPeering(id)
	}
	if accepterOnly && (siteKey{p.Accepter.Account, p.Accepter.Region} != q.key) {
		return nil, errf("OperationNotPermitted", "User %s cannot accept or reject peering %s", q.key.account, id)
	}
	if !slices.Contains(from, p.State) {
		return nil, errf("InvalidStateTransition", "Invalid state transition for %s, attempted to transition from %s to %s", id, p.State, to)
	}
	p.State = to
	p.due = time.Time{}
	q.w.armPeering(p, q.now)
	return p, nil
}

func acceptPeering(q *request) ([]elem, error) {
	p, err := q.change("provisioning", true, "initiating-request", "pending-acceptance")
	if err != nil {
		return nil, err
	}
	return []elem{el("vpcPeeringConnection", q.peeringXML(p)...)}, nil
}

func rejectPeering(q *request) ([]elem, error) {
	if _, err := q.change("rejected", true, "initiating-request", "pending-acceptance"); err != nil {
		return nil, err
	}
	return []elem{boolean("return", true)}, nil
}

func deletePeering(q *request) ([]elem, error) {
	if _, err := q.change("deleted", false, "initiating-request", "pending-acceptance", "provisioning", "active", "failed"); err != nil {
		return nil, err
	}
	return []elem{boolean("return", true)}, nil
}
