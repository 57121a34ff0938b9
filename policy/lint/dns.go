package lint

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

// resolver is where the cluster's DNS is asked: a workload, or an address of a Service.
type resolver struct {
	workload string // ID; empty of a Service
	addr     netip.Addr
	traffic  []policy.Flow // protocol and port
}

// isDNS says whether a port is one of DNS by its name.
func isDNS(p policy.NamedPort) bool {
	return (p.Name == "dns" || p.Name == "dns-tcp" || p.Name == "dns-udp") && (p.Protocol == policy.UDP || p.Protocol == policy.TCP)
}

var dnsApp = policy.Label{Key: "k8s-app", Value: "kube-dns"}

// resolvers returns where the cluster's DNS is asked: Pods that are labelled as kube-dns
// and whatever declares a port by the name dns; and the Services of such Pods, and those with
// such a port.
func (l *linter) resolvers() (pods, services []resolver) {
	well := []policy.Flow{{Protocol: policy.UDP, Port: 53}, {Protocol: policy.TCP, Port: 53}}
	named := func(ports []policy.NamedPort) []policy.Flow {
		var out []policy.Flow
		for _, x := range ports {
			if isDNS(x) && x.Port != 0 {
				out = append(out, policy.Flow{Protocol: x.Protocol, Port: x.Port})
			}
		}
		return out
	}
	for id, w := range l.s.Workloads.All() {
		v, _ := w.Labels.Value(dnsApp.Key)
		isApp := w.Kind == policy.KindPod && v == dnsApp.Value
		ask := named(w.Ports)
		if isApp && len(ask) == 0 {
			ask = well
		}
		if len(ask) > 0 && len(w.Addrs) > 0 && !w.Terminated {
			pods = append(pods, resolver{workload: id, traffic: ask})
		}
	}
	for _, svc := range l.s.Services.All() {
		ask := named(svc.Ports)
		if len(ask) == 0 && svc.Pods != nil && slices.ContainsFunc(*svc.Pods, func(r policy.Requirement) bool {
			return r.Key == dnsApp.Key && r.Op == policy.In && slices.Equal(r.Values, []string{dnsApp.Value})
		}) {
			for _, f := range well {
				if slices.ContainsFunc(svc.Ports, func(p policy.NamedPort) bool { return p.Protocol == f.Protocol && p.Port == f.Port }) {
					ask = append(ask, f)
				}
			}
		}
		for _, a := range svc.Addrs {
			if len(ask) > 0 {
				services = append(services, resolver{addr: a, traffic: ask})
			}
		}
	}
	return pods, services
}

// answer is how Pods of one class fare with resolvers of one sort.
type answer struct {
	met, open, perhaps bool
	byService          bool // a rule by Services lets it pass
	denied             policy.Flow
	verdict            policy.Verdict // of denied
}

// dns finds Pods that cannot reach the cluster's DNS.
func (l *linter) dns() error {
	pods, services := l.resolvers()
	if len(pods)+len(services) == 0 {
		l.out.Unchecked = append(l.out.Unchecked, "DNS: there is no Pod with the label k8s-app=kube-dns, and nothing with a port by the name dns")
		return nil
	}
	var addrs []netip.Addr
	for _, r := range services {
		if !slices.Contains(addrs, r.addr) && !l.isWorkloads(r.addr) {
			addrs = append(addrs, r.addr)
		}
	}
	services = slices.DeleteFunc(services, func(r resolver) bool { return !slices.Contains(addrs, r.addr) })
	w, err := reach.New(l.s, addrs...)
	if err != nil {
		return err
	}
	c := &caller{w: w, ends: map[string]reach.End{}, askers: map[policy.Flow]*reach.Asker{}}
	for _, e := range w.Ends {
		c.ends[e.Name] = e
	}
	found := map[string]*Finding{}
	for _, e := range w.Ends {
		if e.Workload == nil || e.Workload.Kind != policy.KindPod || !e.Workload.IsSubject() || slices.ContainsFunc(pods, func(r resolver) bool { return r.workload == e.Name }) {
			continue
		}
		toPods, toServices := c.ask(l.s, e, pods), c.ask(l.s, e, services)
		if f := judgeDNS(toPods, toServices); f != nil {
			f.Witness.Flow.From = policy.Endpoint{Workload: e.Name}
			key := fmt.Sprint(f.ID, f.Object, f.Rule, f.Message)
			if known := found[key]; known != nil {
				known.Workloads = append(known.Workloads, e.Name)
				continue
			}
			f.Workloads = []string{e.Name}
			found[key] = f
		}
	}
	for _, f := range found {
		slices.Sort(f.Workloads)
		f.Message = few(f.Workloads, itself) + " " + f.Message
		l.add(*f)
	}
	return nil
}

