package controller

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
)

// At a start all ExternalEntities are looked at while the first listing comes in. None whose
// VM it has may ever seem to have none: it would be deleted, with the tags that users set.
func TestNoVMSeemsToBeGone(t *testing.T) {
	const vms = 2000
	for range 5 {
		c, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		all := cloud.Match{}
		a := c.account(acct, "aws")
		a.mu.Lock()
		a.selectors = []selector{{key: acct, entries: []entry{{match: all}}}}
		list := make([]cloud.VM, vms)
		for i := range list {
			list[i] = machine(fmt.Sprintf("i-%d", i), "web", "n1")
		}
		view := regionView{}.with(nil, nil, []cloud.Match{all}, []cloud.VMs{{VMs: list}})
		a.regions = map[string]*region{"r": {name: "r", view: view}}
		a.version++
		a.mu.Unlock()
		c.accountMirror.items[acct] = &cloudv1alpha1.CloudProviderAccount{}
		entities := make([]entity, vms)
		for i := range list {
			entities[i] = entityOf(&imported{account: acct, selector: acct, provider: "aws", vm: list[i]})
			entities[i].applied = true
		}

		ctx, cancel := context.WithCancel(t.Context())
		var lookers sync.WaitGroup
		for n := range 8 {
			lookers.Go(func() {
				for i := n; ctx.Err() == nil; i = (i + 8) % vms {
					key := (&imported{account: acct, selector: acct, vm: list[i]}).key()
					if !c.isImported(key) && c.isGone(key, entities[i]) {
						t.Errorf("%s seems to have no VM", key)
						return
					}
				}
			})
		}
		c.assignVMs(ctx, a)
		cancel()
		lookers.Wait()
		if !c.isStale(entity{account: acct.String(), applied: true, labels: entities[0].labels}) {
			t.Error("when all is read, nothing is known to be gone")
		}
	}
}
