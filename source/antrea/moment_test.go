package antrea_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/source/antrea"
)

// at makes a controller one that tells Moments, and has what it is told of in the first.
func at(what convert.ControlPlane, inJSON bool) func(*controller) {
	return func(c *controller) { c.have, c.moment, c.inJSON = what, "a 1 1 1 1", inJSON }
}

// otherPeer is the sample with a policy that allows another group.
func otherPeer() convert.ControlPlane {
	return with(sample(), func(in *convert.ControlPlane) {
		in.Policies[0] = policyOf("p", antreav1beta1.RuleActionAllow, "db", "api")
		in.Addresses = append(in.Addresses, addressGroup("api", member("a1", "10.0.0.2")))
		in.Addresses[0] = addressGroup("web", member("w2", "10.0.0.3"))
	})
}

// What belongs together is given out together, whatever comes between.
func TestMoments(t *testing.T) {
	for _, inJSON := range []bool{false, true} {
		inBubble(t, antrea.Options{}, at(sample(), inJSON), func(t *testing.T, c *controller, s *antrea.Source) {
			pass(time.Minute)
			is(t, s, sample())
			was, next := s.State(), otherPeer()
			stays := func(when string) {
				t.Helper()
				if s.State() != was {
					t.Fatalf("%s the State is another", when)
				}
			}
			c.set(next, "addressgroups")
			pass(time.Hour)
			stays("in the midst of the changes of groups")
			c.send("addressgroups", bookmarkAt("addressgroups", "a 2 2 1 2"))
			pass(time.Second)
			stays("before the policy that belongs to the groups")
			for _, e := range changes(sample(), next, "networkpolicies") {
				c.send("networkpolicies", e)
			}
			pass(time.Second)
			stays("in the midst of the changes of policies")
			c.send("networkpolicies", bookmarkAt("networkpolicies", "a 3 2 1 2")) // which is of later
			pass(0)
			is(t, s, next)
			c.set(sample(), "appliedtogroups", "addressgroups", "networkpolicies")
			c.send("addressgroups", bookmarkAt("addressgroups", "a 4 4 1 4"))
			c.send("networkpolicies", bookmarkAt("networkpolicies", "a 4 4 1 4"))
			pass(0)
			is(t, s, sample())
			if n := c.beginnings("networkpolicies"); n != 1 {
				t.Errorf("policies were watched %d times", n)
			}
		})
	}
}

// What belongs to a change and does not come holds it up for a while only.
func TestMomentIsIncomplete(t *testing.T) {
	inBubble(t, antrea.Options{}, at(sample(), false), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		next := with(sample(), func(in *convert.ControlPlane) { in.Addresses[0] = addressGroup("web", member("w2", "10.0.0.3")) })
		c.set(next, "addressgroups")
		c.send("addressgroups", bookmarkAt("addressgroups", "a 2 2 1 2"))
		pass(4900 * time.Millisecond)
		is(t, s, sample())
		pass(200 * time.Millisecond)
		is(t, s, next)
	})
}

// A bookmark that makes no sense ends the watch.
func TestBadMoment(t *testing.T) {
	for _, text := range []string{"", "a", "b 2 1 1 1", "a 0 0 0 0", "a 2 3 1 1"} {
		inBubble(t, antrea.Options{}, at(sample(), false), func(t *testing.T, c *controller, s *antrea.Source) {
			pass(time.Minute)
			was := s.State()
			c.with(func(c *controller) { c.refuse["addressgroups"] = 500 }) // so that it is to be seen
			c.send("addressgroups", bookmarkAt("addressgroups", text))
			pass(0)
			if err := s.Status().Watches[2].Err; err == nil || !strings.Contains(err.Error(), "BOOKMARK") {
				t.Errorf("bookmark %q: %v", text, err)
			}
			if s.State() != was {
				t.Errorf("bookmark %q: the State is another", text)
			}
		})
	}
}

