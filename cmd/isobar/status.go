package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/convert"
	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	"isobar.dev/policy"
)

type statusFlags struct {
	onlineFlags
	output string
}

func statusCommand() *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show accounts, selectors, targets, and the policies that the clouds do not enforce, and why",
		Long: `Status reads what a cluster's Isobar has written of itself: which cloud accounts it reaches, which
VMs its selectors import, and which Antrea policies are not enforced as written. Without -n it looks at
all namespaces, and asks the controller how each target fares, which is a network of an account in a
region. Policies of every kind that are staged are listed apart. -o wide lists the policies that are enforced, too, and the quotas that targets use.`,
		Example: `  isobar status
  isobar status -n shop -o wide
  isobar status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	addFormats(cmd, &f.output, formats...)
	f.add(cmd)
	cmd.Flags().Lookup("namespace").Usage = "namespace (default: all)"
	return cmd
}

func (f *statusFlags) run(ctx context.Context, out io.Writer) error {
	if err := checkFormat(f.output, formats...); err != nil {
		return err
	}
	config, _, err := f.load()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	s, err := readStatus(ctx, client, f.namespace)
	if err != nil {
		return fmt.Errorf("status: %w", err)
	}
	if isObject(f.output) {
		return writeObject(out, f.output, s)
	}
	return s.print(out, f.output == "wide")
}

// clusterStatus is what Isobar has written of itself.
type clusterStatus struct {
	Accounts  []objectStatus `json:"accounts"`
	Selectors []objectStatus `json:"selectors"`
	// Targets are what the controller tells of them; TargetsError is why it cannot be asked.
	Targets      []isobarv1alpha1.TargetStatus `json:"targets,omitempty"`
	TargetsError string                        `json:"targetsError,omitempty"`
	Policies     []policyState                 `json:"policies"`
	// Staged are the policies of every kind that are staged; StagedError is which of them cannot be read.
	Staged      []stagedPolicy `json:"staged,omitempty"`
	StagedError string         `json:"stagedError,omitempty"`
}

// stagedPolicy is a policy that is staged.
type stagedPolicy struct {
	Policy string `json:"policy"` // ID
	// State is Staged, Withdrawing while a cloud still enforces it, or Unknown when no controller has
	// said anything of it, or its kind has no place for that.
	State string `json:"state"`
	Why   string `json:"why,omitempty"`
}

// objectStatus is how an account or a selector fares.
type objectStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is OK, Failed, Changed when the object as it is now was not looked at
	// yet, or Unknown.
	State string   `json:"state"`
	Why   []string `json:"why,omitempty"`
}

// policyState is how far the clouds enforce a policy.
type policyState struct {
	Namespace string `json:"namespace,omitempty"` // empty for one of the cluster
	Name      string `json:"name"`
	// Phase is the policy's own, Changed when it is of an earlier generation, Staged, or
	// empty when no cloud has to do with it.
	Phase    string   `json:"phase,omitempty"`
	Realized int32    `json:"realized"` // targets that enforce it
	Targets  int32    `json:"targets"`  // targets that should
	Why      []string `json:"why,omitempty"`
}

const (
	changed     = "Changed"
	phaseStaged = "Staged"
)

func readStatus(ctx context.Context, client dynamic.Interface, namespace string) (s clusterStatus, err error) {
	var accounts []cloudv1alpha1.CloudProviderAccount
	var selectors []cloudv1alpha1.CloudEntitySelector
	var policies []antreav1beta1.NetworkPolicy
	var clusterPolicies []antreav1beta1.ClusterNetworkPolicy
	cloud, antrea := cloudv1alpha1.GroupVersion, antreav1beta1.GroupVersion
	err = errors.Join(
		list(ctx, client, cloud.WithResource("cloudprovideraccounts"), namespace, &accounts),
		list(ctx, client, cloud.WithResource("cloudentityselectors"), namespace, &selectors),
		list(ctx, client, antrea.WithResource("networkpolicies"), namespace, &policies))
	if namespace == "" {
		err = errors.Join(err, list(ctx, client, antrea.WithResource("clusternetworkpolicies"), "", &clusterPolicies))
		var targets []isobarv1alpha1.Target
		if err := list(ctx, client, isobarv1alpha1.GroupVersion.WithResource(isobarv1alpha1.ResourceTargets), "", &targets); err != nil {
			s.TargetsError = err.Error() // the controller may be away, and the rest is true without it
		}
		for _, t := range targets {
			s.Targets = append(s.Targets, t.Status)
		}
	}
	for _, a := range accounts {
		s.Accounts = append(s.Accounts, stateOf(a.ObjectMeta, a.Status.Error, a.Status.ObservedGeneration, a.Status.Conditions))
	}
	for _, x := range selectors {
		s.Selectors = append(s.Selectors, stateOf(x.ObjectMeta, x.Status.Error, x.Status.ObservedGeneration, x.Status.Conditions))
	}
	all, stagedErr := stagedIn(ctx, client, namespace)
	if stagedErr != nil {
		s.StagedError = stagedErr.Error() // who may read the rest may not be allowed to read all kinds
	}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		s.Staged = append(s.Staged, stagedPolicyOf(id, all[id]))
	}
	for _, p := range clusterPolicies {
		s.Policies = append(s.Policies, phaseOf(p.ObjectMeta, p.Status))
	}
	for _, p := range policies {
		s.Policies = append(s.Policies, phaseOf(p.ObjectMeta, p.Status))
	}
	return s, err
}

// list reads all objects of a resource, of every namespace where that is empty.
func list[T any](ctx context.Context, client dynamic.Interface, r schema.GroupVersionResource, namespace string, out *[]T) error {
	o := metav1.ListOptions{Limit: 500}
	for {
		page, err := client.Resource(r).Namespace(namespace).List(ctx, o)
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("the API server has no %s: Isobar is not there", r.GroupResource())
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", r.GroupResource(), err)
		}
		for _, item := range page.Items {
			var x T
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &x); err != nil {
				return fmt.Errorf("read %s %s/%s: %w", r.GroupResource(), item.GetNamespace(), item.GetName(), err)
			}
			*out = append(*out, x)
		}
		if o.Continue = page.GetContinue(); o.Continue == "" {
			return nil
		}
	}
}

// stateOf says what an object's conditions come to. Those whose name is of
// something wrong say so when they are True, the others when they are not.
func stateOf(m metav1.ObjectMeta, text string, observed int64, conditions []metav1.Condition) objectStatus {
	s := objectStatus{Namespace: m.Namespace, Name: m.Name, State: "OK"}
	isWrong := map[string]metav1.ConditionStatus{"Overlapping": metav1.ConditionTrue, "Unresolved": metav1.ConditionTrue}
	for _, c := range conditions {
		bad, isOdd := isWrong[c.Type]
		if isOdd && c.Status == bad || !isOdd && c.Status != metav1.ConditionTrue {
			s.Why = append(s.Why, c.Type+": "+c.Reason+": "+c.Message)
			if !isOdd && c.Status == metav1.ConditionFalse {
				s.State = "Failed"
			}
			if !isOdd && c.Status == metav1.ConditionUnknown && s.State == "OK" {
				s.State = "Unknown"
			}
		}
	}
	switch {
	case text != "" && s.State != "Failed":
		s.State, s.Why = "Failed", append(s.Why, text)
	case len(conditions) == 0 && text == "":
		s.State, s.Why = "Unknown", []string{"no controller has said anything of it"}
	case observed < m.Generation:
		s.State = changed
	}
	return s
}

func phaseOf(m metav1.ObjectMeta, in antreav1beta1.NetworkPolicyStatus) policyState {
	s := policyState{Namespace: m.Namespace, Name: m.Name, Phase: string(in.Phase), Realized: in.CurrentNodesRealized, Targets: in.DesiredNodesRealized}
	for _, c := range in.Conditions {
		if c.Type == antreav1beta1.ConditionRealizable && c.Status == metav1.ConditionFalse || c.Type == antreav1beta1.ConditionRealizationFailure && c.Status == metav1.ConditionTrue {
			s.Why = append(s.Why, c.Reason+": "+c.Message)
		}
	}
	if s.Phase != "" && in.ObservedGeneration < m.Generation {
		s.Phase = changed
	}
	if mode, _ := convert.Mode(m.Annotations); mode == policy.Stage {
		s.Phase = phaseStaged
	}
	return s
}

// stagedPolicyOf says how the withdrawal of a staged policy fares.
func stagedPolicyOf(id string, p *unstructured.Unstructured) stagedPolicy {
	s := stagedPolicy{Policy: id, State: "Unknown"}
	var in antreav1beta1.NetworkPolicy // those of other kinds have other conditions
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": p.Object["status"]}, &in); err != nil {
		return s
	}
	for _, c := range in.Status.Conditions {
		if c.Type == antreav1beta1.ConditionStaged && in.Status.ObservedGeneration == p.GetGeneration() {
			s.State, s.Why = phaseStaged, c.Message
			if c.Status != metav1.ConditionTrue {
				s.State = c.Reason
			}
		}
	}
	return s
}

func (s clusterStatus) print(out io.Writer, wide bool) error {
	var text bytes.Buffer
	for _, part := range []struct {
		name string
		list []objectStatus
	}{{"Accounts", s.Accounts}, {"Selectors", s.Selectors}} {
		fmt.Fprintf(&text, "%s: %d\n", part.name, len(part.list))
		w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		for _, x := range part.list {
			fmt.Fprintf(w, "  %s/%s\t%s\t%s\n", x.Namespace, x.Name, x.State, strings.Join(x.Why, "; "))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if err := s.printTargets(&text, wide); err != nil {
		return err
	}
	if err := s.printPolicies(&text, wide); err != nil {
		return err
	}
	if err := s.printStaged(&text); err != nil {
		return err
	}
	for line := range strings.Lines(text.String()) { // cells may be empty
		if _, err := fmt.Fprintln(out, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

func (s clusterStatus) printTargets(text *bytes.Buffer, wide bool) error {
	if s.TargetsError != "" {
		fmt.Fprintf(text, "Targets: not known: %s\n", s.TargetsError)
		return nil
	}
	if len(s.Targets) == 0 {
		return nil
	}
	fmt.Fprintf(text, "Targets: %d\n", len(s.Targets))
	w := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	for _, t := range s.Targets {
		refused := ""
		if t.Refusals > 0 {
			refused = fmt.Sprintf(", %d refused", t.Refusals)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s%s\t%s\n", t.Target, t.State, count(int(t.Objects), "object"), refused, t.Error)
		for _, u := range t.Usage {
			if wide {
				fmt.Fprintf(w, "    %s: %d of %d %s\n", u.Quota, u.Used, u.Limit, u.Of)
			}
		}
	}
	return w.Flush()
}

func (s clusterStatus) printPolicies(text *bytes.Buffer, wide bool) error {
	count := map[string]int{}
	var rows bytes.Buffer
	w := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	for _, p := range s.Policies {
		count[p.Phase]++
		if p.Phase == phaseStaged || !wide && (p.Phase == "" || p.Phase == string(antreav1beta1.PolicyRealized)) {
			continue
		}
		name, phase := p.Name, p.Phase
		if p.Namespace != "" {
			name = p.Namespace + "/" + p.Name
		}
		if phase == "" {
			phase = "-"
		}
		fmt.Fprintf(w, "  %s\t%s\t%d of %d\t%s\n", name, phase, p.Realized, p.Targets, strings.Join(p.Why, "; "))
	}
	var phases []string
	for phase, n := range count {
		if phase == "" {
			phase = "concern no cloud"
		}
		phases = append(phases, fmt.Sprintf("%d %s", n, strings.ToLower(phase)))
	}
	slices.Sort(phases)
	fmt.Fprintf(text, "Policies: %d", len(s.Policies))
	if len(phases) > 0 {
		fmt.Fprintf(text, " (%s)", strings.Join(phases, ", "))
	}
	fmt.Fprintln(text)
	if err := w.Flush(); err != nil {
		return err
	}
	text.Write(rows.Bytes())
	return nil
}

func (s clusterStatus) printStaged(text *bytes.Buffer) error {
	if s.StagedError != "" {
		fmt.Fprintf(text, "Staged: not all are known: %s\n", s.StagedError)
	}
	if len(s.Staged) == 0 {
		return nil
	}
	if s.StagedError == "" {
		fmt.Fprintf(text, "Staged: %d\n", len(s.Staged))
	}
	w := tabwriter.NewWriter(text, 0, 0, 2, ' ', 0)
	for _, p := range s.Staged {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", p.Policy, p.State, p.Why)
	}
	return w.Flush()
}
