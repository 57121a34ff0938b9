package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"isobar.dev/compile"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

// ErrNotRead says that the world has not been read yet, so that nothing can be
// said of what changes in it.
var ErrNotRead = errors.New("not all that policies speak of has been read yet")

// PreviewOptions configure a preview. The zero value is ready to use.
type PreviewOptions struct {
	// Quick asks no cloud, and hardly waits for others: a Target of which it is not
	// known what it has, or to which a sync writes just now, gets an error instead.
	Quick bool
}

const (
	// quickWait is how long a quick preview waits for its turn.
	quickWait = 200 * time.Millisecond
	// previewsAtOnce bounds the Targets that are previewed at once; those that wait
	// for a sync count too.
	previewsAtOnce = 16
)

// patience returns the context in which to wait for a turn.
func (o PreviewOptions) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if !o.Quick {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, quickWait)
}

// Preview is what writes would do, if they were made.
type Preview struct {
	// Notices has one for each write: nil where it is taken as it stands.
	Notices []*kube.Notice
	// Targets are those whose Ruleset the writes change, by name. Pods are not
	// among them: no Target of this controller enforces on their Nodes.
	Targets []TargetPreview
}

// TargetPreview is what writes would do at one Target.
type TargetPreview struct {
	Name string
	// Err is why the rest is not known.
	Err error
	// Pending: the Target is not yet as it should be without the writes. Report has
	// what it lacks too.
	Pending bool
	Now     plan.Report // of the last sync without an error
	Report  plan.Report // what the sync would report that follows the writes
}

// Preview says what the loops would do if the writes were made, in their order,
// and writes nothing. A Target's part is the preview of its Enforcer, which is what
// a sync does, up to the last call. A sync that is under way is waited for until ctx
// ends. The error is that nothing can be said at all.
func (c *Controller) Preview(ctx context.Context, writes []kube.Write, o PreviewOptions) (Preview, error) {
	if c.o.Computed != nil {
		return Preview{}, ErrComputedElsewhere
	}
	m := c.world.current.Load()
	if m == nil {
		return Preview{}, ErrNotRead
	}
	c.mu.Lock()
	targets := make(map[string]*target, len(c.targets))
	for name, t := range c.targets {
		targets[name] = t
	}
	c.mu.Unlock()

	next, notices := c.preview.lay(m, writes)
	out := Preview{Notices: notices}
	wait, cancel := o.patience(ctx)
	rulesets, err := c.preview.rulesets(wait, m.Snapshot, next, func(name string) bool { return targets[name] != nil })
	cancel()
	if err != nil {
		return out, err
	}
	out.Targets = make([]TargetPreview, len(rulesets))
	slots := make(chan struct{}, previewsAtOnce)
	var all sync.WaitGroup
	for i, rs := range rulesets {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out.Targets[i] = c.previewTarget(ctx, targets[rs.Target], rs, o)
		})
	}
	all.Wait()
	return out, nil
}

func (c *Controller) previewTarget(ctx context.Context, t *target, rs policy.Ruleset, o PreviewOptions) TargetPreview {
	t.mu.Lock()
	out := TargetPreview{Name: t.name, Pending: t.have != t.want || t.last.err != nil, Now: t.report}
	lastErr, isHeld, isKnown, isRetired := t.last.err, t.want == 0, t.have > 0 && t.last.err == nil, t.retired
	t.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		out.Err = context.Cause(ctx)
	case isRetired:
		out.Err = errors.New("its account goes, and what is enforced there with it")
	case isHeld:
		out.Err = errors.New("nothing is written there yet, because not all that concerns it has been read")
	case o.Quick && !isKnown:
		out.Err = cmp.Or(lastErr, errors.New("it has not been read yet"))
	}
	if out.Err != nil {
		return out
	}
	rs.Failing = t.failing(c.siblingsOf(t)) // nobody is waited for in what it comes to
	e, err := c.enforcer(t)
	if err == nil {
		wait, cancel := o.patience(ctx) // a cloud that is known is not asked
		defer cancel()
		if out.Report, err = e.Preview(wait, rs); err != nil {
			err = c.scrubbed(t, err)
		}
	}
	out.Err = err
	return out
}

// previewer compiles what is not, with an Engine of its own: the one that the
// loops use sees what is. It costs what the worlds of two previews differ by.
type previewer struct {
	layer *kube.Layer
	turn  chan struct{} // holds one while the engine is used
	// engine holds about as much as that of the world; it has none before the
	// first preview, and after one that did not end.
	engine *compile.Engine
}

func newPreviewer(n kube.Networks) (previewer, error) {
	layer, err := kube.NewLayer(n)
	return previewer{layer: layer, turn: make(chan struct{}, 1)}, err
}

// lay returns the world with the writes, and a Notice for each.
func (p *previewer) lay(m *moment, writes []kube.Write) (policy.Snapshot, []*kube.Notice) {
	source := m.Snapshot
	source.Workloads = m.source
	next, notices := p.layer.Lay(source, writes)
	changed := next.Workloads
	next.Workloads = m.Workloads
	policy.Diff(m.source, changed, func(id string, _, now **policy.Workload) {
		var from *policy.Workload
		if now != nil {
			from = *now
		}
		have, _ := m.Workloads.Get(id)
		vm, _ := m.imports.Get(id)
		if w := previewed(have, from, vm); w != nil {
			next.Workloads = next.Workloads.Put(id, w)
		} else {
			next.Workloads = next.Workloads.Delete(id)
		}
	})
	return next, notices
}

// previewed is laid where the VM has no agent. What an agent's controller has made
// of a VM keeps what is known of that, and the VM of an agent has no
// ExternalEntity that counts.
func previewed(have, from *policy.Workload, vm *imported) *policy.Workload {
	switch {
	case vm != nil && vm.agented:
		return have
	case vm == nil && have != nil && from != nil && have.Kind == policy.KindExternal && have.Network != "" && have.Target == from.Target:
		w := *from
		w.Network, w.Addrs, w.Interfaces = have.Network, have.Addrs, have.Interfaces
		return &w
	}
	return laid(have, from, vm)
}

// rulesets returns the Rulesets, by name, of those Targets that pass the filter and
// have another one after next than after now.
func (p *previewer) rulesets(ctx context.Context, now, next policy.Snapshot, filter func(name string) bool) ([]policy.Ruleset, error) {
	if now == next {
		return nil, nil
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("preview: others are under way: %w", context.Cause(ctx))
	}
	e := p.engine
	p.engine = nil // it may be kept only when all is done
	if e == nil {
		e = compile.NewEngine()
	}
	e.UpdateWatched(now)
	var out []policy.Ruleset
	for _, target := range e.UpdateWatched(next).Changed {
		if filter(target) {
			out = append(out, rulesetOf(e, target))
		}
	}
	p.engine = e
	slices.SortFunc(out, func(a, b policy.Ruleset) int { return cmp.Compare(a.Target, b.Target) })
	return out, nil
}