// Where one watch has come to another replica, the others follow it; for half a minute, if
// they do not come there.
func TestMomentsOfTwoControllers(t *testing.T) {
	next := otherPeer()
	inBubble(t, antrea.Options{}, at(sample(), false), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		c.set(next)
		c.with(func(c *controller) { c.moment = "b 1 1 1 1" })
		c.cut("networkpolicies")
		pass(3 * time.Second)
		is(t, s, next)
		for _, r := range resources {
			if n := c.beginnings(r); n != 2 {
				t.Errorf("%s were watched %d times, want twice", r, n)
			}
		}
	})
	inBubble(t, antrea.Options{}, at(sample(), false), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		n := 0
		c.with(func(c *controller) { // another replica for each request
			c.moments = func() string {
				n++
				return controlplanev1beta2.Moment{Source: fmt.Sprint("r", n), Version: 1}.String()
			}
		})
		c.set(next)
		c.cut(resources...)
		pass(20 * time.Second)
		is(t, s, sample())
		pass(time.Minute)
		is(t, s, next)
		begun := c.beginnings("addressgroups")
		pass(time.Hour)
		if n := c.beginnings("addressgroups"); n != begun {
			t.Errorf("groups are begun anew, %d times", n-begun)
		}
	})
}

// What a State reaches is so as long as all watches are live, and is told apart from States.
func TestReach(t *testing.T) {
	inBubble(t, antrea.Options{}, func(c *controller) { c.have = sample() }, func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		if r := s.Reach(); r != (antrea.Reach{Live: true}) || len(s.Reached()) != 1 {
			t.Errorf("%+v, %d messages", r, len(s.Reached()))
		}
		<-s.Reached()
		c.with(func(c *controller) { c.refuse["addressgroups"] = 503 })
		c.cut("addressgroups")
		pass(time.Second)
		if r := s.Reach(); r.Live || len(s.Reached()) != 1 {
			t.Errorf("without a watch: %+v", r)
		}
		c.with(func(c *controller) { c.refuse = map[string]int{} })
		pass(time.Minute)
		if r := s.Reach(); !r.Live {
			t.Errorf("with it: %+v", r)
		}
	})
}

// A State reaches as far as Pods have been read for all that it is of.
func TestReachOfPositions(t *testing.T) {
	inBubble(t, antrea.Options{}, tells(sample(), "a 1 1 1 1@c node:z.0.1 pod:k.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		reaches := func(when string, want antrea.Reach) {
			t.Helper()
			pass(0)
			if got := s.Reach(); got != want {
				t.Errorf("%s: %+v, want %+v", when, got, want)
			}
		}
		reaches("at first", antrea.Reach{Live: true, Tells: true, Pods: 20})
		c.send("networkpolicies", bookmarkAt("networkpolicies", "a 1 1 1 1@c node:z.0.1 pod:m.2.3"))
		reaches("of all, since nothing has changed", antrea.Reach{Live: true, Tells: true, Pods: 22})
		c.send("addressgroups", bookmarkAt("addressgroups", "a 3 1 1 3@c node:z.0.1 pod:o.0.3"))
		reaches("of all, since groups alone have changed", antrea.Reach{Live: true, Tells: true, Pods: 24})
		c.send("networkpolicies", bookmarkAt("networkpolicies", "a 5 5 5 3@c node:z.0.1 pod:q.0.3"))
		pass(time.Second)
		reaches("while what belongs to it is on its way", antrea.Reach{Live: true, Tells: true, Pods: 24})
		pass(time.Minute) // it never comes, and what is there has to do
		reaches("as far as what has not come", antrea.Reach{Live: true, Tells: true, Pods: 24})
		c.send("appliedtogroups", bookmarkAt("appliedtogroups", "a 5 5 5 3@c node:z.0.1"))
		pass(time.Minute)
		reaches("with a part of which it is not told", antrea.Reach{Live: true, Tells: true, Pods: 26})
	})
}

// How far a controller has read is told when it is asked for, whatever it has told before.
func TestReachIsAskedFor(t *testing.T) {
	inBubble(t, antrea.Options{}, tells(sample(), "a 1 1 1 1@c pod:k.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		is(t, s, sample())
		state := s.State()
		c.with(func(c *controller) { c.moment = "a 1 1 1 1@c pod:m.2.3" })
		pass(time.Minute)
		if got := s.Reach(); got.Pods != 20 {
			t.Errorf("before it is asked: %+v", got)
		}
		s.AskReach()
		pass(10 * time.Second)
		if got := s.Reach(); got != (antrea.Reach{Live: true, Tells: true, Pods: 22}) {
			t.Errorf("asked: %+v", got)
		}
		if s.State() != state || c.beginnings("networkpolicies") != 2 || c.beginnings("addressgroups") != 1 {
			t.Errorf("another State, or %d and %d watches", c.beginnings("networkpolicies"), c.beginnings("addressgroups"))
		}
	})
}
