package antrea_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/api/convert"
	"isobar.dev/source/antrea"
)

// tells makes a controller one that has what it is told of in a moment, behind an @ with its
// position.
func tells(what convert.ControlPlane, moment string) func(*controller) {
	return func(c *controller) { c.have, c.moment = what, moment }
}

// moves has every watch go to another replica, which has something else.
func moves(c *controller, to convert.ControlPlane, moment string) {
	c.set(to)
	c.with(func(c *controller) { c.moment = moment })
	c.cut(resources...)
}

func lacks(t *testing.T, s *antrea.Source, want ...string) {
	t.Helper()
	if got := s.Status().Lag.Lacks; !slices.Equal(got, want) {
		t.Errorf("lacks %v, want %v", got, want)
	}
}

// What has been given out is not taken back by a replica that has read less, until it has read
// as much.
func TestReplicaIsBehind(t *testing.T) {
	older, newer := sample(), otherPeer()
	for _, tt := range []struct{ what, given, behind, then string }{
		{"a change", "a 9 9 9 9@c annp:k.0.3 pod:k.0.3", "b 1 1 1 1@c annp:j.0.3 pod:z.0.3", "b 2 2 2 2@c annp:k.0.3 pod:z.0.3"},
		{"a change of another kind", "a 9 9 9 9@c annp:k.0.3 pod:k.0.3", "b 1 1 1 1@c annp:z.0.3 pod:j.0.3", "b 2 2 2 2@c annp:z.0.3 pod:l.0.3"},
		{"a deletion that was not seen", "a 9 9 9 9@c annp:k.0.3.5", "b 1 1 1 1@c annp:i.0.4", "b 2 2 2 2@c annp:j.0.3"},
	} {
		inBubble(t, antrea.Options{}, tells(newer, tt.given), func(t *testing.T, c *controller, s *antrea.Source) {
			pass(time.Minute)
			is(t, s, newer)
			was := s.State()
			moves(c, older, tt.behind)
			for range 20 {
				pass(2 * time.Second)
				if s.State() != was {
					t.Fatalf("%s: taken back", tt.what)
				}
			}
			if len(s.Status().Lag.Lacks) != 1 {
				t.Errorf("%s: lacks %v", tt.what, s.Status().Lag.Lacks)
			}
			if n := c.beginnings("networkpolicies"); n < 4 || n > 7 {
				t.Errorf("%s: asked %d times", tt.what, n)
			}
			// It comes further, in whatever it tells.
			next := with(older, func(in *convert.ControlPlane) { in.Addresses[0] = addressGroup("web", member("w9", "10.0.0.9")) })
			c.set(next, resources...)
			c.with(func(c *controller) { c.moment = tt.then })
			for _, r := range resources {
				c.send(r, bookmarkAt(r, tt.then))
			}
			pass(35 * time.Second) // it may just have left
			is(t, s, next)
			lacks(t, s)
		})
	}
}

// A replica that has read as much, or of which that cannot be said, is believed at once.
func TestReplicaIsNotBehind(t *testing.T) {
	for _, tt := range []struct{ what, given, then string }{
		{"it has read as much", "a 9 9 9 9@c annp:z.6.3 pod:z.f.7", "b 1 1 1 1@c annp:u.0.3 pod:k.0.7"},
		{"nothing has happened since the last object", "a 9 9 9 9@c annp:z.0.3.f tier:z.0.0", "b 1 1 1 1@c annp:k.0.3 tier:1.0.0"},
		{"another cluster", "a 9 9 9 9@c annp:z.0.3", "b 1 1 1 1@d annp:1.0.3"},
		{"it tells no position", "a 9 9 9 9@c annp:z.0.3", "b 1 1 1 1"},
		{"it tells no moments", "a 9 9 9 9@c annp:z.0.3", ""},
		{"the first told none", "a 9 9 9 9", "b 1 1 1 1@c annp:1.0.3"},
		{"the first told no moments", "", "b 1 1 1 1@c annp:1.0.3"},
	} {
		inBubble(t, antrea.Options{}, tells(otherPeer(), tt.given), func(t *testing.T, c *controller, s *antrea.Source) {
			pass(time.Minute)
			is(t, s, otherPeer())
			moves(c, sample(), tt.then)
			pass(2 * time.Second)
			if s.State() == nil || len(s.Status().Lag.Lacks) > 0 {
				t.Errorf("%s: lacks %v", tt.what, s.Status().Lag.Lacks)
			}
			is(t, s, sample())
		})
	}
}

