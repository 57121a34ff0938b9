package cni_test

import (
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// track makes the kernel track connections in the caller's network namespace.
func track(t *testing.T) {
	c, err := nftables.New()
	if err != nil {
		t.Error(err)
		return
	}
	table := c.AddTable(&nftables.Table{Name: "test", Family: nftables.TableFamilyINet})
	chain := c.AddChain(&nftables.Chain{Name: "track", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: 1}}})
	if err := c.Flush(); err != nil {
		t.Error(err)
	}
}
