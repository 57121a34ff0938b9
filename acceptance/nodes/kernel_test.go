package nodes_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
)

// The kernel of a Node refuses what its agent writes, since sets are as large as they may be; and it
// follows as many connections as it can.
func TestF15_F16_KernelIsFull(t *testing.T) {
	c := newCluster(t, options{})
	c.refused(c.agents[0])
	c.tracking(c.agents[0])
}

// refused has sets of a Node take no member more. What is enforced there stays whole, and is not the one half of
// what it is to be; that is told; and nobody is attached.
func (c *cluster) refused(a *agent) {
	t := c.t
	t.Helper()
	const what, why = "F15: the kernel refuses", "too many open files" // as it says of a set
	base := c.m
	old := told(t, c.judge.latest())
	c.bound(a, func(n int) int { return n })
	c.judge.freeze(func(p *pod) bool { return c.isOn(a, p) })
	// Somebody more may reach databases: a member more of a group that is there.
	web := find[*corev1.Pod](t, base, c.shop.shop(), "web-1")
	c.set(base.with(changed(web, func(p *corev1.Pod) { p.Labels = appIs("api").MatchLabels })))
	a.await("says what is refused", func(s agentStatus) bool { return strings.Contains(s.Error, why) })
	c.set(c.m.with(c.shop.shut(t, base))) // for which there is room, but not alone
	api := find[*antreav1beta1.NetworkPolicy](t, base, c.shop.shop(), "api")
	eventually(t, what+": its status says so", func() string {
		s, generation, err := c.statusOf(api)
		if err != nil {
			return err.Error()
		}
		for _, x := range s.Conditions {
			if x.Type == antreav1beta1.ConditionRealizationFailure && x.Status == metav1.ConditionTrue && strings.Contains(x.Message, why) && s.Phase == antreav1beta1.PolicyFailed && s.ObservedGeneration == generation {
				return ""
			}
		}
		return fmt.Sprintf("%+v", s)
	})
	p := c.shop.pod(c.shop.other(), "unruled", "free", 0)
	c.insist(func() error { return c.apply(t.Context(), p) })
	eventually(t, what+": a Pod cannot be attached", func() string {
		if text := c.failure(); !strings.Contains(text, why) {
			return text
		}
		return ""
	})
	if c.lab.Pod(p.Namespace, p.Name) != nil {
		t.Errorf("%s: a Pod is attached", what)
	}
	c.judge.await(what)
	if wrong := a.differs(old); wrong != "" {
		t.Errorf("%s: what was enforced is not whole: %s", what, wrong)
	}
	c.judge.freeze(nil)
	c.bound(a, func(int) int { return 1 << 20 })
	c.set(c.m.with(p))
	c.settle(what + ", and does no more")
	eventually(t, what+": statuses", c.rolledUp)
	c.set(base)
	c.awaitGone(p)
	c.settle(what + ": all is as before")
}

