package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// LeaseName is the Lease's name, and that of Nephe's: of an Isobar and a Nephe in
// one namespace one alone writes.
const LeaseName = "nephe-controller-election.cloud.antrea.io"

// Options configure an Election. The zero value is ready to use.
type Options struct {
	// Lease is how long others wait for a leader that is not heard of; 0 means
	// 15 s. Renew is how long the leader goes on without being heard; 0 means 2/3 of
	// Lease: in the time between, nobody writes. Retry is the time between two
	// tries; 0 means 2/15 of Lease.
	Lease, Renew, Retry time.Duration
	Log                 *slog.Logger // nil means slog.Default()
}

func (o Options) withDefaults() Options {
	o.Lease = cmp.Or(o.Lease, 15*time.Second)
	o.Renew = cmp.Or(o.Renew, o.Lease*2/3)
	o.Retry = cmp.Or(o.Retry, o.Lease*2/15)
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Election is one replica's part in the election. Clocks need not agree:
// replicas compare what they see of the Lease with their own clocks alone, which must not
// differ in speed by more than a third.
type Election struct {
	client    kubernetes.Interface
	namespace string
	identity  string
	office    *Office
	o         Options
}

// New returns the part of the replica called identity, in the election by the
// Lease in that namespace. It starts nothing; call Run.
func New(config *rest.Config, namespace, identity string, office *Office, o Options) (*Election, error) {
	o = o.withDefaults()
	if namespace == "" || identity == "" {
		return nil, errors.New("leader election: a namespace and an identity are needed")
	}
	c := rest.CopyConfig(config)
	c.Timeout = o.Renew / 2 // one request that hangs must not cost the Lease
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return &Election{client, namespace, identity, office, o}, nil
}

// Run stands for election until ctx is done, and holds the office whenever it
// is elected. At the end it stops writing, and then lets the Lease go, so that
// the next one need not wait for its end.
func (e *Election) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := e.run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// run is one candidacy, and the term after it.
func (e *Election) run(ctx context.Context) error {
	// The Lease outlives ctx by the time that writes under way need to end.
	held, drop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	defer drop()
	lock := &lock{hear: e.office.Hear, Interface: &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: LeaseName}, Client: e.client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.identity},
	}}
	started, over := make(chan struct{}), make(chan struct{})
	clean := false
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: e.o.Lease, RenewDeadline: e.o.Renew, RetryPeriod: e.o.Retry, Name: LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(term context.Context) {
				close(started)
				defer close(over)
				clean = e.lead(ctx, term, lock)
				drop()
			},
			OnStoppedLeading: func() {},
			OnNewLeader:      func(identity string) { e.o.Log.Info("leader", slog.String("identity", identity)) },
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		select {
		case <-started: // the end of the term drops it
		case <-time.After(e.o.Retry):
			drop()
		}
	})()
	elector.Run(held)
	select {
	case <-started:
		<-over
	default:
		return nil
	}
	if clean {
		e.release(lock)
	}
	return nil
}

// lead holds the office until the Lease is lost or ctx is done. It returns
// whether all that was written meanwhile has ended.
func (e *Election) lead(ctx, term context.Context, lock *lock) (clean bool) {
	if ctx.Err() != nil || term.Err() != nil {
		return true
	}
	leave := e.office.Take(func() error {
		if !lock.isFresh(e.o.Renew) {
			return ErrFollower
		}
		return nil
	})
	e.o.Log.Info("leading", slog.String("identity", e.identity))
	select {
	case <-ctx.Done():
	case <-term.Done():
	}
	clean = leave(e.o.Lease - e.o.Renew)
	e.o.Log.Info("no longer leading", slog.Bool("lost", term.Err() != nil), slog.Bool("clean", clean))
	return clean
}

// release lets the Lease go, if it is ours. It may fail: then it expires.
func (e *Election) release(lock *lock) {
	ctx, cancel := context.WithTimeout(context.Background(), e.o.Renew)
	defer cancel()
	record, _, err := lock.Get(ctx)
	if err != nil || record.HolderIdentity != e.identity {
		return
	}
	record.HolderIdentity, record.LeaseDurationSeconds = "", 1
	if err := lock.Update(ctx, *record); err != nil {
		e.o.Log.Info("the lease is left to expire", slog.Any("error", err))
	}
}

// lock is a Lease of which is known when it was last renewed by us, and which tells whose
// term it is whenever it is read or written.
type lock struct {
	resourcelock.Interface
	hear    func(term string)
	renewed atomic.Pointer[time.Time]
}

// Get reads the Lease, as those do who do not lead, time and again.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	r, raw, err := l.Interface.Get(ctx)
	if err == nil {
		l.tell(*r)
	}
	return r, raw, err
}

// Create makes the Lease, for us.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.note(time.Now(), r, l.Interface.Create(ctx, r))
}

// Update renews the Lease, for us.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.note(time.Now(), r, l.Interface.Update(ctx, r))
}

func (l *lock) note(sent time.Time, r resourcelock.LeaderElectionRecord, err error) error {
	if err == nil {
		l.renewed.Store(&sent)
		l.tell(r)
	}
	return err
}

// tell tells of the term of a record. A Lease that was let go is nobody's, and the term
// before goes on in name.
func (l *lock) tell(r resourcelock.LeaderElectionRecord) {
	if r.HolderIdentity != "" {
		// A Lease has times in microseconds, cut off.
		l.hear(fmt.Sprint(r.HolderIdentity, " ", r.LeaderTransitions, " ", r.AcquireTime.UnixMicro()))
	}
}

// isFresh says whether the last renewal was sent within that time, by the clock
// on the wall too: the other one stands still while a machine sleeps.
func (l *lock) isFresh(within time.Duration) bool {
	t := l.renewed.Load()
	return t != nil && time.Since(*t) <= within && time.Now().Round(0).Sub(t.Round(0)) <= within
}
