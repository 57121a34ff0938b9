package console

import (
	"cmp"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"isobar.dev/policy/reach"
)

const (
	maxMapGroups = 2000
	maxMapEdges  = 5000
	maxTraffic   = 8 // of an edge, in words
)

type mapAnswer struct {
	By      string     `json:"by"`
	Groups  []mapGroup `json:"groups"`
	Edges   []mapEdge  `json:"edges"`
	Omitted mapOmitted `json:"omitted"`
}

// mapOmitted is what there is besides.
type mapOmitted struct {
	Groups int `json:"groups"` // and all edges of theirs
	Edges  int `json:"edges"`  // between groups that are there
}

type mapGroup struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Workloads int    `json:"workloads"`
	Pods      int    `json:"pods"`
	VMs       int    `json:"vms"`
	Nodes     int    `json:"nodes"`
	// IsolatedIngress and IsolatedEgress are how many deny what no rule allows.
	IsolatedIngress int `json:"isolatedIngress"`
	IsolatedEgress  int `json:"isolatedEgress"`
}

type mapEdge struct {
	From        string   `json:"from"`
	To          string   `json:"to"`
	Pairs       int      `json:"pairs"`
	Allowed     int      `json:"allowed"`
	Partial     int      `json:"partial"`
	Depends     int      `json:"depends"`
	Traffic     []string `json:"traffic"`
	MoreTraffic int      `json:"moreTraffic"`
	By          string   `json:"by"`
}

// mapOf tells between which groups anything passes, and outside. What is between workloads that are both
// not seen is not told.
func mapOf(ctx context.Context, r *request) (any, error) {
	b, err := r.by()
	if err != nil {
		return nil, err
	}
	open, err := r.flag("open")
	if err != nil {
		return nil, err
	}
	within, search := r.text("within"), r.text("search")
	if within != "" && b.text == byWorkload {
		return nil, apierrors.NewBadRequest("within: by=workload has no groups to open")
	}
	w, err := r.reach.of(ctx, r.Snapshot)
	if err != nil {
		return nil, err
	}
	g, err := r.group(ctx, w, b, within, search)
	if err != nil {
		return nil, err
	}
	if within != "" && !g.isIn {
		return nil, notThere("within", within)
	}
	omitted := g.keep(maxMapGroups)
	d := drawing{open: open}
	o := stopping(ctx)
	if search != "" {
		o.Only = func(id string) bool { return g.found[id] }
	}
	if err := w.Access(g.end, groupOutside, o, d.add); err != nil {
		return nil, errTooMany(err, "search for some of them, or have them by namespace")
	}
	out := mapAnswer{By: b.text, Groups: []mapGroup{}, Edges: []mapEdge{}, Omitted: mapOmitted{Groups: omitted, Edges: d.finish()}}
	linked := map[string]bool{}
	for i := range d.edges {
		e := edgeOf(&d.edges[i])
		linked[e.From], linked[e.To] = true, true
		out.Edges = append(out.Edges, e)
	}
	out.Groups = g.rows(w, func(id string) bool {
		return g.found[id] || linked[id] || search == "" && id == groupOutside
	})
	return out, nil
}

// drawing is the edges that are to be shown.
type drawing struct {
	open    bool
	edges   []reach.Edge
	omitted int
}

// add takes the edges from one group.
func (d *drawing) add(row []reach.Edge) {
	for _, e := range row {
		if d.isShown(&e) {
			d.edges = append(d.edges, e)
		}
	}
	if len(d.edges) > 2*maxMapEdges {
		d.cut()
	}
}

// isShown says whether an edge is one that was asked for. Where nothing passes for certain, the other
// end is to be outside: a name may be that of any workload, and nobody means all of them.
func (d *drawing) isShown(e *reach.Edge) bool {
	switch {
	case e.From == groupHidden && e.To == groupHidden:
		return false
	case d.open:
		return true
	}
	return e.ByRule > 0 && (e.Allowed+e.Partial > 0 || e.To == groupOutside)
}

// cut leaves out edges of which there are too many: first those by default, then those of the
// fewest pairs that have access.
func (d *drawing) cut() {
	slices.SortFunc(d.edges, func(a, b reach.Edge) int {
		return cmp.Or(cmp.Compare(min(b.ByRule, 1), min(a.ByRule, 1)), cmp.Compare(b.Allowed+b.Partial, a.Allowed+a.Partial),
			cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	if n := len(d.edges) - maxMapEdges; n > 0 {
		d.omitted += n
		clear(d.edges[maxMapEdges:])
		d.edges = d.edges[:maxMapEdges]
	}
}

// finish puts the edges in order, and returns how many are left out.
func (d *drawing) finish() int {
	d.cut()
	slices.SortFunc(d.edges, func(a, b reach.Edge) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	return d.omitted
}

// edgeOf returns an edge in words.
func edgeOf(e *reach.Edge) mapEdge {
	out := mapEdge{From: e.From, To: e.To, Pairs: e.Pairs, Allowed: e.Allowed, Partial: e.Partial, Depends: e.Depends,
		Traffic: []string{}, By: "default"}
	if e.ByRule > 0 {
		out.By = "rule"
	}
	list := e.Traffic()
	if len(list) == 0 {
		list = e.MayPass()
	}
	if e.PassesAll() {
		out.Traffic = append(out.Traffic, "all traffic")
		return out
	}
	for _, t := range list[:min(maxTraffic, len(list))] {
		out.Traffic = append(out.Traffic, t.String())
	}
	out.MoreTraffic = len(list) - len(out.Traffic)
	return out
}

// rows returns the groups that are to be shown, by ID.
func (g *groups) rows(w *reach.World, shown func(id string) bool) []mapGroup {
	byID := map[string]*mapGroup{}
	at := func(id string) *mapGroup {
		x := byID[id]
		if x == nil {
			x = &mapGroup{ID: id}
			x.Name, x.Kind = g.by.name(id)
			byID[id] = x
		}
		return x
	}
	for _, e := range w.Ends {
		id := g.end(e)
		if id == "" || !shown(id) {
			continue
		}
		x := at(id)
		x.Workloads++
		if id == groupHidden { // of which nothing else is told
			continue
		}
		switch kindOf(e.Workload) {
		case kindPod:
			x.Pods++
		case kindVM:
			x.VMs++
		case kindNode:
			x.Nodes++
		}
		egress, ingress := w.Isolated(e)
		x.IsolatedEgress += asNumber(egress)
		x.IsolatedIngress += asNumber(ingress)
	}
	if shown(groupOutside) {
		at(groupOutside)
	}
	out := make([]mapGroup, 0, len(byID))
	for _, x := range byID {
		out = append(out, *x)
	}
	slices.SortFunc(out, func(a, b mapGroup) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

func asNumber(b bool) int {
	if b {
		return 1
	}
	return 0
}
