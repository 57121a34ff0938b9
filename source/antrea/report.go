package antrea

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

// reportTimeout bounds one report.
const reportTimeout = 30 * time.Second

// Realized is how far the Node has realized one policy.
type Realized struct {
	UID        string // as ReadPolicy has it
	Generation int64  // that is realized, or failed
	// Failure says why it cannot be; empty where it is.
	Failure string
}

// SetRealized says what is true of all policies of the Node, in place of what was said
// before. The controller is told what it does not know: what has changed, and
// everything each time that the watch of policies has begun anew. Run tells it.
func (s *Source) SetRealized(list []Realized) { s.reports.set(list) }

// PostStats tells the controller what policies have matched since the last time that
// this was told. After an error it was perhaps not told.
func (s *Source) PostStats(ctx context.Context, stats *controlplanev1beta2.NodeStatsSummary) error {
	out := *stats
	out.Name = s.node
	err := s.reports.create(ctx, "NodeStatsSummary", &out, "nodestatssummaries")
	if err != nil {
		return fmt.Errorf("post the statistics of %s: %w", s.node, err)
	}
	return nil
}

// reporter tells the controller what the Node has realized.
type reporter struct {
	node string
	dial *dialer
	wake signal
	anew signal      // a watch has begun anew, so somebody is there
	note func(error) // is told how each round of reports has ended

	mu    sync.Mutex
	want  map[string]Realized // by UID
	told  map[string]Realized // since the last beginning
	begun int                 // how often
}

func newReporter(node string, dial *dialer, note func(error)) *reporter {
	return &reporter{node: node, dial: dial, wake: make(signal, 1), anew: make(signal, 1), note: note, told: map[string]Realized{}}
}

func (r *reporter) set(list []Realized) {
	want := make(map[string]Realized, len(list))
	for _, x := range list {
		want[x.UID] = x
	}
	r.mu.Lock()
	r.want = want
	maps.DeleteFunc(r.told, func(uid string, _ Realized) bool { _, ok := want[uid]; return !ok })
	r.mu.Unlock()
	r.wake.send()
}

// again has everything told again: who listens may be another controller.
func (r *reporter) again() {
	r.mu.Lock()
	clear(r.told)
	r.begun++
	r.mu.Unlock()
	r.anew.send()
}

// open returns what is to be told, by UID, and since which beginning.
func (r *reporter) open() ([]Realized, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Realized
	for _, uid := range slices.Sorted(maps.Keys(r.want)) {
		if told, ok := r.told[uid]; !ok || told != r.want[uid] {
			out = append(out, r.want[uid])
		}
	}
	return out, r.begun
}

func (r *reporter) run(ctx context.Context) {
	failures := 0
	for {
		err := r.tellAll(ctx)
		r.note(err)
		var again <-chan time.Time
		if failures++; err == nil {
			failures = 0
		} else {
			again = time.After(backoff(failures))
		}
		// Who changes what is to be told does not make it told sooner after a failure.
		wake := r.wake
		if err != nil {
			wake = nil
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-again:
		case <-r.anew:
			failures = 0
		}
	}
}

// tellAll tells what is open. One that is refused keeps none of the others back.
func (r *reporter) tellAll(ctx context.Context) error {
	var first error
	list, begun := r.open()
	for _, x := range list {
		err := r.tell(ctx, x)
		if err == nil || apierrors.IsNotFound(err) { // a policy that has just gone
			r.mu.Lock()
			if r.want[x.UID] == x && r.begun == begun {
				r.told[x.UID] = x
			}
			r.mu.Unlock()
			continue
		}
		if first == nil {
			first = fmt.Errorf("report policy %s: %w", x.UID, err)
		}
		if !isAnswer(err) {
			break // nobody is there
		}
	}
	return first
}

func (r *reporter) tell(ctx context.Context, x Realized) error {
	if len(path.IsValidPathSegmentName(x.UID)) > 0 || x.UID == "" {
		return nil // no server has it
	}
	status := controlplanev1beta2.NetworkPolicyStatus{ObjectMeta: metav1.ObjectMeta{Name: x.UID}}
	status.Nodes = []controlplanev1beta2.NetworkPolicyNodeStatus{{
		NodeName: r.node, Generation: x.Generation, RealizationFailure: x.Failure != "", Message: x.Failure,
	}}
	return r.create(ctx, "NetworkPolicyStatus", &status, "networkpolicies", x.UID, "status")
}

func (r *reporter) create(ctx context.Context, kind string, object interface{ Marshal() ([]byte, error) }, path ...string) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	c, err := r.dial.client(ctx)
	if err != nil {
		return err
	}
	err = c.create(ctx, kind, object, path...)
	if err != nil {
		r.dial.failed(c, err)
	}
	return err
}
