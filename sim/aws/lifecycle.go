package aws

import (
	"fmt"
	"net/netip"
	"time"
)

// stateCodes are EC2's instance states.
var stateCodes = map[string]int{"pending": 0, "running": 16, "shutting-down": 32, "terminated": 48, "stopping": 64, "stopped": 80}

// graveTime is how long a terminated instance and a deleted peering stay visible.
const graveTime = time.Hour

// offerTime is how long a peering waits to be accepted.
const offerTime = 7 * 24 * time.Hour

// arm sets when the present state of an instance ends.
func (w *world) arm(i *Instance, now time.Time) {
	switch i.State {
	case "pending", "stopping", "shutting-down":
		i.due = now.Add(w.settle)
	case "terminated":
		i.due = now.Add(graveTime)
	default:
		i.due = time.Time{}
	}
	w.wake(i.due)
}

func (w *world) armPeering(p *Peering, now time.Time) {
	switch p.State {
	case "initiating-request", "provisioning":
		p.due = now.Add(w.settle)
	case "pending-acceptance":
		p.due = now.Add(offerTime)
	case "active":
		p.due = time.Time{}
	default:
		p.due = now.Add(graveTime)
	}
	w.wake(p.due)
}

func (w *world) wake(at time.Time) {
	if !at.IsZero() && (w.next.IsZero() || at.Before(w.next)) {
		w.next = at
	}
}

// advance ends every passing state whose time has come, in as many steps as time allows.
func (w *world) advance(now time.Time) {
	for !w.next.IsZero() && !now.Before(w.next) {
		w.next = time.Time{}
		for _, s := range w.sites {
			for _, id := range sortedKeys(s.instances) {
				i := s.instances[id]
				if due := i.due; !due.IsZero() && !now.Before(due) {
					w.step(s, i, due)
				}
				w.wake(i.due)
			}
			for _, d := range s.databases {
				if due := d.due; !due.IsZero() && !now.Before(due) {
					s.finish(d)
				}
				w.wake(d.due)
			}
		}
		for _, id := range sortedKeys(w.peerings) {
			p := w.peerings[id]
			if due := p.due; !due.IsZero() && !now.Before(due) {
				w.stepPeering(p, due)
			}
			w.wake(p.due)
		}
	}
}

func (w *world) step(s *site, i *Instance, at time.Time) {
	switch i.State {
	case "pending":
		i.State = "running"
	case "stopping":
		i.State = "stopped"
		for _, n := range i.Interfaces {
			if n.PublicIP.IsValid() && !n.Elastic {
				n.PublicIP, n.autoPublic = netip.Addr{}, true
			}
		}
	case "shutting-down":
		i.State = "terminated"
		for _, n := range i.Interfaces {
			if !n.Keep {
				s.unplug(n)
				continue
			}
			n.instance, n.device, n.Attachment = nil, 0, ""
		}
		i.Interfaces = nil
	case "terminated":
		delete(s.instances, i.ID)
		i.due = time.Time{}
		return
	}
	w.arm(i, at)
}

func (w *world) stepPeering(p *Peering, at time.Time) {
	switch p.State {
	case "initiating-request":
		p.State = "pending-acceptance"
	case "provisioning":
		p.State = "active"
	case "pending-acceptance":
		p.State = "expired"
	default:
		delete(w.peerings, p.ID)
		p.due = time.Time{}
		return
	}
	w.armPeering(p, at)
}

// newPublicIP makes up an address of the documentation and benchmark ranges that nobody uses yet.
func (w *world) newPublicIP() netip.Addr {
	used := map[netip.Addr]bool{}
	for _, s := range w.sites {
		for _, n := range s.enis {
			used[n.PublicIP] = true
		}
		for _, v := range s.vpcs {
			used[v.NAT] = true
		}
	}
	a := netip.MustParseAddr("198.18.0.1")
	for used[a] {
		a = a.Next()
	}
	return a
}

// peered finds the active peering between two VPCs.
func (w *world) peered(a, b string) *Peering {
	for _, p := range w.peerings {
		if p.State == "active" && (p.Requester.VPC == a && p.Accepter.VPC == b || p.Requester.VPC == b && p.Accepter.VPC == a) {
			return p
		}
	}
	return nil
}

// findGroup finds a group of any account of a region.
func (w *world) findGroup(region, owner, id string) (*site, *Group) {
	if s := w.sites[siteKey{owner, region}]; s != nil && s.groups[id] != nil {
		return s, s.groups[id]
	}
	return nil, nil
}

// refers finds the group that a rule of g refers to, and the peering between when it is in another
// VPC. It returns nil when the rule is stale: the group or the peering is gone.
func (w *world) refers(s *site, g *Group, r *Rule) (*site, *Group, *Peering) {
	o, peer := w.findGroup(s.region, r.GroupOwner, r.Group)
	if peer == nil {
		return nil, nil, nil
	}
	if peer.VPC == g.VPC {
		return o, peer, nil
	}
	p := w.peered(g.VPC, peer.VPC)
	if p == nil || p.Requester.Region != p.Accepter.Region {
		return nil, nil, nil
	}
	return o, peer, p
}

func arn(service string, k siteKey, resource string) string {
	return fmt.Sprintf("arn:aws:%s:%s:%s:%s", service, k.region, k.account, resource)
}
