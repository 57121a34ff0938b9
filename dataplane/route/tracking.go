package route

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// tunnelTable is of nftables, and has the kernel not follow what goes between Nodes through the tunnel.
const tunnelTable = "isobar-tunnel"

// untrack has the kernel follow no connections of the tunnel itself. Answers come from another port
// than was sent to, so that it would take each for one that nobody answers, which it gives up first where
// it can follow no more: and all that is in the tunnel would be lost, however long it has passed.
// A table that is not as it should be is replaced whole, in one transaction.
func (r *Router) untrack(nodes []Node, self Node) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(r.ns.Fd())))
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: tunnelTable, Family: nftables.TableFamilyINet}
	set := &nftables.Set{Table: table, Name: "nodes", KeyType: nftables.TypeIPAddr}
	if self.Addrs[0].Is6() {
		set.KeyType = nftables.TypeIP6Addr
	}
	var elements []nftables.SetElement
	var addrs []netip.Addr
	for _, n := range nodes {
		for _, a := range n.Addrs {
			if n.Name != self.Name && a.Is6() == self.Addrs[0].Is6() && !slices.Contains(addrs, a) {
				addrs, elements = append(addrs, a), append(elements, nftables.SetElement{Key: a.AsSlice()})
			}
		}
	}
	chains := []*nftables.Chain{
		{Name: "arriving", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw},
		{Name: "leaving", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityRaw},
	}
	if r.isUntracked(conn, table, chains, set, elements) {
		return nil
	}
	conn.AddTable(table) // so that there is one to delete
	conn.DelTable(table)
	conn.AddTable(table)
	if err := conn.AddSet(set, elements); err != nil {
		return fmt.Errorf("nftables table %s: %w", tunnelTable, err)
	}
	for _, chain := range chains {
		conn.AddChain(chain)
		conn.AddRule(&nftables.Rule{Table: table, Chain: chain, UserData: r.tunnelMark(set), Exprs: r.tunneled(set, chain)})
	}
	if err := conn.Flush(); err != nil {
		return fmt.Errorf("nftables table %s: %w", tunnelTable, err)
	}
	return nil
}

// tunneled matches what goes to the tunnel's port from or to another Node, and has it not followed. What a Pod
// sends there is a Pod's, whatever address it says that it comes from.
func (r *Router) tunneled(set *nftables.Set, chain *nftables.Chain) []expr.Any {
	proto, source, dest, n := byte(unix.NFPROTO_IPV4), uint32(12), uint32(16), uint32(4)
	if set.KeyType == nftables.TypeIP6Addr {
		proto, source, dest, n = unix.NFPROTO_IPV6, 8, 24, 16
	}
	other := dest
	if *chain.Hooknum == *nftables.ChainHookPrerouting {
		other = source
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},                  // of what this Node sends it is empty
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: []byte(podPrefix)}, // of so many bytes
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_UDP}},
		&expr.Payload{Base: expr.PayloadBaseTransportHeader, DestRegister: 1, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(uint16(r.config.Port))},
		&expr.Payload{Base: expr.PayloadBaseNetworkHeader, DestRegister: 1, Offset: other, Len: n},
		&expr.Lookup{SourceRegister: 1, SetName: set.Name, SetID: set.ID},
		&expr.Notrack{},
	}
}

// tunnelMark is the fingerprint of a rule: another version of it has another one.
func (r *Router) tunnelMark(set *nftables.Set) []byte {
	return fmt.Appendf(nil, "isobar 1 %s %d", set.KeyType.Name, r.config.Port)
}

// isUntracked says whether the kernel has the table as it should be.
func (r *Router) isUntracked(conn *nftables.Conn, table *nftables.Table, chains []*nftables.Chain, set *nftables.Set, elements []nftables.SetElement) bool {
	have, err := conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return false
	}
	have = slices.DeleteFunc(have, func(c *nftables.Chain) bool { return c.Table.Name != table.Name })
	if len(have) != len(chains) {
		return false
	}
	for _, want := range chains {
		if !slices.ContainsFunc(have, func(c *nftables.Chain) bool {
			return c.Name == want.Name && c.Type == want.Type && c.Hooknum != nil && *c.Hooknum == *want.Hooknum && c.Priority != nil && *c.Priority == *want.Priority
		}) {
			return false
		}
		rules, err := conn.GetRules(table, want)
		if err != nil || len(rules) != 1 || string(rules[0].UserData) != string(r.tunnelMark(set)) || len(rules[0].Exprs) != len(r.tunneled(set, want)) {
			return false
		}
	}
	list, err := conn.GetSetElements(&nftables.Set{Table: table, Name: set.Name, KeyType: set.KeyType})
	return err == nil && equalElements(list, elements)
}
