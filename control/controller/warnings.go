package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

const (
	maxWarnings    = 5   // for one write
	maxWarningText = 900 // bytes
	// A warning that takes longer than this is followed by a pause of warnPause times
	// as long, so that writing many policies costs little more than it did.
	quickWarning = 100 * time.Millisecond
	warnPause    = 4
)

// pace says when a warning may be looked for again.
type pace struct {
	mu   sync.Mutex
	next time.Time
}

func (p *pace) mayBegin(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !now.Before(p.next)
}

func (p *pace) ended(began, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if took := now.Sub(began); took > quickWarning {
		p.next = now.Add(warnPause * took)
	}
}

// Warnings returns what the clouds will not enforce once an object, a policy or a
// group or tier that policies use, is written as in the manifest. It asks no cloud,
// and ends with ctx; when it cannot say, or has just had much to say of others, it
// returns nothing. What it tells is for who may write the object: of policies in
// other namespaces than the object's it tells the number alone.
func (c *Controller) Warnings(ctx context.Context, manifest []byte) []string {
	began := time.Now()
	if !c.pace.mayBegin(began) {
		return nil
	}
	defer func() { c.pace.ended(began, time.Now()) }()
	p, err := c.Preview(ctx, []kube.Write{{Manifest: manifest}}, PreviewOptions{Quick: true})
	if err != nil || len(p.Targets) == 0 {
		return nil
	}
	var o struct {
		APIVersion, Kind string
		Metadata         struct{ Namespace, Name string }
	}
	if json.Unmarshal(manifest, &o) != nil {
		return nil
	}
	id := policyOf(kube.Object{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name})
	var out []string
	hidden := 0
	for _, t := range p.Targets {
		for _, r := range t.Report.Refusals {
			switch {
			case r.Policy != id && isRefusedAlready(t, r):
			case r.Policy != id && !isOf(r, o.Metadata.Namespace):
				hidden++
			default:
				out = append(out, "will not be enforced as written: "+refusalText(r))
			}
		}
		for _, u := range t.Report.Usage {
			if u.Limit > 0 && u.Used > u.Limit && u.Used > usedBefore(t, u.Quota) {
				out = append(out, fmt.Sprintf("quota exceeded: %s: %d of %d at %s", u.Quota, u.Used, u.Limit, t.Name))
			}
		}
	}
	return told(out, hidden)
}

// isOf says whether a Refusal concerns a namespace: a policy of it or, when it
// names none, a workload. All concern who writes for the cluster.
func isOf(r policy.Refusal, namespace string) bool {
	if namespace == "" {
		return true
	}
	if r.Policy != "" {
		return strings.HasPrefix(r.Policy, policy.PolicyID(policy.AntreaNetworkPolicy, namespace, "")) ||
			strings.HasPrefix(r.Policy, policy.PolicyID(policy.KubernetesNetworkPolicy, namespace, ""))
	}
	return slices.ContainsFunc(r.Workloads, func(id string) bool {
		return strings.HasPrefix(id, policy.WorkloadID(policy.KindExternal, namespace, ""))
	})
}

// told bounds what is told.
func told(out []string, hidden int) []string {
	slices.Sort(out)
	out = slices.Compact(out)
	for i, text := range out {
		if len(text) > maxWarningText {
			out[i] = strings.ToValidUTF8(text[:maxWarningText], "") + "..."
		}
	}
	if more := len(out) - maxWarnings; more > 0 {
		out = append(out[:maxWarnings:maxWarnings], fmt.Sprintf("and %d more", more))
	}
	if hidden > 0 {
		out = append(out, fmt.Sprintf("%d rules or policies of other namespaces will not be enforced as written any more", hidden))
	}
	return out
}