// What counts is what was given out: what has been read besides holds up nobody, and a newer
// version of the world without anything new here is as new.
func TestWhatWasGivenOut(t *testing.T) {
	inBubble(t, antrea.Options{}, tells(sample(), "a 9 9 9 9@c annp:k.5.3 pod:k.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		// A change of groups alone: policies are as they were.
		next := with(sample(), func(in *convert.ControlPlane) { in.Addresses[0] = addressGroup("web", member("w2", "10.0.0.3")) })
		c.set(next, "addressgroups")
		c.send("addressgroups", bookmarkAt("addressgroups", "a 12 9 9 12@c annp:l.6.3 pod:m.0.3"))
		pass(time.Second)
		is(t, s, next)
		moves(c, sample(), "b 1 1 1 1@c annp:f.0.3 pod:l.0.3") // pod:m is lacking
		pass(3 * time.Second)
		is(t, s, next)
		lacks(t, s, "pod")
		moves(c, sample(), "b 2 2 2 2@c annp:f.0.3 pod:m.0.3")
		pass(3 * time.Second)
		is(t, s, sample())
	})
}

// What is held may be of several moments, after a while: then each part counts by itself.
func TestPartsOfReplicas(t *testing.T) {
	const have, behind = "@c pod:k.0.3", "@c pod:j.0.3"
	for _, tt := range []struct {
		what     string
		policies string
		groups   string
		ok       bool
	}{
		{"of one moment, that the groups tell", "b 1 1 1 1" + behind, "b 2 1 1 2" + have, true},
		{"of one moment, that the policies tell", "b 2 2 1 1" + have, "b 1 1 1 1" + behind, true},
		{"older policies", "b 1 1 1 1" + behind, "b 2 2 1 2" + have, false},
		{"older groups", "b 2 2 1 2" + have, "b 1 1 1 1" + behind, false},
		{"an API server that has forgotten", "b 3 3 1 1" + behind, "b 2 2 1 1" + have, false},
	} {
		inBubble(t, antrea.Options{}, tells(otherPeer(), "a 9 9 9 9"+have), func(t *testing.T, c *controller, s *antrea.Source) {
			pass(time.Minute)
			c.with(func(c *controller) {
				for _, r := range resources {
					at := tt.groups
					if r == "networkpolicies" {
						at = tt.policies
					}
					c.first[r] = append(added(sample(), r), bookmarkAt(r, at))
				}
				c.moment = "d 1 1 1 1" + behind
			})
			moves(c, sample(), "d 1 1 1 1"+behind)
			pass(7 * time.Second)
			if tt.ok {
				is(t, s, sample())
				return
			}
			is(t, s, otherPeer())
			lacks(t, s, "pod")
		})
	}
	// And what they come to is the newest of each.
	for i := range resources {
		inBubble(t, antrea.Options{}, func(c *controller) {
			tells(otherPeer(), "")(c)
			for j, r := range resources {
				at := "a 1 1 1 1" + behind
				if i == j {
					at = "a 2 2 2 2" + have
				}
				c.first[r] = append(added(c.have, r), bookmarkAt(r, at))
			}
		}, func(t *testing.T, c *controller, s *antrea.Source) {
			pass(time.Minute)
			is(t, s, otherPeer())
			moves(c, sample(), "b 1 1 1 1"+behind)
			pass(2 * time.Second)
			is(t, s, otherPeer())
		})
	}
}

