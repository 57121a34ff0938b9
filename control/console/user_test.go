package console

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// A right that is taken counts no longer than its answer is kept, and no answer is another user's.
func TestRightsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may, asked := true, 0
		var fails error
		r := newReviews(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			asked++
			if fails != nil {
				return authorizer.DecisionNoOpinion, "", fails
			}
			if may && a.GetUser().GetName() == "kim" && len(a.GetUser().GetGroups()) == 0 && a.GetResource() == "pods" && a.GetVerb() == "list" && a.GetNamespace() == "shop" && a.IsResourceRequest() {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		}))
		right := Right{Verb: "list", Resource: "pods", Namespace: "shop"}
		check := func(u user.Info, right Right, want bool, times int) {
			t.Helper()
			asked = 0
			v, err := r.viewer(u)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := v.May(t.Context(), right); err != nil || got != want || asked != times {
				t.Errorf("%s: %+v: %t, %v, asked %d times; want %t, %d", u.GetName(), right, got, err, asked, want, times)
			}
		}
		kim := &user.DefaultInfo{Name: "kim"}
		check(kim, right, true, 1)
		check(kim, right, true, 0)
		check(kim, Right{Verb: "list", Resource: "pods"}, false, 1)
		check(&user.DefaultInfo{Name: "kim", Groups: []string{"other"}}, right, false, 1)
		check(&user.DefaultInfo{Name: "kim", UID: "2"}, right, true, 1)
		check(&user.DefaultInfo{Name: "kim", Extra: map[string][]string{"a": {"b"}}}, right, true, 1)
		check(&user.DefaultInfo{Name: "lee"}, right, false, 1)
		may = false
		check(kim, right, true, 0)
		time.Sleep(rightsLife)
		check(kim, right, false, 1)
		if rightsLife+ServersLife > 10*time.Second {
			t.Errorf("a right counts for %v", rightsLife+ServersLife)
		}
		time.Sleep(rightsLife)
		fails = errors.New("no answer")
		v, err := r.viewer(kim)
		if err != nil {
			t.Fatal(err)
		}
		if may, err := v.May(t.Context(), right); may || err == nil {
			t.Errorf("without an answer: %t, %v", may, err)
		}
		fails = nil
		check(kim, right, false, 1) // an error is not kept
		for n := range 2 * usersKept {
			if _, err := r.viewer(&user.DefaultInfo{Name: "user", UID: string(rune(n + 0x4E00))}); err != nil {
				t.Fatal(err)
			}
		}
		if len(r.users) > usersKept {
			t.Errorf("%d users are kept", len(r.users))
		}
	})
}

// Somebody with as many views under way as may be waits for none of the others' turns.
func TestViewsAreBounded(t *testing.T) {
	s := New(Fixed{})
	var ends []func()
	for range viewsOfOne {
		done, err := s.begin(t.Context(), All("kim"))
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, done)
	}
	if _, err := s.begin(t.Context(), All("kim")); err == nil {
		t.Error("one more has begun")
	}
	done, err := s.begin(t.Context(), All("lee"))
	if err != nil {
		t.Errorf("another: %v", err)
	}
	done()
	for _, end := range ends {
		end()
	}
	if done, err = s.begin(t.Context(), All("kim")); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	done()
	if len(s.busy) != 0 || len(s.free) != 0 {
		t.Errorf("%v and %d are left", s.busy, len(s.free))
	}
}
