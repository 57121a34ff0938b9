package verdict

import (
	"isobar.dev/policy/reach"
)

// Diff is which access differs between two worlds.
type Diff struct {
	Changes []Change `json:"changes"`
	Totals  Totals   `json:"totals"`
}

// Totals count changes of each sort.
type Totals struct {
	Gained  int `json:"gained"`
	Lost    int `json:"lost"`
	Changed int `json:"changed"`
}

// Change is what differs for flows from any end of one side to any other end of the other.
type Change struct {
	From    Side   `json:"from"`
	To      Side   `json:"to"`
	Gained  []Item `json:"gained,omitempty"`
	Lost    []Item `json:"lost,omitempty"`
	Changed []Item `json:"changed,omitempty"` // neither
}

// Side is ends that change alike.
type Side struct {
	Workloads []string `json:"workloads,omitempty"`
	Prefixes  []string `json:"prefixes,omitempty"` // addresses that no workload has
	Added     bool     `json:"added,omitempty"`
	Removed   bool     `json:"removed,omitempty"`
}

// Item is what differs of some traffic.
type Item struct {
	Traffic string `json:"traffic"`
	Before  string `json:"before"`
	After   string `json:"after"`
}

// DiffOf describes changes.
func DiffOf(changes []reach.Change) Diff {
	d := Diff{Changes: []Change{}}
	for _, c := range changes {
		out := Change{From: sideOf(c.From), To: sideOf(c.To)}
		for _, it := range c.Items {
			item := Item{it.Traffic.String(), it.Before.String(), it.After.String()}
			switch {
			case it.Gained():
				out.Gained = append(out.Gained, item)
			case it.Lost():
				out.Lost = append(out.Lost, item)
			default:
				out.Changed = append(out.Changed, item)
			}
		}
		d.Totals.Gained += min(1, len(out.Gained))
		d.Totals.Lost += min(1, len(out.Lost))
		d.Totals.Changed += min(1, len(out.Changed))
		d.Changes = append(d.Changes, out)
	}
	return d
}

func sideOf(s reach.Side) Side {
	out := Side{Added: s.Added, Removed: s.Removed}
	for _, id := range s.Workloads {
		out.Workloads = append(out.Workloads, EndOfID(id))
	}
	for _, p := range s.Prefixes {
		out.Prefixes = append(out.Prefixes, p.String())
	}
	return out
}
