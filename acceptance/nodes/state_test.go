package nodes_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// stateFile is what an agent keeps of what it was told.
func (a *agent) stateFile() string {
	return filepath.Join(a.state, "isobar", "policies", "controlplane.state")
}

// aheadFile is there while that is not of the last that the agent was told.
func (a *agent) aheadFile() string { return strings.TrimSuffix(a.stateFile(), "state") + "ahead" }

// restart kills agents and starts them again.
func restart(agents ...*agent) {
	for _, a := range agents {
		a.kill()
		a.start()
	}
}

// longer than the time that an agent waits for the controller before it takes what it has kept.
const keptAfter = 7 * time.Second

// The controller is away while agents start. Who has kept what it was told last goes on with
// it; who has not, or cannot read it, leaves the kernel as it is. What is new is closed there,
// and not attached here.
func TestF02_F03_StartWithoutController(t *testing.T) {
	c := newCluster(t, options{})
	type damage struct {
		name string
		do   func(b []byte) []byte // nil where nothing is done
		told string                // of what is not used; empty where it is
	}
	good := damage{"as it was left", nil, ""}
	flipped := damage{"with a bit flipped", func(b []byte) []byte { b[len(b)*2/3] ^= 4; return b }, "damaged"}
	truncated := damage{"truncated", func(b []byte) []byte { return b[:len(b)/2] }, "damaged"}
	newer := damage{"of a newer version", func(b []byte) []byte {
		b[11] = 2
		sum := sha256.New()
		sum.Write(b[:20])
		sum.Write(b[20+sha256.Size:])
		return slices.Concat(b[:20], sum.Sum(nil), b[20+sha256.Size:])
	}, "version 2"}
	old := damage{"not of the last", func(b []byte) []byte { return b }, "older than what was enforced last"}
	rounds := [][]damage{{good, flipped}, {newer, old}}
	if isFull {
		rounds = append(rounds, []damage{truncated, good})
	}
	base := c.m
	for round, damages := range rounds {
		for _, a := range c.agents {
			eventually(t, a.node.Name+" has kept what it was told", a.hasKept)
		}
		c.hub.Refuse()
		began := time.Now()
		for i, a := range c.agents {
			d := damages[i]
			t.Logf("%s starts with what it has kept %s", a.node.Name, d.name)
			a.kill()
			if d.do != nil {
				text, err := os.ReadFile(a.stateFile())
				if err == nil {
					err = os.WriteFile(a.stateFile(), d.do(text), 0o600)
				}
				if err == nil && d.told == old.told { // it was killed before it had kept what it enforces
					err = os.WriteFile(a.aheadFile(), nil, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			a.start()
		}
		for i, a := range c.agents {
			a.await("has started", func(s agentStatus) bool { return s.Started && strings.Contains(s.StateError, damages[i].told) })
		}
		c.set(c.m.with(c.shop.open(t, base))) // of which no agent hears
		var fresh, late []object
		for i, a := range c.agents {
			p := c.shop.pod(c.shop.other(), fmt.Sprintf("new-%d-%d", round, i), "free", i)
			if damages[i].told == "" {
				a.await("goes on with what it has kept", func(s agentStatus) bool { return s.Kept && s.Known })
				c.set(c.m.with(p))
				c.judge.close(c.pods[p.Namespace+"/"+p.Name], true)
				fresh = append(fresh, p)
				continue
			}
			late = append(late, p)
			c.insist(func() error { return c.apply(t.Context(), p) })
			eventually(t, "a Pod cannot be attached", func() string {
				if why := c.failure(); !strings.Contains(why, "it is not known yet which policies there are") {
					return why
				}
				return ""
			})
		}
		for ; time.Since(began) < keptAfter; time.Sleep(100 * time.Millisecond) {
			for i, a := range c.agents {
				if s, err := a.status(); err != nil || damages[i].told != "" && (s.Known || !strings.Contains(s.StateError, damages[i].told)) || damages[i].told == "" && len(s.Held) != 1 {
					t.Fatalf("%s, with what it has kept %s: %+v, %v", a.node.Name, damages[i].name, s, err)
				}
			}
		}
		for _, p := range late {
			if c.lab.Pod(p.GetNamespace(), p.GetName()) != nil {
				t.Errorf("%s is attached, and nobody knows what is to be enforced", p.GetName())
			}
		}
		for _, p := range fresh {
			c.judge.close(c.pods[p.GetNamespace()+"/"+p.GetName()], false)
		}
		c.hub.Accept()
		if len(late) > 0 {
			c.set(c.m.with(late...))
		}
		c.settle(fmt.Sprint("F2, F3: the controller is back, round ", round))
	}
}

// hasKept says why what an agent has kept is not what it was told last.
func (a *agent) hasKept() string {
	_, err := os.Stat(a.stateFile())
	if _, ahead := os.Stat(a.aheadFile()); err == nil && !os.IsNotExist(ahead) {
		return "it is not the last"
	}
	return errorText(err)
}

// The disk is full, and cannot be written to at all; and what is kept of Pods is damaged.
// Policies change all the same, Pods are not attached, and none is open.
func TestF03_Disks(t *testing.T) {
	c := newCluster(t, options{})
	a, base := c.agents[0], c.m
	a.mount = `mount -t tmpfs -o size=1m none /var/lib && cp -a "$STATE/." /var/lib/ && { dd if=/dev/zero of=/var/lib/filler bs=1k 2>/dev/null; true; }`
	restart(a)
	a.awaitKnown()
	c.refuses(a, "F3: the disk is full", "no space left on device", func() {
		if err := os.Remove(fmt.Sprintf("/proc/%d/root/var/lib/filler", a.p.Cmd.Process.Pid)); err != nil {
			t.Fatal(err)
		}
	})
	c.set(base)

	a.mount = `mount --bind "$STATE" /var/lib && mount -o remount,bind,ro /var/lib`
	restart(a)
	a.awaitKnown()
	c.refuses(a, "F3: the disk cannot be written to", "read-only file system", func() {
		a.mount = ""
		restart(a)
		a.awaitKnown()
	})
	c.set(base)
	c.settle("F3: the disk can be written to")

	// The records of two Pods are damaged, and gone: nobody knows which Pods they are.
	a.kill()
	var closed []*corev1.Pod
	for i, name := range []string{"db-0", "api-0"} {
		p := find[*corev1.Pod](t, c.m, c.shop.shop(), name)
		file := filepath.Join(a.state, "isobar", "pods", recordOf(p))
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			err = os.WriteFile(file, text[:len(text)/2], 0o600)
		} else {
			err = os.Remove(file)
		}
		if err != nil {
			t.Fatal(err)
		}
		closed = append(closed, p)
	}
	for _, p := range closed {
		c.judge.stricter(c.pods[p.Namespace+"/"+p.Name], true)
	}
	a.start()
	a.await("holds Pods that it does not know", func(s agentStatus) bool { // and that is in the kernel
		return s.Known && len(s.Held) == 2 && s.Error == "" && s.Policies > 0 && s.Realized == s.Policies
	})
	for _, p := range closed {
		c.judge.close(c.pods[p.Namespace+"/"+p.Name], true)
	}
	c.judge.await("F3: the records of Pods are damaged")
	m := c.m
	c.set(m.without(closed[0], closed[1]))
	for _, p := range closed {
		c.awaitGone(p)
	}
	c.set(c.m.with(c.shop.pod(c.shop.shop(), "db-0", "db", 0), c.shop.pod(c.shop.shop(), "api-0", "api", 0)))
	c.settle("F3: Pods whose records were damaged are replaced")
}

// recordOf is the name of the file that an agent keeps of a Pod.
func recordOf(p *corev1.Pod) string {
	sum := sha256.Sum256([]byte(string(p.UID) + "/eth0"))
	return fmt.Sprintf("%x.json", sum[:16])
}

// refuses changes policies, and tries to attach a Pod to a Node where it cannot be noted, until
// repair has mended that.
func (c *cluster) refuses(a *agent, what, why string, repair func()) {
	t := c.t
	t.Helper()
	base := c.m
	c.set(base.with(c.shop.open(t, base), c.shop.shut(t, base)))
	p := c.shop.pod(c.shop.other(), "unnoted", "free", 0)
	c.insist(func() error { return c.apply(t.Context(), p) })
	eventually(t, what+": a Pod cannot be attached", func() string {
		if text := c.failure(); !strings.Contains(text, why) {
			return text
		}
		return ""
	})
	if c.lab.Pod(p.Namespace, p.Name) != nil {
		t.Errorf("%s: a Pod is attached", what)
	}
	c.settle(what)
	repair()
	c.set(c.m.with(p))
	c.settle(what + ", and is repaired")
	c.set(c.m.without(p))
	c.awaitGone(p)
	c.settle(what + ", and its Pod is gone")
}

// awaitGone waits until a Pod is gone from its Node.
func (c *cluster) awaitGone(p *corev1.Pod) {
	c.t.Helper()
	eventually(c.t, p.Name+" is gone", func() string {
		if c.lab.Pod(p.Namespace, p.Name) != nil {
			return "it is there: " + c.failure()
		}
		return ""
	})
}
