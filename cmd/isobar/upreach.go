package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"text/tabwriter"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	simaws "isobar.dev/sim/aws"
	simazure "isobar.dev/sim/azure"
)

// upEnd is a VM, by its cloud's name for it, or, in no cloud, an address. No name is nowhere.
type upEnd struct{ cloud, name string }

// The clouds.
const (
	inAWS   = "aws"
	inAzure = "azure"
)

// seen is what a cloud says of a connection: "allowed", "denied" or else that there is no way; the kind of
// way, and the addresses that the ends see of each other.
type seen struct {
	result, path        string
	source, destination netip.Addr
}

// ask asks a simulated cloud whether a TCP connection passes now.
func (u *up) ask(cloud, from, to string, port int) seen {
	if cloud == inAzure {
		v := u.azure.Reach(simazure.Flow{From: from, To: to, Protocol: "tcp", Port: port})
		return seen{string(v.Result), v.Path, v.Source, v.Destination}
	}
	v := u.aws.Reach(simaws.Flow{From: from, To: to, Protocol: "tcp", Port: port})
	return seen{string(v.Result), v.Path, v.Source, v.Destination}
}

// reach is the verdict on a TCP connection to a VM. Between two clouds, that which it leaves and that which
// it comes to must both let it pass, by the first address of the VM to which there is a way.
func (u *up) reach(from, to upEnd, port int) string {
	switch {
	case from.name == "":
		return "unreachable"
	case from.cloud == "" || from.cloud == to.cloud:
		return u.ask(to.cloud, from.name, to.name, port).result
	}
	for _, a := range u.addresses(to) {
		leave := u.ask(from.cloud, from.name, a.String(), port)
		if leave.path == "" {
			continue
		}
		arrive := u.ask(to.cloud, leave.source.String(), a.String(), port)
		switch {
		case arrive.path == "":
			continue
		case leave.result != "allowed":
			return leave.result
		}
		return arrive.result
	}
	return "unreachable"
}

// addresses are those that others may reach a VM by: its own, and its public one if it has one.
func (u *up) addresses(vm upEnd) []netip.Addr {
	const anyone = "192.0.2.1" // on the Internet
	var out []netip.Addr
	if v := u.ask(vm.cloud, vm.name, vm.name, 1); v.destination.IsValid() {
		out = append(out, v.destination)
	}
	if v := u.ask(vm.cloud, anyone, vm.name, 1); v.path == "internet" {
		out = append(out, v.destination)
	}
	return out
}

// reachFrom and reachTo are the rows and columns of the table that up prints.
var (
	reachFrom = []struct {
		name string
		upEnd
	}{
		{"VM web-1", upEnd{inAWS, "i-0a100000000000001"}},
		{"VM app-1", upEnd{inAWS, "i-0a100000000000004"}},
		{"VM db-1", upEnd{inAWS, "i-0a100000000000007"}},
		{"VM bastion", upEnd{inAWS, "i-0a100000000000009"}},
		{"VM reports-1 (eu-west-1)", upEnd{inAWS, "i-0a100000000000010"}},
		{"VM bi-1 (Azure)", upEnd{inAzure, "bi-1"}},
		{"VM warehouse-1 (Azure)", upEnd{inAzure, "warehouse-1"}},
		{"Pod jobs/report", upEnd{"", "pod:jobs/report"}},
		{"Pod jobs/cleanup", upEnd{"", "pod:jobs/cleanup"}},
		{"Internet 192.0.2.10", upEnd{"", "192.0.2.10"}},
		{"Internet 203.0.113.7", upEnd{"", "203.0.113.7"}},
	}
	reachTo = []struct {
		name string
		upEnd
		port int
	}{
		{"web-1:443", upEnd{inAWS, "i-0a100000000000001"}, 443},
		{"web-1:22", upEnd{inAWS, "i-0a100000000000001"}, 22},
		{"app-1:8080", upEnd{inAWS, "i-0a100000000000004"}, 8080},
		{"app-1:22", upEnd{inAWS, "i-0a100000000000004"}, 22},
		{"db-1:5432", upEnd{inAWS, "i-0a100000000000007"}, 5432},
		{"db-1:22", upEnd{inAWS, "i-0a100000000000007"}, 22},
		{"bi-1:443", upEnd{inAzure, "bi-1"}, 443},
		{"bi-1:22", upEnd{inAzure, "bi-1"}, 22},
		{"warehouse-1:5432", upEnd{inAzure, "warehouse-1"}, 5432},
	}
)

// printReach asks the simulated clouds who reaches whom.
func (u *up) printReach(ctx context.Context, a *applier) error {
	fmt.Fprintln(u.out, "\nWho reaches whom, asked of the simulated clouds (TCP; . allowed, X denied, - no route):")
	w := tabwriter.NewWriter(u.out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "FROM \\ TO")
	for _, to := range reachTo {
		fmt.Fprint(w, "\t", to.name)
	}
	fmt.Fprintln(w)
	for _, row := range reachFrom {
		from, err := row.upEnd, error(nil)
		if from.name, err = a.address(ctx, from.name); err != nil {
			return err
		}
		fmt.Fprint(w, row.name)
		for _, to := range reachTo {
			cell := map[string]string{"allowed": ".", "denied": "X"}[u.reach(from, to.upEnd, to.port)]
			if cell == "" {
				cell = "-"
			}
			fmt.Fprint(w, "\t", cell)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// address returns the address of a Pod, "" when it has none; other ends stand
// for themselves.
func (a *applier) address(ctx context.Context, end string) (string, error) {
	name, isPod := strings.CutPrefix(end, "pod:")
	if !isPod {
		return end, nil
	}
	namespace, name, _ := strings.Cut(name, "/")
	r, err := a.resource(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, namespace)
	if err != nil {
		return "", err
	}
	pod, err := r.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	ip, _, _ := unstructured.NestedString(pod.Object, "status", "podIP")
	return ip, nil
}
