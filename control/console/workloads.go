package console

import (
	"cmp"
	"context"
	"net/netip"
	"strings"

	"isobar.dev/policy"
)

type workloadsAnswer struct {
	Total    int           `json:"total"` // on all pages
	Items    []workloadRow `json:"items"`
	Continue string        `json:"continue,omitempty"`
}

type workloadRow struct {
	ID        string            `json:"id"`
	Kind      string            `json:"kind"`
	Namespace string            `json:"namespace,omitempty"`
	Name      string            `json:"name"`
	Addresses []string          `json:"addresses"`
	Labels    map[string]string `json:"labels"`
	Network   string            `json:"network,omitempty"`
	Policies  int               `json:"policies"` // that apply to it, whether they are seen or not
	// IsolatedIngress and IsolatedEgress: what no rule allows is denied.
	IsolatedIngress bool   `json:"isolatedIngress"`
	IsolatedEgress  bool   `json:"isolatedEgress"`
	Realization     string `json:"realization"`
	Ended           bool   `json:"ended,omitempty"`
}

// workloads lists those that the viewer sees, by ID.
func workloads(ctx context.Context, r *request) (any, error) {
	kind, err := r.word("kind", workloadKinds...)
	if err != nil {
		return nil, err
	}
	limit, after, err := r.page()
	if err != nil {
		return nil, err
	}
	namespace, search := r.text("namespace"), r.text("search")
	out := workloadsAnswer{Items: []workloadRow{}}
	last, n := "", 0
	rows, isAll := r.Workloads.All(), namespace == "" && kind == "" && search == "" && r.seesAll()
	if isAll { // they need not be counted
		rows = r.Workloads.From(after)
	}
	for id, w := range rows {
		if n++; n%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if namespace != "" && w.Namespace != namespace || kind != "" && kindOf(w) != kind || !r.sees(w) || !matches(w, search) {
			continue
		}
		out.Total++
		switch {
		case id <= after:
		case len(out.Items) == limit:
			out.Continue = continues(last)
			if isAll {
				out.Total = r.Workloads.Len()
				return out, nil
			}
		default:
			out.Items, last = append(out.Items, r.workloadRow(w)), id
		}
	}
	if isAll {
		out.Total = r.Workloads.Len()
	}
	return out, nil
}

func (r *request) workloadRow(w *policy.Workload) workloadRow {
	all := r.kinds.of(w)
	out := workloadRow{
		ID: w.ID, Kind: kindOf(w), Namespace: w.Namespace, Name: w.Name, Addresses: make([]string, len(w.Addrs)), Labels: make(map[string]string, len(w.Labels)), Network: w.Network,
		Policies: len(all), IsolatedIngress: isolates(w, all, policy.Ingress), IsolatedEgress: isolates(w, all, policy.Egress), Realization: cmp.Or(string(r.source.WorkloadState(w).Phase), "none"), Ended: w.Terminated,
	}
	for i, a := range w.Addrs {
		out.Addresses[i] = a.String()
	}
	for _, l := range w.Labels {
		out.Labels[l.Key] = l.Value
	}
	return out
}

// matches says whether a text is a part of what a workload is known by: its name after its namespace, an
// address, or a label as key=value. Letters count in any case.
func matches(w *policy.Workload, search string) bool {
	if search == "" {
		return true
	}
	if contains(w.Name, search) || contains(w.ID, search) || contains(w.Network, search) {
		return true
	}
	key, value, isPair := strings.Cut(search, "=")
	for _, l := range w.Labels {
		if contains(l.Key, search) || contains(l.Value, search) || isPair && hasSuffix(l.Key, key) && hasPrefix(l.Value, value) {
			return true
		}
	}
	var text [64]byte
	for _, a := range w.Addrs {
		if containsAddr(a, search, text[:0]) {
			return true
		}
	}
	return false
}

func containsAddr(a netip.Addr, search string, buffer []byte) bool {
	return contains(string(a.AppendTo(buffer)), search)
}

// contains is strings.Contains for ASCII in any case.
func contains(s, part string) bool {
	for i := 0; i+len(part) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(part)], part) {
			return true
		}
	}
	return false
}

func hasPrefix(s, part string) bool {
	return len(s) >= len(part) && strings.EqualFold(s[:len(part)], part)
}

func hasSuffix(s, part string) bool {
	return len(s) >= len(part) && strings.EqualFold(s[len(s)-len(part):], part)
}
