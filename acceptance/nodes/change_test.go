package nodes_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Policies, namespaces and labels change in ways that are hard for those who follow: at each
// moment a packet meets what was or what is to be.
func TestF07_F12_F13_F17_Changes(t *testing.T) {
	c := newCluster(t, options{})
	base := c.m
	db := find[*networkingv1.NetworkPolicy](t, base, c.shop.shop(), "db")

	c.set(base.with(c.shop.shut(t, base)))
	c.settle("F17: access is taken away, and who has it keeps it")
	c.set(base.with(c.shop.open(t, base)))
	c.settle("F17: access is given, and nobody is cut off")

	for i := range 6 { // deleted and made again under its name
		c.set(base.without(db))
		if i%2 == 0 {
			c.set(base.with(c.shop.open(t, base)))
		} else {
			c.set(base)
		}
	}
	c.settle("F7: a policy is deleted and made again")

	c.set(base.with(c.shop.namespace(c.shop.other(), "red")))
	c.settle("F12: a namespace gets another label")
	c.set(base)
	c.set(base.with(c.shop.namespace(c.shop.other(), "red")))
	c.set(base)
	c.settle("F12: and its own again")

	web := find[*corev1.Pod](t, base, c.shop.shop(), "web-1")
	c.set(base.with(changed(web, func(p *corev1.Pod) { p.Labels = appIs("api").MatchLabels })))
	c.settle("a Pod gets another label")
	c.set(base)
	c.settle("and its own again")

	lasts := 3 * time.Second
	if isFull {
		lasts = time.Minute
	}
	open := c.shop.open(t, base)
	c.judge.flap(base.with(open).snapshot(t))
	n, began := 0, time.Now()
	for tick := time.NewTicker(10 * time.Millisecond); time.Since(began) < lasts || n%2 == 1; n++ {
		<-tick.C
		if n%2 == 0 {
			c.insist(func() error { return c.apply(t.Context(), open) })
		} else {
			c.insist(func() error { return c.apply(t.Context(), db) })
		}
	}
	t.Logf("%d changes in %v", n, time.Since(began).Round(time.Millisecond))
	c.settle("F13: a policy flaps, and the last one counts")
	eventually(t, "statuses", c.rolledUp)
}

// An address goes from Pod to Pod within a moment: nobody has the rights, or the connections,
// of who had it before.
func TestF11_Addresses(t *testing.T) {
	c := newCluster(t, options{ranges: 29})
	base := c.m
	for i, app := range []string{"web", "free"} { // a Node has six addresses: all are taken then
		base = base.with(c.shop.pod(c.shop.other(), "filler-"+app, app, 2*i))
	}
	c.set(base)
	c.settle("all addresses are taken")
	base = c.m
	was := find[*corev1.Pod](t, base, c.shop.shop(), "api-0")
	for i, app := range []string{"web", "db", "guest"} {
		ns := c.shop.shop()
		if app == "guest" {
			ns = c.shop.other()
		}
		heir := c.shop.pod(ns, "heir-"+app, app, 0)
		c.replace(was, heir)
		heir = find[*corev1.Pod](t, c.m, ns, heir.Name)
		if heir.Status.PodIP != was.Status.PodIP {
			t.Fatalf("%s has %s, not %s", heir.Name, heir.Status.PodIP, was.Status.PodIP)
		}
		c.settle("F11: an address goes to another Pod")
		c.links.connect(c)
		was = heir
		if i == 1 { // it has ended, and its object still has the address
			c.leave(was)
			c.finish(was)
			next := c.shop.pod(c.shop.shop(), "heir-last", "api", 0)
			c.set(c.m.with(next))
			if next = find[*corev1.Pod](t, c.m, next.Namespace, next.Name); next.Status.PodIP != was.Status.PodIP {
				t.Fatalf("%s has %s, not %s", next.Name, next.Status.PodIP, was.Status.PodIP)
			}
			c.settle("F11: a Pod that has ended still holds its address")
			c.set(c.m.without(was))
			c.settle("F11: and is deleted")
			was = next
		}
	}
}

// replace deletes a Pod and makes another, which waits for its address already.
func (c *cluster) replace(was, next *corev1.Pod) {
	c.t.Helper()
	c.insist(func() error { return c.apply(c.t.Context(), next) })
	c.set(c.m.without(was))
	c.set(c.m.with(next))
}

// finish ends a Pod by itself: its sandbox goes, and its object stays.
func (c *cluster) finish(p *corev1.Pod) {
	c.t.Helper()
	for _, n := range c.lab.Nodes {
		if n.Name == p.Spec.NodeName {
			c.insist(func() error { return n.Stop(context.Background(), p) })
		}
	}
	done := changed(p, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	c.m = c.m.with(done)
	c.judge.next(c.m.snapshot(c.t))
	c.insist(func() error {
		now, err := c.core.CoreV1().Pods(p.Namespace).Get(c.t.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now.Status.Phase = corev1.PodSucceeded
		_, err = c.core.CoreV1().Pods(p.Namespace).UpdateStatus(c.t.Context(), now, metav1.UpdateOptions{})
		return err
	})
}
