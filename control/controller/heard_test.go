package controller

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
)

// An agent that leaves is told that there is no cloud only where that is known.
func TestNoCloud(t *testing.T) {
	for _, tt := range []struct {
		name     string
		node     entity
		isSynced bool
		status   metav1.ConditionStatus
		reason   string
	}{
		{"db-1", entity{}, false, metav1.ConditionFalse, runtimev1alpha1.ReasonNoCloud},
		{"virtualmachine-i-1", entity{}, true, metav1.ConditionUnknown, runtimev1alpha1.ReasonUnread},
		{"virtualmachine-i-1", entity{applied: true, account: "gone/main"}, true, metav1.ConditionFalse, runtimev1alpha1.ReasonNoCloud},
		{"virtualmachine-i-1", entity{applied: true, account: "gone/main"}, false, metav1.ConditionUnknown, runtimev1alpha1.ReasonUnread},
		{"virtualmachine-i-1", entity{applied: true, account: "other/main"}, true, metav1.ConditionUnknown, runtimev1alpha1.ReasonUnread},
	} {
		c := &Controller{o: Options{Namespaces: []string{"gone"}}, accountMirror: newMirror[*cloudv1alpha1.CloudProviderAccount](nil, "", nil, nil)}
		if tt.isSynced {
			close(c.accountMirror.synced)
		}
		got := c.cloudEnforces(types.NamespacedName{Namespace: "gone", Name: tt.name}, tt.node, runtimev1alpha1.AgentOff)
		if got.Status != tt.status || got.Reason != tt.reason || got.Message == "" {
			t.Errorf("%s %+v: %+v", tt.name, tt.node, got)
		}
	}
}
