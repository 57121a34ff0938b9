package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/cloud"
	"isobar.dev/control/controller"
	"isobar.dev/control/leader"
)

// replicas are two controllers of one API server and cloud, each with an office of its own.
func (e *env) replicas() (offices [2]*leader.Office, all [2]*controller.Controller) {
	for i := range all {
		offices[i] = &leader.Office{}
		e.o.Office = offices[i]
		all[i] = e.start()
	}
	return offices, all
}

// knows is a check that a replica has found every target to be as it should be.
func knows(c *controller.Controller, targets int) func() string {
	return func() string {
		all := c.Targets()
		for _, t := range all {
			if !t.Synced {
				return fmt.Sprintf("%+v", t)
			}
		}
		if len(all) != targets {
			return fmt.Sprintf("%d targets; want %d", len(all), targets)
		}
		return ""
	}
}

// still waits until replicas have nothing new to look at, though each has listed its regions several times.
func (e *env) still(replicas ...*controller.Controller) {
	last, since := "", time.Now()
	polls := make([]uint64, len(replicas))
	e.eventually("stillness", func() string {
		now := e.versions()
		for _, c := range replicas {
			now += fmt.Sprint(" ", c.Stats().Rulesets)
		}
		if now != last {
			last, since = now, time.Now()
			for i, c := range replicas {
				polls[i] = c.Stats().Polls
			}
		}
		if time.Since(since) < 300*time.Millisecond {
			return now
		}
		for i, c := range replicas {
			if c.Stats().Polls < polls[i]+6 {
				return now
			}
		}
		return ""
	})
}

// A follower knows all and writes nothing; whoever takes over an equal state
// writes nothing either.
func TestFollower(t *testing.T) {
	e := newEnv(t)
	e.estate()
	offices, replica := e.replicas()
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("db", "db", 5432))

	// Nobody leads.
	for _, c := range replica {
		e.eventually("inventory", func() string {
			if n := c.Runtime().VirtualMachines().Len(); n != 3 {
				return fmt.Sprintf("%d VMs", n)
			}
			return ""
		})
		e.eventually("it is seen that nothing is enforced", func() string {
			for _, x := range c.Targets() {
				if len(x.Report.Changes) > 0 && x.Report.Written == 0 && !x.Synced {
					return ""
				}
			}
			return fmt.Sprintf("%+v", c.Targets())
		})
	}
	cpa, err := e.account().DeepCopy(), error(nil)
	if err = e.client.Get(t.Context(), client.ObjectKeyFromObject(cpa), cpa); err != nil || len(cpa.Finalizers) > 0 || len(cpa.Status.Conditions) > 0 {
		t.Errorf("without a leader the account has %v, %+v, %v", cpa.Finalizers, cpa.Status, err)
	}
	if _, err := get[antreav1alpha2.ExternalEntity](e, entityName("vpca", 2)); err == nil || e.cloudWrites() > 0 {
		t.Errorf("without a leader there is an ExternalEntity (%v), and %d writes in the cloud", err, e.cloudWrites())
	}

	leave := offices[0].Take(nil)
	settled := all(e.phaseIs("db", antreav1beta1.PolicyRealized), e.entityHas("vpca", 1, "nephe.antrea.io/tag-Role", "web"),
		e.accountIs("", "Enforced", "True Enforced"), knows(replica[0], 2), knows(replica[1], 2))
	e.eventually("one leads", all(e.has("vpca", 2, "5432"), settled))
	if s := replica[1].Stats(); s.EntityWrites+s.StatusWrites+s.CloudWrites > 0 {
		t.Errorf("the follower wrote: %+v", s)
	}

	// The other takes over, twice.
	for i := range 2 {
		e.still(replica[:]...)
		versions, writes := e.versions(), e.cloudWrites()
		if !leave(time.Minute) {
			t.Fatal("writes do not end")
		}
		leave = offices[1-i].Take(nil)
		e.quietly("nothing is written", func() string {
			if now := e.versions(); now != versions || e.cloudWrites() != writes {
				return fmt.Sprintf("%s\n%s\n%d writes in the cloud", versions, now, e.cloudWrites()-writes)
			}
			return ""
		})
		e.setPort("db", int32(5433+i))
		e.eventually("it does the work", all(e.has("vpca", 2, fmt.Sprint(5433+i)), settled))
	}
}

