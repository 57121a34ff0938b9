package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

// The groups that are no group of workloads which are seen.
const (
	groupHidden  = "hidden"  // all that the viewer may not see
	groupOutside = "outside" // the addresses that nobody has
	groupNodes   = "(nodes)"
)

// reaching is who reaches whom in a world: it is found out when it is asked for first, for all viewers.
type reaching struct {
	once  sync.Once
	done  chan struct{}
	world *reach.World
	err   error
}

func newReaching() *reaching { return &reaching{done: make(chan struct{})} }

// of returns the world made ready for s, which is the same each time.
func (r *reaching) of(ctx context.Context, s policy.Snapshot) (*reach.World, error) {
	mine := false
	r.once.Do(func() { mine = true })
	if mine {
		r.err = errors.New("the world cannot be made ready") // unless it is
		defer close(r.done)
		r.world, r.err = reach.New(s)
		return r.world, r.err
	}
	select {
	case <-r.done:
		return r.world, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// errTooMany is what users are told of reach.ErrTooMany.
func errTooMany(err error, instead string) error {
	if !errors.Is(err, reach.ErrTooMany) {
		return err
	}
	return apierrors.NewRequestEntityTooLargeError("policies tell too many kinds of workloads apart: " + instead)
}

// maxPairs is how many pairs of kinds of workloads a view may hold against one another: some seconds.
const maxPairs = 1 << 29

// stopping bounds what is computed.
func stopping(ctx context.Context) reach.Options {
	return reach.Options{Pairs: maxPairs, Stop: func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}}
}

// by is what groups are by.
type by struct {
	text string
	key  string // of a label
}

const (
	byNamespace = "namespace"
	byNetwork   = "network"
	byWorkload  = "workload"
	byLabel     = "label:"
)

// by returns what groups are by; without it, namespaces.
func (q query) by() (by, error) {
	text := q.text("by")
	if key, ok := strings.CutPrefix(text, byLabel); ok && key != "" && !strings.Contains(key, "=") {
		return by{text, key}, nil
	}
	switch text {
	case "":
		return by{text: byNamespace}, nil
	case byNamespace, byNetwork, byWorkload:
		return by{text: text}, nil
	}
	return by{}, apierrors.NewBadRequest(fmt.Sprintf("by=%q: want namespace, network, label:KEY or workload", clip(text)))
}

// group returns the ID of the group of a workload that is seen.
func (b by) group(w *policy.Workload) string {
	switch {
	case b.key != "":
		v, has := w.Labels.Value(b.key)
		if !has {
			return "label/" + b.key
		}
		return "label/" + b.key + "=" + v
	case b.text == byNetwork:
		return "net/" + w.Network
	case b.text == byWorkload:
		return w.ID
	case w.Kind == policy.KindNode:
		return groupNodes
	}
	return "ns/" + w.Namespace
}

// name returns what a group is called, and of what kind it is.
func (b by) name(id string) (name, kind string) {
	switch {
	case id == groupHidden:
		return "(not visible to you)", "hidden"
	case id == groupOutside:
		return "(outside)", "outside"
	case b.key != "" && id == "label/"+b.key:
		return "(without " + b.key + ")", "label"
	case b.key != "" && strings.HasPrefix(id, "label/"+b.key+"="):
		return strings.TrimPrefix(id, "label/"), "label"
	case b.text == byNetwork && id == "net/":
		return "(cluster)", "network"
	case b.text == byNetwork && strings.HasPrefix(id, "net/"):
		return strings.TrimPrefix(id, "net/"), "network"
	case b.text == byNamespace && id == groupNodes:
		return id, "nodes"
	case b.text == byNamespace && strings.HasPrefix(id, "ns/"):
		return strings.TrimPrefix(id, "ns/"), "namespace"
	}
	_, name, _ = strings.Cut(id, "/") // a workload's
	return name, "workload"
}

// groups has each end of a world in one group.
type groups struct {
	of    map[*policy.Workload]string
	by    by
	found map[string]bool // groups of which something is what was searched for; all without a search
	size  map[string]int
	isIn  bool // something is in the group that was to be opened
}

// group puts the ends of a world into groups: those that are not seen into one. The workloads
// of the group within are groups of their own.
func (r *request) group(ctx context.Context, w *reach.World, b by, within, search string) (*groups, error) {
	g := &groups{of: make(map[*policy.Workload]string, len(w.Ends)), by: b, found: map[string]bool{}, size: map[string]int{}}
	for i, e := range w.Ends {
		if i%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		x := e.Workload
		if !r.sees(x) {
			g.of[x] = groupHidden
			g.size[groupHidden]++
			continue
		}
		id := b.group(x)
		if within != "" && id == within {
			id, g.isIn = x.ID, true
		}
		g.of[x] = id
		g.size[id]++
		if !g.found[id] {
			name, _ := b.name(id)
			if search == "" || contains(name, search) || matches(x, search) {
				g.found[id] = true
			}
		}
	}
	if search == "" && g.size[groupHidden] > 0 {
		g.found[groupHidden] = true
	}
	return g, nil
}

// keep leaves out groups until there are at most so many, and returns how many are left out: first of those
// that were not found, then of those of the fewest workloads.
func (g *groups) keep(most int) (omitted int) {
	if len(g.size) <= most {
		return 0
	}
	ids := make([]string, 0, len(g.size))
	for id := range g.size {
		ids = append(ids, id)
	}
	rank := func(id string) int {
		if g.found[id] {
			return 0
		}
		return 1
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(g.size[b], g.size[a]), cmp.Compare(a, b))
	})
	for _, id := range ids[most:] {
		delete(g.size, id)
		delete(g.found, id)
	}
	return len(ids) - most
}

// notThere is that a parameter names a group of nothing that is seen.
func notThere(param, id string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("%s: there is no group %q", param, clip(id))}}
}

// end returns the group of an end; "" of one that is left out.
func (g *groups) end(e reach.End) string {
	id := g.of[e.Workload]
	if g.size[id] == 0 {
		return ""
	}
	return id
}
