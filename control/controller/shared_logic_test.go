package controller

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
)

// pair is two accounts of one cloud that share a network, at a start. The older one
// enforces; each imports a VM of its own.
type pair struct {
	t          *testing.T
	c          *Controller
	old, young *account
}

func newPair(t *testing.T) *pair {
	t.Helper()
	c, err := New(&rest.Config{Host: "http://127.0.0.1:1"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return &pair{t: t, c: c, old: pairOne(c, "old", 1), young: pairOne(c, "young", 2)}
}

// pairOne makes an account whose object was looked at, and nothing else.
func pairOne(c *Controller, name string, age int64) *account {
	key := types.NamespacedName{Namespace: "ns", Name: name}
	cpa := &cloudv1alpha1.CloudProviderAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.Unix(age, 0)},
		Spec:       cloudv1alpha1.CloudProviderAccountSpec{AWSConfig: &cloudv1alpha1.AWSConfig{Region: []string{"r"}}},
	}
	c.accountMirror.items[key] = cpa
	a := c.account(key, "aws")
	a.setOrigin(cpa)
	a.selectors = []selector{{key: key, entries: []entry{{match: cloud.Match{VMs: []cloud.VMMatch{{ID: "i-" + name}}}}}}}
	a.regions["r"] = &region{name: "r", wake: make(chan struct{}, 1)}
	return a
}

// list has the account's region told of.
func (a *account) list(networks ...string) {
	var all []cloud.Network
	for _, n := range networks {
		all = append(all, cloud.Network{ID: n, Region: "r"})
	}
	vm := machine("i-"+a.key.Name, a.key.Name, "n")
	vm.Region = "r"
	matches := matchesOf(a.selectors)
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.regions["r"]
	r.view = r.view.with(all, nil, matches, slices.Repeat([]cloud.VMs{{VMs: []cloud.VM{vm}}}, len(matches)))
	a.version++
}

func (p *pair) knows(a *account) bool { return p.c.isKnown(targetName("aws", a.key, "r", "n")) }

// check says what is wrong when a target of the network is known.
func (p *pair) check() error {
	if !p.knows(p.old) && !p.knows(p.young) {
		return nil
	}
	for _, a := range []*account{p.old, p.young} {
		i, ok := p.c.imports.Get(workloadID((&imported{selector: a.key, vm: cloud.VM{ID: "i-" + a.key.Name}}).key()))
		if !ok || i.target() != "aws/ns/old/r/n" {
			return fmt.Errorf("old begins: %v, young begins: %v, while the VM of %s is imported as %+v", p.knows(p.old), p.knows(p.young), a.key.Name, i)
		}
	}
	return nil
}

// In whatever order two accounts are listed and looked at, neither begins before the VMs of
// both are known to go to the one that enforces.
func TestNoOrderOpensASharedNetwork(t *testing.T) {
	const length = 5
	steps := []string{"old is listed", "young is listed", "old is looked at", "young is looked at"}
	for n := range 1 << (2 * length) {
		p := newPair(t)
		var done []string
		step := func(i int) {
			done = append(done, steps[i])
			switch i {
			case 0:
				p.old.list("n")
			case 1:
				p.young.list("n")
			case 2:
				p.c.assignVMs(t.Context(), p.old)
			case 3:
				p.c.assignVMs(t.Context(), p.young)
			}
			if err := p.check(); err != nil {
				t.Fatalf("%q: %v", done, err)
			}
		}
		for k := range length {
			step(n >> (2 * k) & 3)
		}
		for _, i := range []int{0, 1, 2, 3, 2, 3} { // whoever tells something new has the others looked at
			step(i)
		}
		if !p.knows(p.old) || !p.knows(p.young) {
			t.Fatalf("%q: old begins: %v, young begins: %v", done, p.knows(p.old), p.knows(p.young))
		}
	}
}

