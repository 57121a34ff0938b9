package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const (
	// rightsLife is how long an answer about a right counts. With that of the server's own cache it is
	// ten seconds at most until a right that is taken is gone.
	rightsLife = 10*time.Second - ServersLife
	// reviewsAtOnce bounds the questions to the API server of all users' views.
	reviewsAtOnce = 32
	// usersKept is how many users' rights are remembered.
	usersKept = 1024
	// rightsKept is how many rights of one user are: a preview may ask for as many as it has objects.
	rightsKept = 1 << 16
)

// ServersLife is how long the authorizer that a [Service] is given may remember its answers.
const ServersLife = 5 * time.Second

// reviews asks an authorizer for the rights of users, and remembers the answers for a while.
type reviews struct {
	who  authorizer.Authorizer
	free chan struct{} // holds one for each question under way

	mu    sync.Mutex
	users map[string]*remembered
}

// remembered are rights of one user.
type remembered struct {
	mu     sync.Mutex
	rights map[Right]answered
	last   time.Time // when the user asked last; reviews.mu
}

type answered struct {
	may bool
	at  time.Time
}

func newReviews(who authorizer.Authorizer) *reviews {
	return &reviews{who: who, free: make(chan struct{}, reviewsAtOnce), users: map[string]*remembered{}}
}

// viewer returns a user as a Viewer.
func (r *reviews) viewer(u user.Info) (Viewer, error) {
	// All that an authorizer may look at.
	key, err := json.Marshal([]any{u.GetName(), u.GetUID(), u.GetGroups(), u.GetExtra()})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	known := r.users[string(key)]
	if known == nil {
		r.forget(now)
		known = &remembered{rights: map[Right]answered{}}
		r.users[string(key)] = known
	}
	known.last = now
	return &reviewed{r, u, known}, nil
}

// forget makes room for one more. The caller holds r.mu.
func (r *reviews) forget(now time.Time) {
	oldest := ""
	for key, u := range r.users {
		if now.Sub(u.last) > rightsLife {
			delete(r.users, key)
		} else if oldest == "" || u.last.Before(r.users[oldest].last) {
			oldest = key
		}
	}
	if len(r.users) >= usersKept {
		delete(r.users, oldest)
	}
}

// reviewed is a user of the API server.
type reviewed struct {
	*reviews
	user  user.Info
	known *remembered
}

var _ Viewer = (*reviewed)(nil)

func (v *reviewed) Name() string     { return v.user.GetName() }
func (v *reviewed) Groups() []string { return slices.Sorted(slices.Values(v.user.GetGroups())) }

// May asks the authorizer, unless it has answered a moment ago.
func (v *reviewed) May(ctx context.Context, right Right) (bool, error) {
	v.known.mu.Lock()
	answer, ok := v.known.rights[right]
	v.known.mu.Unlock()
	if ok && time.Since(answer.at) < rightsLife {
		return answer.may, nil
	}
	select {
	case v.free <- struct{}{}:
		defer func() { <-v.free }()
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	at := time.Now() // it is as old as the question
	decision, _, err := v.who.Authorize(ctx, authorizer.AttributesRecord{
		User: v.user, Verb: right.Verb, APIGroup: right.Group, APIVersion: "*", Resource: right.Resource, Namespace: right.Namespace, ResourceRequest: true,
	})
	if decision != authorizer.DecisionAllow && err != nil {
		return false, fmt.Errorf("whether %s may %s %s: %w", cmp.Or(v.user.GetName(), "nobody"), right.Verb, right.Resource, errors.Join(err, context.Cause(ctx)))
	}
	v.known.mu.Lock()
	defer v.known.mu.Unlock()
	if len(v.known.rights) >= rightsKept {
		clear(v.known.rights)
	}
	v.known.rights[right] = answered{decision == authorizer.DecisionAllow, at}
	return decision == authorizer.DecisionAllow, nil
}
