package nodes_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
)

// Somebody changes by hand what agents have made. What that opens or cuts at once cannot be
// prevented, and is told; it is as it was soon after, and nothing else is opened or cut on the way.
func TestF14_ChangesByHand(t *testing.T) {
	c := newCluster(t, options{})
	a := c.agents[0]
	conn, err := nftables.New(nftables.WithNetNSFd(int(a.node.Space.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	inet := nftables.TableFamilyINet
	table := &nftables.Table{Name: "isobar", Family: inet}
	c.damage("F14: the table is deleted", passed, func() error {
		conn.DelTable(table)
		return conn.Flush()
	}, nil)
	c.damage("F14: a chain is flushed", passed, func() error {
		conn.FlushChain(&nftables.Chain{Name: "forward", Table: table})
		return conn.Flush()
	}, nil)
	c.damage("F14: all is accepted first", passed, func() error {
		conn.InsertRule(&nftables.Rule{Table: table, Chain: &nftables.Chain{Name: "forward", Table: table}, Exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}})
		return conn.Flush()
	}, nil)
	c.damage("F14: nobody is led to rules", passed, func() error {
		sets, err := conn.GetSets(table)
		if err != nil {
			return err
		}
		for _, s := range sets {
			if s.Name == "ingress4" {
				conn.FlushSet(s)
			}
		}
		return conn.Flush()
	}, nil)
	guard := func() string {
		chains, err := conn.ListChainsOfTableFamily(inet)
		if err != nil {
			return err.Error()
		}
		for _, name := range []string{"isobar-cni", "isobar-snat", "isobar-tunnel"} {
			if !slices.ContainsFunc(chains, func(x *nftables.Chain) bool { return x.Table.Name == name }) {
				return name + " is not there"
			}
		}
		return ""
	}
	web := find[*corev1.Pod](t, c.m, c.shop.shop(), "web-0")
	db := find[*corev1.Pod](t, c.m, c.shop.shop(), "db-0")
	c.damage("F14: all tables are deleted, and routes, and the tunnel, and a Pod's interface is down", anything, func() error {
		tables, err := conn.ListTables()
		if err != nil {
			return err
		}
		for _, x := range tables {
			conn.DelTable(x)
		}
		return errors.Join(conn.Flush(), a.node.Space.Do(func(ns.NetNS) error {
			var errs []error
			for _, p := range []*corev1.Pod{web, db} {
				routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Dst: netlink.NewIPNet(addrsOf(t, p)[0].AsSlice())}, netlink.RT_FILTER_DST)
				errs = append(errs, err)
				for _, r := range routes {
					if p == web {
						errs = append(errs, netlink.RouteDel(&r))
						continue
					}
					l, err := netlink.LinkByIndex(r.LinkIndex)
					if err == nil {
						err = netlink.LinkSetDown(l)
					}
					errs = append(errs, err)
				}
			}
			l, err := netlink.LinkByName("isovx0")
			if err == nil {
				err = netlink.LinkDel(l)
			}
			return errors.Join(append(errs, err)...)
		}))
	}, func() string {
		if wrong := guard(); wrong != "" {
			return wrong
		}
		return c.judge.reaches() // the tunnel, and routes
	})
	eventually(t, "statuses", c.rolledUp)
}

// damage has somebody do something, by which probes may be wrong in a way until it is repaired.
func (c *cluster) damage(what string, wrong verdict, do func() error, repaired func() string) {
	t := c.t
	t.Helper()
	began, w := time.Now(), c.judge.latest()
	c.judge.excuse(func(f *flow) verdict {
		if m := c.judge.meaning(w, f); m.egress == rejected { // what is not rejected here meets the rules there
			return wrong | m.ingress
		}
		return wrong
	})
	if err := do(); err != nil {
		t.Fatal(err)
	}
	eventually(t, what+": repaired", c.behindText)
	rules := time.Since(began)
	if repaired != nil {
		eventually(t, what+": all repaired", repaired)
	}
	n, during := c.judge.excuses()
	t.Logf("%s: the rules were as they should be after %v, all after %v; %d probes saw it, within %v", what, rules.Round(time.Millisecond), time.Since(began).Round(time.Millisecond), n, during.Round(time.Millisecond))
	c.judge.excuse(nil)
	c.settle(what)
}
