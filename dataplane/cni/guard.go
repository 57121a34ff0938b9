package cni

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// guardTable holds the guard and nothing else.
const guardTable = "isobar-cni"

// mendGuard makes the guard anew where it is not as it was left, and says so.
func (n *node) mendGuard() (mended bool, err error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.ns.Fd())))
	if err != nil {
		return false, err
	}
	chains, err := conn.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return false, fmt.Errorf("nftables: %w", err)
	}
	for _, c := range chains {
		if c.Table.Name == guardTable && c.Name == guardChain && c.Hooknum != nil && *c.Hooknum == *nftables.ChainHookPrerouting {
			rules, err := conn.GetRules(c.Table, c)
			if err == nil && len(rules) == 1 && len(rules[0].Exprs) == guardExprs {
				return false, nil
			}
		}
	}
	return true, n.guard()
}

const (
	guardChain = "spoofed"
	guardExprs = 6
)

// guard makes the Node drop what comes from a Pod with a source that is not
// routed to it. It is replaced whole, in one transaction.
func (n *node) guard() error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(n.ns.Fd())))
	if err != nil {
		return err
	}
	table := &nftables.Table{Name: guardTable, Family: nftables.TableFamilyINet}
	conn.AddTable(table) // so that there is one to delete
	conn.DelTable(table)
	conn.AddTable(table)
	// Before conntrack, which should know nothing of such packets.
	chain := conn.AddChain(&nftables.Chain{Name: guardChain, Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte(HostPrefix)}, // of so many bytes: names that begin so
		&expr.Fib{Register: 1, FlagSADDR: true, FlagIIF: true, ResultOIF: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(0)},
		&expr.Counter{},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	if err := conn.Flush(); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("the kernel's nftables cannot look up routes (nft_fib_inet), without which Pods could take others' addresses: %w", err)
		}
		return fmt.Errorf("nftables table %s: %w", guardTable, err)
	}
	return nil
}