// A replica that lags is left, and another one reached; the watches end together.
func TestReplicaIsLeft(t *testing.T) {
	inBubble(t, antrea.Options{}, tells(otherPeer(), "a 9 9 9 9@c pod:k.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		moves(c, sample(), "b 1 1 1 1@c pod:j.0.3")
		pass(2 * time.Second)
		lacks(t, s, "pod")
		next := with(otherPeer(), func(in *convert.ControlPlane) { in.Addresses[0] = addressGroup("web", member("w9", "10.0.0.9")) })
		c.set(next)
		c.with(func(c *controller) { c.moment = "d 1 1 1 1@c pod:l.0.3" })
		pass(3 * time.Second)
		is(t, s, next)
		lacks(t, s)
		for _, r := range resources {
			if n := c.beginnings(r); n != 3 {
				t.Errorf("%s were watched %d times, want three times", r, n)
			}
		}
	})
}

// Where nobody comes further, what there is has to do in the end, and it is told.
func TestAllReplicasAreBehind(t *testing.T) {
	inBubble(t, antrea.Options{}, tells(otherPeer(), "a 9 9 9 9@c pod:k.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		began := time.Now()
		moves(c, sample(), "b 1 1 1 1@c pod:j.0.3")
		pass(4*time.Minute + 50*time.Second)
		is(t, s, otherPeer())
		if lag := s.Status().Lag; lag.Since.Sub(began) > time.Second || !lag.WentBack.IsZero() {
			t.Errorf("lags since %v, went back %v", lag.Since, lag.WentBack)
		}
		pass(time.Minute)
		is(t, s, sample())
		lag := s.Status().Lag
		if len(lag.Lacks) > 0 || lag.WentBack.Sub(began) < 5*time.Minute {
			t.Errorf("lacks %v, went back %v", lag.Lacks, lag.WentBack.Sub(began))
		}
		// From then on that is what counts.
		begun := c.beginnings("networkpolicies")
		moves(c, otherPeer(), "d 1 1 1 1@c pod:j.0.3")
		pass(time.Second)
		is(t, s, otherPeer())
		moves(c, sample(), "e 1 1 1 1@c pod:i.0.3")
		pass(time.Minute)
		is(t, s, otherPeer())
		lacks(t, s, "pod")
		if s.Status().Lag.WentBack != lag.WentBack || c.beginnings("networkpolicies") < begun+3 {
			t.Errorf("went back %v", s.Status().Lag.WentBack)
		}
	})
}

// What has to do in the end is given out then, also where it waits for a group besides: it does not begin to lag anew.
func TestAllReplicasAreBehindAndLackAGroup(t *testing.T) {
	older := with(sample(), func(in *convert.ControlPlane) {
		in.Policies[0] = policyOf("p", antreav1beta1.RuleActionAllow, "db", "gone")
	})
	inBubble(t, antrea.Options{}, tells(otherPeer(), "a 9 9 9 9@c pod:k.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		moves(c, older, "b 1 1 1 1@c pod:j.0.3")
		pass(4*time.Minute + 50*time.Second)
		is(t, s, otherPeer())
		pass(time.Minute)
		is(t, s, older)
		lacks(t, s)
		// What is behind that lags again.
		moves(c, sample(), "e 1 1 1 1@c pod:i.0.3")
		pass(time.Minute)
		is(t, s, older)
		lacks(t, s, "pod")
	})
}

// While nobody is reached, nobody lags: that time does not count.
func TestNobodyIsReached(t *testing.T) {
	inBubble(t, antrea.Options{Yield: time.Minute}, tells(otherPeer(), "a 9 9 9 9@c pod:k.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		moves(c, sample(), "b 1 1 1 1@c pod:j.0.3")
		pass(2 * time.Second)
		c.with(refusing(503))
		c.cut(resources...)
		pass(time.Hour)
		is(t, s, otherPeer())
		c.with(func(c *controller) { clear(c.refuse) })
		pass(20 * time.Second)
		is(t, s, otherPeer())
		pass(2 * time.Minute)
		is(t, s, sample())
	})
}