func (l *linter) isWorkloads(a netip.Addr) bool {
	for _, w := range l.s.Workloads.All() {
		if slices.Contains(w.Addrs, a) && !w.Terminated {
			return true
		}
	}
	return false
}

// caller asks for verdicts.
type caller struct {
	w      *reach.World
	ends   map[string]reach.End
	askers map[policy.Flow]*reach.Asker
}

func (c *caller) ask(s policy.Snapshot, from reach.End, list []resolver) answer {
	var out answer
	for _, r := range list {
		to, ok := c.ends[cmp.Or(r.workload, r.addr.String())]
		if !ok || to.Name == from.Name || !c.w.Meet(from.Class, to.Class) {
			continue
		}
		for _, f := range r.traffic {
			asker := c.askers[f]
			if asker == nil {
				asker = c.w.Ask(f)
				c.askers[f] = asker
			}
			v := asker.Verdict(from.Class, to.Class)
			needs := slices.ContainsFunc(v.Needs, func(n policy.Need) bool { return n != policy.NeedEndpoint })
			switch {
			case v.Action == policy.Allow:
				out.open = true
				out.byService = out.byService || isByService(s, v.Egress)
			case needs:
				out.perhaps = true
			case !out.met:
				out.denied, out.verdict = f, v
				out.denied.To = policy.Endpoint{Workload: r.workload, Addr: r.addr}
			}
			out.met = out.met || v.Action != policy.Allow && !needs
		}
	}
	return out
}

// isByService says whether a rule that names Services decides.
func isByService(s policy.Snapshot, d policy.Decision) bool {
	p, ok := s.Policies.Get(d.Policy)
	return ok && d.Reason == policy.ByRule && d.Index < len(p.Egress) && len(p.Egress[d.Index].Peers.Services) > 0
}

// judgeDNS returns what is wrong, or nil. Its message lacks whom it is about.
func judgeDNS(pods, services answer) *Finding {
	if pods.perhaps || services.perhaps {
		return nil
	}
	switch {
	case pods.met && !pods.open && !services.open:
		// No Pod, and no address of a Service: whatever it asks for, it is denied.
		return dnsFinding("dns-cut-off", pods, "cannot reach the cluster's DNS: %s, and so with all its Pods and Services",
			"Allow UDP and TCP port 53 to the DNS Pods, as by namespaceSelector kubernetes.io/metadata.name: kube-system and podSelector k8s-app: kube-dns.")
	case services.met && !services.open && pods.open:
		return dnsFinding("dns-service-address", services, "can reach Pods of the cluster's DNS, and not the address of its Service: %s. It works where Services' addresses are translated before policies are asked, as Isobar's agents and kube-proxy do",
			"To be independent of that, allow the address of the Service as well, by ipBlock or toServices.")
	case services.met && !services.open && !pods.met:
		return dnsFinding("dns-service-address", services, "cannot reach the address of the cluster's DNS Service: %s; its Pods are not in this world",
			"Allow UDP and TCP port 53 to the DNS Pods, and to the address of the Service.")
	case pods.met && !pods.open && services.open && !services.byService:
		return dnsFinding("dns-service-address", pods, "can reach the address of the cluster's DNS Service, and none of its Pods: %s. It does not work where Services' addresses are translated before policies are asked, as Isobar's agents and kube-proxy do",
			"Allow UDP and TCP port 53 to the DNS Pods as well.")
	}
	return nil
}

// dnsFinding is about what denies a flow.
func dnsFinding(id string, a answer, message, fix string) *Finding {
	d, dir := a.verdict.Egress, policy.Egress
	if d.Action == policy.Allow {
		d, dir = a.verdict.Ingress, policy.Ingress
	}
	f := &Finding{ID: id, Object: d.Policy, Fix: fix, Witness: &Witness{a.denied, dir, a.verdict}}
	by := d.Policy
	if by == "" { // a machine that denies what no rule decides
		by = a.denied.To.Workload
		f.Object = by
	}
	if d.Reason == policy.ByRule {
		f.Rule = &reach.Rule{Policy: d.Policy, Direction: dir, Index: d.Index}
		f.Field = ruleField(*f.Rule, "")
		by += fmt.Sprintf(" %v[%d]", dir, d.Index)
	} else {
		f.Field = "spec.policyTypes"
		by += " (" + d.Reason.String() + ")"
	}
	f.Message = fmt.Sprintf(message, fmt.Sprintf("%v is denied at its %s by %s", reach.Say(a.denied), map[policy.Direction]string{policy.Egress: "source", policy.Ingress: "destination"}[dir], strings.TrimSpace(by)))
	return f
}