// bound bounds the sets of a Node's table, by how many elements they have now.
func (c *cluster) bound(a *agent, most func(n int) int) {
	c.t.Helper()
	space := int(a.node.Space.Fd())
	elements := map[string]int{}
	conn, err := nftables.New(nftables.WithNetNSFd(space))
	if err != nil {
		c.t.Fatal(err)
	}
	table := &nftables.Table{Name: "isobar", Family: nftables.TableFamilyINet}
	sets, err := conn.GetSets(table)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, s := range sets {
		list, err := conn.GetSetElements(s)
		if err != nil {
			c.t.Fatal(err)
		}
		elements[s.Name] = len(list)
	}
	// A set that is there is written again, as it is but for its size.
	raw, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: space})
	if err != nil {
		c.t.Fatal(err)
	}
	defer raw.Close()
	header := func(family byte, resource uint16) []byte {
		return binary.BigEndian.AppendUint16([]byte{family, unix.NFNETLINK_V0}, resource)
	}
	body := append(header(unix.NFPROTO_INET, 0), attributes(c.t, netlink.Attribute{Type: unix.NFTA_SET_TABLE, Data: []byte("isobar\x00")})...)
	dump, err := raw.Execute(netlink.Message{Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETSET, Flags: netlink.Request | netlink.Dump}, Data: body})
	if err != nil {
		c.t.Fatal(err)
	}
	out := []netlink.Message{{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_BEGIN, Flags: netlink.Request}, Data: header(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)}}
	for _, m := range dump {
		have, err := netlink.UnmarshalAttributes(m.Data[4:])
		if err != nil {
			c.t.Fatal(err)
		}
		var want, desc []netlink.Attribute
		name := ""
		for _, x := range have {
			switch kind := x.Type &^ netlink.Nested; {
			case kind == unix.NFTA_SET_NAME:
				name = strings.TrimRight(string(x.Data), "\x00")
			case kind == unix.NFTA_SET_DESC:
				if desc, err = netlink.UnmarshalAttributes(x.Data); err != nil {
					c.t.Fatal(err)
				}
				continue
			case kind > unix.NFTA_SET_USERDATA: // which are told and not taken
				continue
			}
			want = append(want, x)
		}
		desc = slices.DeleteFunc(desc, func(x netlink.Attribute) bool { return x.Type == unix.NFTA_SET_DESC_SIZE })
		desc = append(desc, netlink.Attribute{Type: unix.NFTA_SET_DESC_SIZE, Data: binary.BigEndian.AppendUint32(nil, uint32(max(1, most(elements[name]))))})
		want = append(want, netlink.Attribute{Type: unix.NFTA_SET_DESC | netlink.Nested, Data: attributes(c.t, desc...)},
			netlink.Attribute{Type: unix.NFTA_SET_ID, Data: binary.BigEndian.AppendUint32(nil, uint32(len(out)))})
		out = append(out, netlink.Message{
			Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSET, Flags: netlink.Request | netlink.Create | netlink.Acknowledge},
			Data:   append(header(unix.NFPROTO_INET, 0), attributes(c.t, want...)...),
		})
	}
	n := len(out) - 1
	out = append(out, netlink.Message{Header: netlink.Header{Type: unix.NFNL_MSG_BATCH_END, Flags: netlink.Request}, Data: header(unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)})
	if _, err := raw.SendMessages(out); err != nil {
		c.t.Fatal(err)
	}
	for n > 0 {
		answers, err := raw.Receive()
		if err != nil {
			c.t.Fatal(err)
		}
		n -= len(answers)
	}
}

func attributes(t testing.TB, list ...netlink.Attribute) []byte {
	t.Helper()
	b, err := netlink.MarshalAttributes(list)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// tracking has a Node's kernel follow as many connections as it can. New ones may be lost there, whatever
// policies allow; those that there are go on; nothing opens; policies change; and an agent may start.
func (c *cluster) tracking(a *agent) {
	t := c.t
	t.Helper()
	const what = "F16: connection tracking is full"
	base := c.m
	c.judge.excuse(func(f *flow) verdict {
		if c.isOn(a, f.from) || c.isOn(a, f.to) {
			return lost
		}
		return 0
	})
	empty := fillTracking(t, a.node)
	enforced := func() {
		t.Helper()
		eventually(t, what+": policies change", func() string {
			rulesets := told(t, c.judge.latest())
			if wrong := a.differs(rulesets); wrong != "" { // nobody reaches the agent by a new connection, not even from its Node
				return wrong
			}
			return c.agents[1].behind(rulesets)
		})
		c.judge.await(what)
		c.links.report(what)
	}
	c.set(base.with(c.shop.shut(t, base)))
	enforced()
	c.set(base.with(c.shop.open(t, base)))
	enforced()
	restart(a)
	c.set(base.with(c.shop.shut(t, base))) // of which it does not hear
	c.judge.await(what + ", and the agent starts")
	c.links.report(what + ", and the agent starts")
	if n, _ := c.judge.excuses(); n == 0 {
		t.Errorf("%s, and nothing was lost", what)
	}
	began := time.Now()
	empty()
	t.Logf("%s: it is no more after %v", what, time.Since(began).Round(time.Millisecond))
	began = time.Now()
	c.judge.excuse(nil)
	c.settle(what + ", and is no more")
	t.Logf("%s: all as it should be after %v", what, time.Since(began).Round(time.Millisecond))
	c.set(base)
	c.settle(what + ": all is as before")
	eventually(t, what+": statuses", c.rolledUp)
}

// isOn says whether a Pod is on an agent's Node.
func (c *cluster) isOn(a *agent, p *pod) bool {
	return a.node.Ranges[0].Contains(p.addr)
}
