package agents_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	"isobar.dev/compile"
	"isobar.dev/control/webhook"
	"isobar.dev/policy"
)

// set makes m what there is: the probe hears of that first, and then the API server gets
// what is another. Several objects may arrive in any order.
func (c *cluster) set(m model) {
	c.t.Helper()
	c.probe.next(m.snapshot(c.t))
	c.write(m)
}

// write brings the API server from c.m to m.
func (c *cluster) write(m model) {
	c.t.Helper()
	first := len(c.m) == 0 || sameModel(c.m, m)
	was := c.m
	c.m = m
	var later, now []object
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if !first && was[key] == m[key] {
			continue
		}
		if _, ok := m[key].(*corev1.Namespace); ok {
			now = append(now, m[key])
		} else {
			later = append(later, m[key])
		}
	}
	c.each(now, c.apply)
	c.each(later, c.apply)
	if first {
		return
	}
	var gone []object
	for _, key := range slices.Sorted(maps.Keys(was)) {
		if m[key] == nil {
			gone = append(gone, was[key])
		}
	}
	c.each(gone, c.remove)
}

func sameModel(a, b model) bool {
	return maps.EqualFunc(a, b, func(x, y object) bool { return x == y })
}

// each writes objects, some at once, until each is taken: webhooks may just have moved.
func (c *cluster) each(all []object, write func(context.Context, object) error) {
	c.t.Helper()
	slots := make(chan struct{}, 8)
	var done sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for _, o := range all {
		slots <- struct{}{}
		done.Go(func() {
			defer func() { <-slots }()
			var err error
			for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				if err = write(c.t.Context(), o); err == nil {
					return
				}
			}
			mu.Lock()
			failed = errors.Join(failed, fmt.Errorf("%s: %w", keyOf(o), err))
			mu.Unlock()
		})
	}
	done.Wait()
	if failed != nil {
		c.t.Fatal(failed)
	}
}

// apply writes one object, and a Pod's status.
func (c *cluster) apply(ctx context.Context, o object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: content}
	gvk, gvr := kindOf(o)
	u.SetGroupVersionKind(gvk)
	for _, field := range []string{"uid", "generation", "creationTimestamp"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	options := metav1.ApplyOptions{FieldManager: "faults", Force: true}
	if _, ok := o.(*corev1.Pod); ok {
		status := u.DeepCopy()
		unstructured.RemoveNestedField(status.Object, "spec")
		unstructured.RemoveNestedField(u.Object, "status")
		if _, err := c.client.Resource(gvr).Namespace(o.GetNamespace()).Apply(ctx, o.GetName(), u, options); err != nil {
			return err
		}
		_, err := c.client.Resource(gvr).Namespace(o.GetNamespace()).ApplyStatus(ctx, o.GetName(), status, options)
		return err
	}
	unstructured.RemoveNestedField(u.Object, "status")
	_, err = c.client.Resource(gvr).Namespace(o.GetNamespace()).Apply(ctx, o.GetName(), u, options)
	return err
}

func (c *cluster) remove(ctx context.Context, o object) error {
	_, gvr := kindOf(o)
	err := c.client.Resource(gvr).Namespace(o.GetNamespace()).Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// clean deletes what is not in the replicas' namespace.
func (c *cluster) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := webhook.Uninstall(ctx, c.client); err != nil { // nobody answers there any more
		c.t.Error(err)
	}
	for _, key := range slices.Sorted(maps.Keys(c.m)) {
		switch o := c.m[key].(type) {
		case *corev1.Namespace, *antreav1beta1.ClusterNetworkPolicy:
			_ = c.remove(ctx, o)
		}
	}
}

// rolledUp says what of the statuses of all Antrea policies is not as the agents of the last
// world have it: of each policy, those Nodes where it applies to a Pod; "" when all is.
func (c *cluster) rolledUp() string {
	nodes := map[string]map[string]bool{}
	for _, rs := range compile.Rulesets(c.m.snapshot(c.t)) {
		for _, r := range rs.Rules {
			if nodes[r.Policy] == nil {
				nodes[r.Policy] = map[string]bool{}
			}
			nodes[r.Policy][rs.Target] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.m)) {
		o := c.m[key]
		id := policy.PolicyID(policy.AntreaNetworkPolicy, o.GetNamespace(), o.GetName())
		switch o.(type) {
		case *antreav1beta1.NetworkPolicy:
		case *antreav1beta1.ClusterNetworkPolicy:
			id = policy.PolicyID(policy.AntreaClusterNetworkPolicy, "", o.GetName())
		default:
			continue
		}
		s, generation, err := c.statusOf(o)
		if err != nil {
			return err.Error()
		}
		want := int32(len(nodes[id]))
		if s.Phase != antreav1beta1.PolicyRealized || s.ObservedGeneration != generation || s.CurrentNodesRealized != want || s.DesiredNodesRealized != want {
			return fmt.Sprintf("%s is %s in generation %d of %d, on %d of %d nodes, and should be on %d", key, s.Phase, s.ObservedGeneration, generation, s.CurrentNodesRealized, s.DesiredNodesRealized, want)
		}
	}
	return ""
}

// statusOf reads the status of an Antrea policy, and its generation.
func (c *cluster) statusOf(o object) (s antreav1beta1.NetworkPolicyStatus, generation int64, err error) {
	_, gvr := kindOf(o)
	u, err := c.client.Resource(gvr).Namespace(o.GetNamespace()).Get(c.t.Context(), o.GetName(), metav1.GetOptions{})
	if err != nil {
		return s, 0, err
	}
	status, _, err := unstructured.NestedMap(u.Object, "status")
	if err != nil {
		return s, 0, err
	}
	return s, u.GetGeneration(), runtime.DefaultUnstructuredConverter.FromUnstructured(status, &s)
}

// failureOf is why a status says that it is not realized, "" where it does not.
func failureOf(s antreav1beta1.NetworkPolicyStatus) string {
	for _, x := range s.Conditions {
		if x.Type == antreav1beta1.ConditionRealizationFailure && x.Status == metav1.ConditionTrue {
			return strings.TrimSpace(x.Message)
		}
	}
	return ""
}
