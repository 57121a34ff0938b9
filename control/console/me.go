package console

import (
	"cmp"
	"context"
	"maps"
	"slices"
)

// maxLabels is how many keys of labels are offered.
const maxLabels = 50

type meAnswer struct {
	User   string   `json:"user"`
	Groups []string `json:"groups"`
	// AllNamespaces: no namespace has anything that is not seen.
	AllNamespaces bool     `json:"allNamespaces"`
	Namespaces    []string `json:"namespaces"` // in which something is seen
	Labels        []string `json:"labels"`     // keys, of most workloads first
	Networks      []string `json:"networks"`
	May           meMay    `json:"may"`
	Workloads     int      `json:"workloads"`
	Policies      int      `json:"policies"`
}

type meMay struct {
	Plan     bool `json:"plan"`
	Accounts bool `json:"accounts"`
}

// me says who asks, and what there is to see.
func me(ctx context.Context, r *request) (any, error) {
	out := meAnswer{User: r.viewer.Name(), Groups: r.viewer.Groups(), AllNamespaces: true, Namespaces: []string{}, Labels: []string{}, Networks: []string{}}
	if out.Groups == nil {
		out.Groups = []string{}
	}
	namespaces, networks, labels := map[string]bool{}, map[string]bool{}, map[string]int{}
	for p, c := range r.places {
		if p.resource == machines && r.may(place{entities, p.namespace}) {
			continue // they are among those
		}
		if !r.may(p) {
			out.AllNamespaces = out.AllNamespaces && p.resource == machines
			continue
		}
		if p.namespace != "" {
			namespaces[p.namespace] = true
		}
		out.Workloads += c.workloads
		out.Policies += c.policies
		for key, n := range c.labels {
			labels[key] += n
		}
		for network := range c.networks {
			if network != "" {
				networks[network] = true
			}
		}
	}
	out.Namespaces = append(out.Namespaces, slices.Sorted(maps.Keys(namespaces))...)
	out.Networks = append(out.Networks, slices.Sorted(maps.Keys(networks))...)
	keys := slices.SortedFunc(maps.Keys(labels), func(a, b string) int {
		return cmp.Or(cmp.Compare(labels[b], labels[a]), cmp.Compare(a, b))
	})
	out.Labels = append(out.Labels, keys[:min(maxLabels, len(keys))]...)
	if err := r.learn(ctx, place{resource: plans}, place{resource: accountObjects}); err != nil {
		return nil, err
	}
	out.May = meMay{Plan: r.may(place{resource: plans}), Accounts: r.may(place{resource: accountObjects})}
	return out, nil
}