// What of another account holds up one that has been listed.
func TestWhoIsWaitedFor(t *testing.T) {
	shared := func(a *account, c *Controller) {
		cpa, _ := c.accountMirror.get(a.key)
		cpa.Status.Conditions = []metav1.Condition{{Type: conditionShared, Status: metav1.ConditionTrue}}
	}
	refused := errors.New("refused")
	for _, tt := range []struct {
		name  string
		young func(*pair)
		want  bool // old begins
	}{
		{"its object is not looked at", func(p *pair) { delete(p.c.accounts, p.young.key) }, false},
		{"its object is looked at as another cloud's", func(p *pair) { p.young.cloud = "aws elsewhere" }, false},
		{"its Secret is not read", func(p *pair) { p.young.regions = map[string]*region{} }, false},
		{"its region is not listed", func(*pair) {}, false},
		{"its region is not listed, and it has no selector", func(p *pair) { p.young.selectors = nil }, false},
		{"it waits to be restored", func(p *pair) {
			cpa, _ := p.c.accountMirror.get(p.young.key)
			cpa.Finalizers = []string{finalizer}
		}, false},
		{"its client is refused", func(p *pair) { p.young.connectErr = refused }, true},
		{"its client is refused, and it has shared", func(p *pair) { p.young.connectErr = refused; shared(p.young, p.c) }, false},
		{"its client is refused, and the other has shared", func(p *pair) { p.young.connectErr = refused; shared(p.old, p.c) }, false},
		{"its region fails", func(p *pair) { p.young.regions["r"].view.networksErr = refused }, true},
		{"its region fails, and it has shared", func(p *pair) { p.young.regions["r"].view.networksErr = refused; shared(p.young, p.c) }, false},
		{"it has other networks", func(p *pair) { p.young.list("other"); p.young.unreadable = true; shared(p.young, p.c) }, true},
		{"it has the network, and was not looked at since", func(p *pair) { p.young.list("n") }, false},
		{"it has the network, and a selector that cannot be read", func(p *pair) { p.young.list("n"); p.young.unreadable = true; p.look() }, false},
		{"it has the network, and a selector that was not listed", func(p *pair) {
			p.young.list("n")
			p.young.selectors = []selector{{key: p.young.key, entries: []entry{{match: cloud.Match{NetworkID: "n"}}}}}
			p.look()
		}, false},
		{"it has the network, and no selector", func(p *pair) { p.young.selectors = nil; p.young.list("n"); p.look() }, true},
		{"it has the network", func(p *pair) { p.young.list("n"); p.look() }, true},
		{"it is older, has the network and no selector, and was not listed", func(p *pair) {
			p.young.created, p.young.selectors = time.Unix(0, 0), nil
		}, false},
		{"it names other regions", func(p *pair) {
			cpa, _ := p.c.accountMirror.get(p.young.key)
			cpa.Spec.AWSConfig.Region = []string{"elsewhere"}
		}, true},
		{"it is of another cloud", func(p *pair) {
			cpa, _ := p.c.accountMirror.get(p.young.key)
			cpa.Spec.AWSConfig.Endpoint = "https://elsewhere"
		}, true},
		{"it is being deleted", func(p *pair) {
			cpa, _ := p.c.accountMirror.get(p.young.key)
			cpa.DeletionTimestamp = &metav1.Time{}
		}, true},
	} {
		p := newPair(t)
		p.old.list("n")
		tt.young(p)
		p.c.assignVMs(t.Context(), p.old)
		if got := p.knows(p.old); got != tt.want {
			t.Errorf("%s: the other one begins: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// Who waits for an account that is yet to be listed has not been tried, though it has been listed itself: what is said
// of policies since before the start stands until then, but not for one that cannot be listed.
func TestWhoWaitsIsNotSettled(t *testing.T) {
	for _, tt := range []struct {
		name  string
		young func(*pair)
		want  bool // old is settled
	}{
		{"the other is not listed", func(*pair) {}, false},
		{"the other is not looked at", func(p *pair) { delete(p.c.accounts, p.young.key) }, false},
		{"the other is listed, and was not looked at since", func(p *pair) { p.young.list("n") }, false},
		{"the other cannot be listed", func(p *pair) {
			p.young.regions["r"].view.networksErr = errors.New("refused")
			cpa, _ := p.c.accountMirror.get(p.young.key)
			cpa.Status.Conditions = []metav1.Condition{{Type: conditionShared, Status: metav1.ConditionTrue}}
		}, true},
		{"the other has a selector that cannot be read", func(p *pair) { p.young.list("n"); p.young.unreadable = true; p.look() }, true},
	} {
		p := newPair(t)
		p.old.list("n")
		tt.young(p)
		p.c.assignVMs(t.Context(), p.old)
		if p.knows(p.old) {
			t.Errorf("%s: the other one begins", tt.name)
		}
		if p.c.settle(p.old, nil); p.old.settled != tt.want {
			t.Errorf("%s: settled: %v, want %v", tt.name, p.old.settled, tt.want)
		}
	}
}

// Objects may name a region in any case: what is listed is the region all the same.
func TestSharedGoesInAnyCase(t *testing.T) {
	p := newPair(t)
	cpa, _ := p.c.accountMirror.get(p.old.key)
	cpa.Spec.AWSConfig.Region = []string{"R"}
	if p.c.mayUnshare(p.old, cpa) {
		t.Error("what was said before the start goes before anything is listed")
	}
	p.old.list("n")
	if p.c.mayUnshare(p.old, cpa) {
		t.Error("what was said before the start goes before the other has listed the region")
	}
	p.young.list("other")
	if !p.c.mayUnshare(p.old, cpa) {
		t.Error("what was said before the start stays, although all have listed the region")
	}
}

// look has young looked at, once it knows of old.
func (p *pair) look() { p.c.assignVMs(p.t.Context(), p.young) }

// Two VMs whose objects would have one name are not one VM: the selector that lacks its own
// says so.
func TestOneNameOfTwoVMsIsTold(t *testing.T) {
	p := newPair(t)
	for _, a := range []*account{p.old, p.young} {
		vm := machine("/id/of/"+a.key.Name, "vm", "n-"+a.key.Name)
		vm.Region, vm.Object = "r", "vm-42"
		a.selectors = []selector{{key: a.key, entries: []entry{{match: cloud.Match{}}}}}
		a.mu.Lock()
		r := a.regions["r"]
		r.view = r.view.with([]cloud.Network{{ID: vm.NetworkID, Region: "r"}}, nil, matchesOf(a.selectors), []cloud.VMs{{VMs: []cloud.VM{vm}}})
		a.version++
		a.mu.Unlock()
		p.c.assignVMs(t.Context(), a)
	}
	old, young := p.c.lost(p.old, p.old.key), p.c.lost(p.young, p.young.key)
	if len(old) != 0 || len(young) != 1 || young[0].claim.vm.ID != "/id/of/young" || young[0].winner.vm.ID != "/id/of/old" {
		t.Errorf("old lacks %+v, young lacks %+v; want young to lack its own alone", old, young)
	}
}
