package controller

import (
	"net/netip"
	"slices"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
)

// nodesResource is what stands for a VM whose agent enforces its policies; the
// controller of the agents makes an ExternalEntity of it.
const nodesResource = "externalnodes"

// nodeOf returns the ExternalNode that a VM with an agent should have.
func nodeOf(i *imported) entity {
	e := entityOf(i)
	e.kind, e.node, e.endpoints = externalNode, "", nil
	for _, n := range i.vm.Interfaces {
		// The agent finds its own interface by these: as the cloud tells them, each once.
		x := nodeInterface{name: n.ID}
		var seen []netip.Addr
		for _, a := range slices.Concat(n.Private, n.Public) {
			if a = a.Unmap(); !slices.Contains(seen, a) {
				seen = append(seen, a)
				x.ips = append(x.ips, a.String())
			}
		}
		e.interfaces = append(e.interfaces, x)
	}
	return e
}

// readNode returns what the loops need of an ExternalNode.
func readNode(in *antreav1alpha1.ExternalNode) entity {
	e := readMeta(&in.ObjectMeta)
	e.kind = externalNode
	for _, n := range in.Spec.Interfaces {
		e.interfaces = append(e.interfaces, nodeInterface{n.Name, n.IPs})
	}
	return e
}

// entityOrNode is what a VM should have: one of the two.
func entityOrNode(i *imported) entity {
	if i.agented {
		return nodeOf(i)
	}
	return entityOf(i)
}
