package console

import (
	"context"
	"time"
)

type accountsAnswer struct {
	Items []accountRow `json:"items"`
	Loops []loopRow    `json:"loops"`
}

type accountRow struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Provider  string       `json:"provider"`
	Problem   string       `json:"problem"`
	VMs       int          `json:"vms"`
	Regions   []regionRow  `json:"regions"`
	Targets   []accountNet `json:"targets"`
}

type regionRow struct {
	Name     string `json:"name"`
	LastPoll string `json:"lastPoll"`
	Error    string `json:"error"`
}

type accountNet struct {
	Name     string     `json:"name"`
	Network  string     `json:"network"`
	Phase    string     `json:"phase"`
	LastSync string     `json:"lastSync"`
	Error    string     `json:"error"`
	Quotas   []quotaRow `json:"quotas"`
}

type quotaRow struct {
	Name string `json:"name"`
	Used int    `json:"used"`
	Of   int    `json:"of"`
}

type loopRow struct {
	Name      string `json:"name"`
	Last      string `json:"last"`
	BusySince string `json:"busySince"`
	Error     string `json:"error"`
	Stuck     bool   `json:"stuck"`
}

// accounts lists those that the viewer may list. Targets and loops are for who may list Targets: their names and
// errors are those of all accounts.
func accounts(ctx context.Context, r *request) (any, error) {
	all := r.source.Accounts()
	places := []place{{resource: targetObjects}}
	for _, a := range all {
		places = append(places, place{accountObjects, a.Namespace})
	}
	if err := r.learn(ctx, places...); err != nil {
		return nil, err
	}
	seesTargets := r.may(place{resource: targetObjects})
	out := accountsAnswer{Items: []accountRow{}, Loops: []loopRow{}}
	for _, a := range all {
		if !r.may(place{accountObjects, a.Namespace}) {
			continue
		}
		row := accountRow{Namespace: a.Namespace, Name: a.Name, Provider: a.Provider, Problem: a.Problem, VMs: a.VMs, Regions: []regionRow{}, Targets: []accountNet{}}
		for _, x := range a.Regions {
			row.Regions = append(row.Regions, regionRow{x.Name, instant(x.LastPoll), x.Err})
		}
		for _, t := range a.Targets {
			if !seesTargets {
				break
			}
			net := accountNet{Name: t.Name, Network: t.Network, Phase: t.Phase, LastSync: instant(t.LastSync), Error: t.Err, Quotas: []quotaRow{}}
			for _, u := range t.Usage {
				net.Quotas = append(net.Quotas, quotaRow{u.Quota, u.Used, u.Limit})
			}
			row.Targets = append(row.Targets, net)
		}
		out.Items = append(out.Items, row)
	}
	if !seesTargets {
		return out, nil
	}
	for _, l := range r.source.Loops() {
		out.Loops = append(out.Loops, loopRow{l.Name, instant(l.Last), instant(l.Busy), l.Err, l.Stuck})
	}
	return out, nil
}

// instant is a time as JSON has it; empty for none.
func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
