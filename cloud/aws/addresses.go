package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"isobar.dev/cloud"
)

// Resolver finds the addresses of a DNS name; a [net.Resolver] does.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

var _ Resolver = (*net.Resolver)(nil)

// Bounds of looking up the names of databases.
const (
	lookupTimeout = 5 * time.Second // of one name
	lookupsAtOnce = 8
)

// addresses are the interfaces of EC2 behind each service, by its ID, and why
// they are not known where they are not.
type addresses struct {
	nics    map[string][]types.NetworkInterface
	unknown map[string]string
}

// addressesOf finds the addresses of services of one kind.
func (a *Account) addressesOf(ctx context.Context, r *region, kind cloud.Kind, list []service) (addresses, error) {
	out := addresses{map[string][]types.NetworkInterface{}, map[string]string{}}
	if len(list) == 0 {
		return out, nil
	}
	description := databaseDescription
	if kind == cloud.LoadBalancer {
		description = "ELB *"
	}
	nics, err := r.interfaces(ctx, filter("description", description), filter("requester-managed", "true"))
	if err != nil {
		return out, err
	}
	nics = slices.DeleteFunc(nics, func(n types.NetworkInterface) bool { return interfaceOf(n) != kind })
	if kind == cloud.Database {
		a.resolve(ctx, r, list, nics, out)
		return out, nil
	}
	for _, n := range nics {
		id := balancerOfInterface(aws.ToString(n.Description))
		if i := slices.IndexFunc(list, func(s service) bool { return s.id == id }); i >= 0 && list[i].vpc == aws.ToString(n.VpcId) {
			out.nics[id] = append(out.nics[id], n)
		}
	}
	for _, s := range list {
		if len(out.nics[s.id]) == 0 {
			out.unknown[s.id] = "it has no network interface yet"
		}
	}
	return out, nil
}

// resolve finds the interface of each database: that which has the address of
// its endpoint's name. EC2 does not tell which database an interface is of. A
// name that leads elsewhere, or two that lead to one interface, give no address:
// what is not known must not be taken for another's.
func (a *Account) resolve(ctx context.Context, r *region, list []service, nics []types.NetworkInterface, out addresses) {
	found := make([][]types.NetworkInterface, len(list))
	why := make([]string, len(list))
	var wg sync.WaitGroup
	slots := make(chan struct{}, lookupsAtOnce)
	for i, s := range list {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			found[i], why[i] = a.lookUp(ctx, r, s, nics)
		})
	}
	wg.Wait()
	owners := map[string]int{}
	for _, ns := range found {
		for _, n := range ns {
			owners[aws.ToString(n.NetworkInterfaceId)]++
		}
	}
	for i, s := range list {
		isShared := slices.ContainsFunc(found[i], func(n types.NetworkInterface) bool { return owners[aws.ToString(n.NetworkInterfaceId)] > 1 })
		if isShared {
			found[i], why[i] = nil, "its endpoint has the address of another database's, too"
		}
		if len(found[i]) > 0 {
			out.nics[s.id] = found[i]
		}
		if why[i] != "" {
			out.unknown[s.id] = why[i]
		}
		r.mu.Lock()
		if len(found[i]) == 1 {
			r.resolved[s.id] = aws.ToString(found[i][0].NetworkInterfaceId)
		} else if isShared {
			delete(r.resolved, s.id)
		}
		r.mu.Unlock()
	}
}

// lookUp returns the interfaces of one database. While nobody answers, the one
// that was found last counts, if it is still there.
func (a *Account) lookUp(ctx context.Context, r *region, s service, nics []types.NetworkInterface) (found []types.NetworkInterface, why string) {
	if s.endpoint == "" {
		return nil, "it has no endpoint yet"
	}
	var resolver Resolver = net.DefaultResolver
	if a.options.Resolver != nil {
		resolver = a.options.Resolver
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	addrs, err := resolver.LookupNetIP(ctx, "ip", s.endpoint)
	var dns *net.DNSError
	if err != nil && !(errors.As(err, &dns) && dns.IsNotFound) {
		r.mu.Lock()
		last := r.resolved[s.id]
		r.mu.Unlock()
		for _, n := range nics {
			if aws.ToString(n.NetworkInterfaceId) == last && aws.ToString(n.VpcId) == s.vpc {
				return []types.NetworkInterface{n}, "the name of its endpoint cannot be looked up; where it was last counts"
			}
		}
	}
	if err != nil || len(addrs) == 0 {
		return nil, fmt.Sprintf("the name of its endpoint, %s, cannot be looked up", s.endpoint)
	}
	for _, n := range nics {
		x := interfaceAddrs(n)
		isIts := slices.ContainsFunc(addrs, func(a netip.Addr) bool {
			return slices.Contains(x.Private, a.Unmap()) || slices.Contains(x.Public, a.Unmap())
		})
		if isIts && aws.ToString(n.VpcId) == s.vpc {
			found = append(found, n)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Sprintf("the name of its endpoint, %s, leads to no interface of a database in %s", s.endpoint, s.vpc)
	}
	return found, ""
}

// interfaceAddrs returns what an interface of EC2 has of addresses.
func interfaceAddrs(n types.NetworkInterface) cloud.Interface {
	var x cloud.Interface
	for _, p := range n.PrivateIpAddresses {
		x.Private = appendAddr(x.Private, p.PrivateIpAddress)
		if p.Association != nil {
			x.Public = appendAddr(x.Public, p.Association.PublicIp)
		}
	}
	for _, p := range n.Ipv6Addresses {
		x.Public = appendAddr(x.Public, p.Ipv6Address)
	}
	return x
}
