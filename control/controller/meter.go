package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Meter is told what happens. Its methods are called from several goroutines,
// and must not block.
type Meter interface {
	// Propagated: a Target enforces what was seen that long ago to have changed.
	// How long the first sync takes after a start is not told.
	Propagated(account types.NamespacedName, took time.Duration)
	// Drifted: so many changes were made to what nobody here had changed.
	Drifted(account types.NamespacedName, changes int)
	// Polled: a region was listed. The error is of any part of it.
	Polled(account types.NamespacedName, region string, err error)
}

// VMs returns how many VMs each account has imported. Accounts without VMs are
// in it too.
func (c *Controller) VMs() map[types.NamespacedName]int {
	c.mu.Lock()
	imports := c.imports
	out := make(map[types.NamespacedName]int, len(c.accounts))
	for key := range c.accounts {
		out[key] = 0
	}
	c.mu.Unlock()
	for _, i := range imports.All() {
		out[i.account]++
	}
	return out
}

// Leads says whether this replica may write, now.
func (c *Controller) Leads() bool { return c.o.Office.Check() == nil }
