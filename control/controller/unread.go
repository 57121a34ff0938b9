package controller

import (
	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

// A policy that cannot be read and never could be, by this process, may be one that is
// enforced: what it closes would be open without it. So no network is begun with
// before it is mended or deleted; those that have begun go on, with its last value
// where there was one. One that says that it is staged would close nothing.

// unreadPolicy returns the first policy of which nothing is known, or "".
func unreadPolicy(notices policy.Table[*kube.Notice], policies policy.Table[*policy.Policy]) string {
	for _, n := range notices.All() {
		if !n.Unread || n.Staged {
			continue
		}
		if id := policyOf(n.Object); id != "" {
			if _, known := policies.Get(id); !known {
				return n.Object.String()
			}
		}
	}
	return ""
}

// noteUnread remembers which policy the targets wait for, and tells it once.
func (c *Controller) noteUnread(now string) {
	c.mu.Lock()
	was := c.unread
	c.unread = now
	c.mu.Unlock()
	if was == now {
		return
	}
	if now != "" {
		c.o.Log.Warn("no network is begun with until a policy can be read", "policy", now)
	}
	for _, key := range c.accountMirror.keys() {
		c.accountQueue.add(key)
	}
}

// isUnread returns the policy that the targets wait for, or "".
func (c *Controller) isUnread() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unread
}