// A leader that loses the office in the middle of a write writes no more, and
// the next one finishes.
func TestLeaderLostMidWrite(t *testing.T) {
	e := newEnv(t)
	e.estate()
	offices, replica := e.replicas()
	leave := offices[0].Take(nil)
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("db", "db", 5432))
	e.eventually("enforced", all(e.has("vpca", 2, "5432"), e.phaseIs("db", antreav1beta1.PolicyRealized), knows(replica[1], 2)))

	// From now on a call takes longer than the test lasts.
	e.cloud.with(func(f *fakeCloud) { f.slow = time.Hour })
	e.setPort("db", 5433)
	e.eventually("a write is under way", func() string {
		writing := 0
		e.cloud.with(func(f *fakeCloud) { writing = f.writing })
		if writing == 0 {
			return "no call under way"
		}
		return ""
	})
	if !leave(time.Minute) {
		t.Fatal("the write was not given up")
	}
	before := e.cloudWrites()
	e.cloud.with(func(f *fakeCloud) { f.slow = 0 })
	e.quietly("nobody writes", func() string {
		if n := e.cloudWrites() - before; n > 0 {
			return fmt.Sprintf("%d writes", n)
		}
		return ""
	})
	offices[1].Take(nil)
	e.eventually("the next one finishes", all(e.has("vpca", 2, "5433"), e.phaseIs("db", antreav1beta1.PolicyRealized)))
}

// An account that a follower sees go is left to its leader.
func TestFollowerLeavesDeletionAlone(t *testing.T) {
	e := newEnv(t)
	e.estate()
	offices, replica := e.replicas()
	leave := offices[0].Take(nil)
	e.create(e.secret(rightKeys), e.account("us-east-1", "us-west-2"), e.selector("all", everything), e.allow("db", "db", 5432))
	e.eventually("enforced", all(e.has("vpca", 2, "5432"), knows(replica[0], 2), knows(replica[1], 2)))
	leave(time.Minute)
	cpa := e.account()
	e.delete(cpa)
	e.quietly("it waits", e.has("vpca", 2, "5432"))
	offices[1].Take(nil)
	e.eventually("it is undone", all(e.has("vpca", 2, ""), e.noEntity("vpca", 2), func() string {
		if err := e.client.Get(context.Background(), client.ObjectKeyFromObject(cpa), cpa); err == nil {
			return "the account is there"
		}
		for _, c := range replica {
			if n := c.Runtime().VirtualMachines().Len() + len(c.Targets()); n > 0 {
				return fmt.Sprintf("a replica has %d VMs and targets", n)
			}
		}
		return ""
	}))
}

// A Factory that never returns is a stuck loop, once its call should have ended;
// nothing else is.
func TestStuckFactory(t *testing.T) {
	e := newEnv(t)
	e.estate()
	release := make(chan struct{})
	e.o.PollTimeout = time.Second
	e.o.Clouds = map[string]controller.Factory{"aws": func(context.Context, *cloudv1alpha1.CloudProviderAccount, []byte) (cloud.Account, error) {
		<-release
		return nil, errors.New("too late")
	}}
	c := e.start()
	t.Cleanup(func() { close(release) }) // before the controller is stopped
	e.create(e.secret(rightKeys), e.account("us-east-1"), e.selector("all", everything))
	e.eventually("the loop is found", func() string {
		stuck := 0
		for _, h := range c.Health() {
			if h.IsStuck(time.Now()) {
				return h.Name + " is stuck too soon"
			}
			if h.IsStuck(time.Now().Add(2 * time.Minute)) { // by then its call should have ended
				if !strings.HasPrefix(h.Name, "accounts ") {
					return h.Name + " is stuck"
				}
				stuck++
			}
		}
		if stuck != 1 {
			return fmt.Sprintf("%d loops are stuck", stuck)
		}
		return ""
	})
}
