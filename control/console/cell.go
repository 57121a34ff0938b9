package console

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"isobar.dev/api/verdict"
	"isobar.dev/policy/reach"
)

// maxBy is how many ways to decide are told for each port.
const maxBy = 200

type cellAnswer struct {
	From  string      `json:"from"`
	To    string      `json:"to"`
	Asked []cellAsked `json:"asked"`
}

type cellAsked struct {
	Port    string   `json:"port"`
	Allowed int      `json:"allowed"`
	Denied  int      `json:"denied"`
	Depends int      `json:"depends"`
	By      []cellBy `json:"by"`
	MoreBy  int      `json:"moreBy,omitempty"` // that are not told
}

// cellBy is what decides for some pairs, of which it names one.
type cellBy struct {
	Pairs int    `json:"pairs"`
	From  string `json:"from"`
	To    string `json:"to"`
	verdict.Answer
}

// cell tells what decides between two groups.
func cell(ctx context.Context, r *request) (any, error) {
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
	out := cellAnswer{From: r.text("from"), To: r.text("to")}
	if out.From == groupHidden && out.To == groupHidden {
		return nil, apierrors.NewBadRequest("from, to: what is between workloads that you may not see is not told")
	}
	from, err := r.members(w, b, "from")
	if err != nil {
		return nil, err
	}
	to, err := r.members(w, b, "to")
	if err != nil {
		return nil, err
	}
	c, err := w.Cell(from, to, flows, stopping(ctx))
	if err != nil {
		return nil, errTooMany(err, "ask about smaller groups")
	}
	for i, a := range c.Asked {
		out.Asked = append(out.Asked, r.told(ports[i], a))
	}
	return out, nil
}

// members returns which ends a parameter names: those of a group, or one workload.
func (r *request) members(w *reach.World, b by, param string) (func(reach.End) bool, error) {
	id := r.text(param)
	in := func(e reach.End) bool {
		if !r.sees(e.Workload) {
			return id == groupHidden
		}
		return b.group(e.Workload) == id || e.Workload.ID == id
	}
	switch {
	case id == groupOutside:
		return nil, apierrors.NewBadRequest(param + ": outside is no workload: explain tells of one address")
	case id == "" || !slices.ContainsFunc(w.Ends, in):
		return nil, notThere(param, id)
	}
	return in, nil
}

// told returns what is told of the answer about a port. Ways to decide that look alike, since
// their policies are not seen, are one.
func (r *request) told(port string, a reach.Answer) cellAsked {
	out := cellAsked{Port: port, Allowed: a.Allowed, Denied: a.Denied, Depends: a.Depends, By: []cellBy{}}
	place := map[string]int{}
	for _, x := range a.By {
		y := cellBy{x.Pairs, r.exampleID(x.From), r.exampleID(x.To), verdict.AnswerOf(x.Verdict)}
		r.hideEnd(&y.Egress, y.From)
		r.hideEnd(&y.Ingress, y.To)
		key := fmt.Sprintf("%#v", y.Answer)
		if n, ok := place[key]; ok {
			out.By[n].Pairs += y.Pairs
			continue
		}
		place[key] = len(out.By)
		out.By = append(out.By, y)
	}
	slices.SortStableFunc(out.By, func(a, b cellBy) int { return b.Pairs - a.Pairs })
	if n := len(out.By) - maxBy; n > 0 {
		out.By, out.MoreBy = out.By[:maxBy], n
	}
	return out
}

// hideEnd leaves out of a decision at an end what the viewer may not see: of an end that is not seen, all but the verdict.
func (r *request) hideEnd(d *verdict.Decision, id string) {
	if id == groupHidden {
		*d = verdict.Decision{Verdict: d.Verdict, Reason: unseen, Hidden: true}
	}
	r.hideDecision(d)
}

// exampleID returns a workload's ID if it is seen.
func (r *request) exampleID(id string) string {
	if !r.seesID(id) {
		return groupHidden
	}
	return id
}
