package console

import (
	"context"
	"errors"
	"time"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	"isobar.dev/plan"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

// Source has what views are about; *controller.Controller is one, but for what agents count, and Fixed is. Its
// methods may be called from several goroutines, and do not wait for anybody outside but for Plan.
type Source interface {
	// KnownWorld returns the world of now. ok is false while nothing is known yet.
	KnownWorld() (s policy.Snapshot, ok bool)
	// Revision returns a word that is another one whenever a view may have another
	// answer, and a channel that is closed when it is no longer that of now.
	Revision() (now string, changed <-chan struct{})
	// PolicyState returns how a policy fares.
	PolicyState(*policy.Policy) PolicyState
	// WorkloadState returns how a workload fares.
	WorkloadState(*policy.Workload) WorkloadState
	// CloudObjects returns what of a cloud a workload is, and has of ours.
	CloudObjects(*policy.Workload) []CloudObject
	// Accounts returns the accounts of clouds, by namespace and name.
	Accounts() []Account
	// Loops returns how each loop fares, by name.
	Loops() []Loop
	// Lay returns the world as it is and as it would be if the writes were made, and a Notice for each that is
	// not taken as it stands. The error is why that cannot be said now.
	Lay(writes []kube.Write) (before, after policy.Snapshot, notices []*kube.Notice, err error)
	// Plan says what writes would do at the Targets. It may ask clouds.
	Plan(context.Context, isobarv1alpha1.PlanSpec) (isobarv1alpha1.PlanStatus, error)
	// Hits returns what agents have counted of a policy, and of its rules by name; nil where nothing is
	// known.
	Hits(*policy.Policy) (total *Hits, rules map[string]Hits)
}

// ErrNothingEnforces says that a Source has no Targets.
var ErrNothingEnforces = errors.New("these manifests are enforced nowhere: there is no cloud to ask")

// Phase is how far something is enforced.
type Phase string

// The phases. The zero Phase is that nobody has to do with it.
const (
	Realized  Phase = "realized"
	Realizing Phase = "realizing"
	Failed    Phase = "failed"
)

// PolicyState is how a policy fares.
type PolicyState struct {
	Phase    Phase
	Targets  []TargetState // that have to do with it, by name
	Refusals []policy.Refusal
	Problems []Problem // of what is written in it
}

// TargetState is how far a Target enforces a policy, or the policies of a workload.
type TargetState struct {
	Name    string
	Phase   Phase
	Message string
}

// Problem is a part of a policy that does not do what is written.
type Problem struct{ Field, Message string }

// WorkloadState is how far the policies of a workload are enforced on it.
type WorkloadState struct {
	Phase   Phase
	Targets []TargetState
	Agent   string // how its agent fares, if one is known
}

// CloudObject is one thing of a cloud's.
type CloudObject struct {
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	Account string `json:"account"`
	Detail  string `json:"detail"`
}

// Account is an account of a cloud, and how it fares.
type Account struct {
	Namespace, Name, Provider string
	Problem                   string // of the account as a whole
	VMs                       int    // that are imported
	Regions                   []Region
	Targets                   []Target
}

// Region is one that is listed.
type Region struct {
	Name     string
	LastPoll time.Time // zero before the first
	Err      string
}

// Target is one place of an account that enforces.
type Target struct {
	Name, Network string
	Phase         string // Held, Pending, Failed or Synced
	LastSync      time.Time
	Err           string
	Usage         []plan.Usage
}

// Loop is how one loop fares.
type Loop struct {
	Name       string
	Last, Busy time.Time // zero for never, and not now
	Err        string
	Stuck      bool
}

// Hits are what rules have matched.
type Hits struct {
	Sessions int64 `json:"sessions"`
	Packets  int64 `json:"packets"`
	Bytes    int64 `json:"bytes"`
}