// An agent that starts again is not taken back either: by what it has kept.
func TestKeptStateIsNotTakenBack(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, antrea.Options{Dir: dir}, tells(otherPeer(), "a 9 9 9 9@c pod:k.2.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		is(t, s, otherPeer())
	})
	inBubble(t, antrea.Options{Dir: dir}, tells(sample(), "b 1 1 1 1@c pod:h.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(4 * time.Second)
		if s.State() != nil {
			t.Error("a State of a replica that lags")
		}
		pass(2 * time.Second)
		is(t, s, otherPeer())
		if !s.State().Kept {
			t.Error("it is not said to be kept")
		}
		lacks(t, s, "pod")
		c.with(func(c *controller) { c.moment = "b 2 2 2 2@c pod:i.0.3" })
		pass(time.Minute)
		is(t, s, sample())
		if s.State().Kept {
			t.Error("it is said to be kept")
		}
	})
	// The last bookmark alone counts for what is kept, without any other change; but not one
	// that says only that more was read.
	inBubble(t, antrea.Options{Dir: dir}, tells(sample(), "b 3 3 3 3@c pod:i.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		file := func() os.FileInfo {
			info, err := os.Stat(filepath.Join(dir, stateFile))
			if err != nil {
				t.Fatal(err)
			}
			return info
		}
		was := file()
		c.send("networkpolicies", bookmarkAt("networkpolicies", "b 3 3 3 3@c pod:j.1.3"))
		pass(time.Minute)
		if !os.SameFile(was, file()) {
			t.Error("what was read besides is written")
		}
		for _, moment := range []string{"b 4 4 4 4@c pod:l.0.3", "b 5 5 5 5@c pod:m.0.3"} {
			for _, r := range resources {
				c.send(r, bookmarkAt(r, moment))
			}
			pass(time.Second)
		}
		if _, err := os.Lstat(filepath.Join(dir, aheadFile)); err == nil { // the second waits to be written
			t.Error("what is kept is not used, though it is what is enforced")
		}
		pass(time.Minute)
	})
	inBubble(t, antrea.Options{Dir: dir}, tells(otherPeer(), "d 3 3 3 3@c pod:l.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		is(t, s, sample())
		lacks(t, s, "pod")
	})
}

// What is kept of a time before is not given out. It says all the same how far a replica must
// have read at least.
func TestKeptStateIsBefore(t *testing.T) {
	dir := t.TempDir()
	inBubble(t, antrea.Options{Dir: dir}, tells(otherPeer(), "a 9 9 9 9@c pod:k.2.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
	})
	if err := os.WriteFile(filepath.Join(dir, aheadFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inBubble(t, antrea.Options{Dir: dir}, tells(sample(), "b 1 1 1 1@c pod:h.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		if s.State() != nil {
			t.Error("a State of a replica that lags")
		}
		lacks(t, s, "pod")
		c.with(func(c *controller) { c.moment = "b 2 2 2 2@c pod:i.0.3" })
		pass(time.Minute)
		is(t, s, sample())
	})
}

// A position that makes no sense ends the watch.
func TestBadPosition(t *testing.T) {
	inBubble(t, antrea.Options{}, tells(sample(), "a 1 1 1 1@c pod:k.0.3"), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		was := s.State()
		c.with(func(c *controller) { c.refuse["addressgroups"] = 500 }) // so that it is to be seen
		c.send("addressgroups", bookmarkAt("addressgroups", "a 2 1 1 2@c pod:k.0"))
		pass(0)
		if err := s.Status().Watches[2].Err; err == nil || !strings.Contains(err.Error(), "position") || s.State() != was {
			t.Errorf("told %v", err)
		}
	})
}
