package console

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"isobar.dev/api/verdict"
	"isobar.dev/policy"
	"isobar.dev/policy/reach"
)

const (
	maxMatrixGroups = 300
	maxPorts        = 16
)

type matrixAnswer struct {
	By     string         `json:"by"`
	Ports  []string       `json:"ports"`
	Groups []matrixGroup  `json:"groups"`
	Counts []matrixCounts `json:"counts"` // of cells, each once: those of most cells are equal
	// Cells are by the group that flows come from and that which they go to, as places in Counts; notTold where
	// neither end is seen.
	Cells   [][]int `json:"cells"`
	Omitted struct {
		Groups int `json:"groups"`
	} `json:"omitted"`
}

type matrixGroup struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Workloads int    `json:"workloads"`
}

const notTold = -1

// matrixCounts are of pairs: how many there are, how many are apart, allowed, denied, partial, and how many depend.
type matrixCounts [6]int

// matrix counts who reaches whom by some ports.
func matrix(ctx context.Context, r *request) (any, error) {
	b, err := r.by()
	if err != nil {
		return nil, err
	}
	flows, ports, err := r.ports()
	if err != nil {
		return nil, err
	}
	w, err := r.reach.of(ctx, r.Snapshot)
	if err != nil {
		return nil, err
	}
	g, err := r.group(ctx, w, b, "", r.text("search"))
	if err != nil {
		return nil, err
	}
	for id := range g.size {
		if !g.found[id] {
			delete(g.size, id)
		}
	}
	out := matrixAnswer{By: b.text, Ports: ports, Groups: []matrixGroup{}, Counts: []matrixCounts{}, Cells: [][]int{}}
	out.Omitted.Groups = g.keep(maxMatrixGroups)
	groups, cells, err := w.Counts(g.end, flows, stopping(ctx))
	if err != nil {
		return nil, errTooMany(err, "search for some of them")
	}
	place := map[reach.Counts]int{}
	for i, x := range groups {
		name, _ := b.name(x.Name)
		out.Groups = append(out.Groups, matrixGroup{x.Name, name, x.Ends})
		row := make([]int, len(groups))
		for k, c := range cells[i] {
			if x.Name == groupHidden && i == k {
				row[k] = notTold
				continue
			}
			n, ok := place[c]
			if !ok {
				n = len(out.Counts)
				place[c] = n
				out.Counts = append(out.Counts, matrixCounts{c.Pairs, c.Apart, c.Allowed, c.Denied, c.Partial, c.Depends})
			}
			row[k] = n
		}
		out.Cells = append(out.Cells, row)
	}
	return out, nil
}

// ports returns what port= asks about, and what it is called.
func (q query) ports() ([]policy.Flow, []string, error) {
	all := q.all("port")
	if len(all) == 0 || len(all) > maxPorts {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("port: want from 1 to %d of them, as TCP/443", maxPorts))
	}
	var flows []policy.Flow
	var names []string
	for _, text := range all {
		ask := verdict.Ask{From: "0.0.0.0", To: "0.0.0.0"} // which do not count
		err := ask.ParseTraffic(text)
		var f policy.Flow
		if err == nil {
			f, err = ask.Flow()
		}
		if err != nil {
			return nil, nil, apierrors.NewBadRequest(clip("port: " + err.Error()))
		}
		flows, names = append(flows, f), append(names, ask.Traffic())
	}
	return flows, names, nil
}
