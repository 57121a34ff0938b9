package compile

import (
	"reflect"
	"slices"

	"isobar.dev/policy"
)

// equalWorkloads compares by value. It stands on the path of every event, where
// reflection would cost more than all the rest; a test checks that it looks at
// every field.
func equalWorkloads(a, b *policy.Workload) bool {
	return a == b || a.ID == b.ID && a.Kind == b.Kind && a.Namespace == b.Namespace && a.Name == b.Name &&
		slices.Equal(a.Labels, b.Labels) && slices.Equal(a.Addrs, b.Addrs) && slices.Equal(a.Ports, b.Ports) &&
		a.Network == b.Network && a.Target == b.Target && a.ServiceAccount == b.ServiceAccount && a.Node == b.Node &&
		a.HostNetwork == b.HostNetwork && a.Terminated == b.Terminated && a.Isolation == b.Isolation &&
		slices.EqualFunc(a.Interfaces, b.Interfaces, func(x, y policy.Interface) bool {
			return x.ID == y.ID && slices.Equal(x.Addrs, y.Addrs)
		})
}

// equal compares values of policies and rules, whose fields are many and whose
// changes are few.
func equal[T any](a, b T) bool { return reflect.DeepEqual(a, b) }
