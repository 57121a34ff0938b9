package controller

import (
	"testing"

	"isobar.dev/policy"
	"isobar.dev/source/kube"
)

// Only a policy of which nothing is known, not even a last value, is waited for.
func TestUnreadPolicy(t *testing.T) {
	object := func(kind, name string) kube.Object {
		return kube.Object{APIVersion: "crd.antrea.io/v1beta1", Kind: kind, Namespace: "n", Name: name}
	}
	var known policy.Table[*policy.Policy]
	known = known.Put(policy.PolicyID(policy.AntreaNetworkPolicy, "n", "old"), &policy.Policy{})
	for _, tt := range []struct {
		name    string
		notices []*kube.Notice
		want    string
	}{
		{"nothing", nil, ""},
		{"a part cannot be read", []*kube.Notice{{Object: object("NetworkPolicy", "p")}}, ""},
		{"its last value is known", []*kube.Notice{{Object: object("NetworkPolicy", "old"), Unread: true}}, ""},
		{"nothing of it is known, and it is staged", []*kube.Notice{{Object: object("NetworkPolicy", "p"), Unread: true, Staged: true}}, ""},
		{"a group stands for itself", []*kube.Notice{{Object: object("Group", "g"), Unread: true}}, ""},
		{"nothing of it is known", []*kube.Notice{{Object: object("NetworkPolicy", "p"), Unread: true}}, "NetworkPolicy n/p"},
	} {
		var notices policy.Table[*kube.Notice]
		for _, n := range tt.notices {
			notices = notices.Put(n.Object.String(), n)
		}
		if got := unreadPolicy(notices, known); got != tt.want {
			t.Errorf("%s: waits for %q, want %q", tt.name, got, tt.want)
		}
	}
}
