package console

import (
	"context"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

// Fixed is a Source of a world that does not change, of which nobody enforces anything.
type Fixed struct {
	Snapshot policy.Snapshot
	Networks kube.Networks // of what a preview lays over it
}

var _ Source = Fixed{}

// KnownWorld returns the world.
func (f Fixed) KnownWorld() (policy.Snapshot, bool) { return f.Snapshot, true }

// Revision is always the same.
func (f Fixed) Revision() (now string, changed <-chan struct{}) { return "fixed", nil }

// PolicyState is that nobody has to do with it.
func (f Fixed) PolicyState(*policy.Policy) PolicyState { return PolicyState{} }

// WorkloadState is the same.
func (f Fixed) WorkloadState(*policy.Workload) WorkloadState { return WorkloadState{} }

// CloudObjects has none.
func (f Fixed) CloudObjects(*policy.Workload) []CloudObject { return nil }

// Accounts has none.
func (f Fixed) Accounts() []Account { return nil }

// Loops has none.
func (f Fixed) Loops() []Loop { return nil }

// Hits are not known.
func (f Fixed) Hits(*policy.Policy) (*Hits, map[string]Hits) { return nil, nil }

// Lay lays the writes over the world.
func (f Fixed) Lay(writes []kube.Write) (before, after policy.Snapshot, notices []*kube.Notice, err error) {
	layer, err := kube.NewLayer(f.Networks)
	if err != nil {
		return f.Snapshot, f.Snapshot, nil, err
	}
	after, notices = layer.Lay(f.Snapshot, writes)
	return f.Snapshot, after, notices, nil
}

// Plan is an error: there are no Targets.
func (f Fixed) Plan(context.Context, isobarv1alpha1.PlanSpec) (isobarv1alpha1.PlanStatus, error) {
	return isobarv1alpha1.PlanStatus{}, ErrNothingEnforces
}
