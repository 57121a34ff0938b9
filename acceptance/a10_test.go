package acceptance_test

import (
	"fmt"
	"net/netip"
	"testing"

	sim "isobar.dev/sim/aws"
)

// More VMs, VPCs and security groups than a page of any listing holds are all there.
func TestA10_ManyPages(t *testing.T) {
	const n = 1100
	r := &sim.Region{Name: region1, Quotas: sim.Quotas{VPCs: n + 1, Interfaces: 2 * n, Groups: 2 * n}}
	for i := range n {
		r.VPCs = append(r.VPCs, &sim.VPC{ID: fmt.Sprintf("vpc-%04d", i), CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}})
	}
	r.Subnets = []*sim.Subnet{{ID: "subnet-1", VPC: "vpc-0000", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}}}
	for i := range n {
		r.Instances = append(r.Instances, &sim.Instance{ID: fmt.Sprintf("i-%04d", i), Interfaces: []*sim.Interface{{Subnet: "subnet-1"}}})
	}
	w := newWorld(t, sim.Estate{Accounts: []*sim.Account{{ID: sim.SampleAccount, Keys: []*sim.AccessKey{keyOf(sim.SampleAccount)}, Regions: []*sim.Region{r}}}}, sim.Options{NoThrottle: true})
	w.o.Every, w.o.PollEvery = interval*100, interval*10 // each VPC is a target
	w.start()
	w.account()
	w.importAll()
	w.eventually("all VMs and VPCs", func() error {
		if vms, networks := w.run.Runtime().VirtualMachines().Len(), w.run.Runtime().Vpcs().Len(); vms != n || networks != n {
			return fmt.Errorf("%d VMs, %d VPCs; want %d of each", vms, networks, n)
		}
		return nil
	})
	w.eventually("all ExternalEntities", func() error {
		if got := len(w.list(entities)); got != n {
			return fmt.Errorf("%d, want %d", got, n)
		}
		return nil
	})
}
