package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	"isobar.dev/source/manifest"
)

type planFlags struct {
	onlineFlags
	files         []string
	isDelete      bool
	output        string
	exitCode      bool
	ignoreUnknown bool
	staged        stagedFlag
}

// The exit statuses of plan --exit-code, besides 0 and 1.
const (
	statusChanges exitStatus = 2
	statusRefused exitStatus = 3
)

func planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan (-f PATH... | --staged)",
		Short: "Show what a change of policies would do in the clouds, without making it",
		Long: `Plan asks the Isobar of a cluster what would happen if the manifests were applied, or deleted: which
security groups, rules and attachments it would create, change and delete, what it could not enforce
and why, and how much of the clouds' quotas would be used. Nothing is written. What it shows is what is
then done, as long as nothing else changes in between.

Manifests are policies of every kind, Groups, ClusterGroups, Tiers, Namespaces, Pods, Services and
ExternalEntities. An object counts as it is written, whole: for what kubectl apply would make of a part
of one, plan what its dry run prints. A Pod without a status is taken to run where it does, with
the labels of the manifest.

With --staged it is about staged policies of the cluster, as if they were written without the
annotation isobar.dev/mode; with --staged=NAME about one.

It needs the right to create plans.isobar.dev, which tells of policies and VMs of all namespaces.

With --exit-code the exit status says what was found:
  0  nothing would change
  1  it cannot be said: an error
  2  something would change
  3  something would be refused that is not refused now, or is not known of some target`,
		Example: `  isobar plan -f policies/
  isobar plan -f db.yaml --delete
  isobar plan --staged
  isobar plan -f policies/ --exit-code -o json > plan.json
  kubectl apply -f policies/ --dry-run=server -o yaml | isobar plan -f -`,
		Args: cobra.ArbitraryArgs, // further paths: what a shell makes of -f policies/*.yaml
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && len(f.files) == 0 {
				return fmt.Errorf("%q: paths follow -f", args[0])
			}
			f.files = append(f.files, args...)
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file, folder or - with manifests; may be repeated")
	flags.BoolVar(&f.isDelete, "delete", false, "plan the deletion of the objects")
	flags.BoolVar(&f.exitCode, "exit-code", false, "say by the exit status what was found")
	flags.BoolVar(&f.ignoreUnknown, "ignore-unknown", false, "skip kinds that are not known, with a warning")
	f.staged.add(cmd, "plan to enforce staged policies of the cluster")
	addFormats(cmd, &f.output, formats...)
	f.add(cmd)
	cmd.MarkFlagsOneRequired("filename", "staged")
	cmd.MarkFlagsMutuallyExclusive("filename", "staged")
	cmd.MarkFlagsMutuallyExclusive("delete", "staged")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

func (f *planFlags) run(ctx context.Context, in io.Reader, out, errOut io.Writer) error {
	if err := checkFormat(f.output, formats...); err != nil {
		return err
	}
	config, namespace, err := f.load()
	if err != nil {
		return err
	}
	var question *isobarv1alpha1.Plan
	var where []string
	if f.staged.isSet() {
		question, where, err = f.questionOfStaged(ctx, config)
	} else {
		question, where, err = f.questionOfManifests(in, errOut, namespace)
	}
	if err != nil {
		return err
	}
	answer, err := ask(ctx, config, question)
	if err != nil {
		return err
	}
	if err := tellProblems(errOut, where, answer.Status.Problems); err != nil {
		return err
	}
	if err := f.print(out, answer.Status); err != nil {
		return err
	}
	if f.exitCode {
		return exitStatusOf(answer.Status.Totals)
	}
	return nil
}

// newPlan returns a Plan to ask for, of so many objects.
func newPlan(objects int) (*isobarv1alpha1.Plan, error) {
	if objects > isobarv1alpha1.MaxPlanObjects {
		return nil, fmt.Errorf("%d objects: at most %d can be planned at once", objects, isobarv1alpha1.MaxPlanObjects)
	}
	q := &isobarv1alpha1.Plan{}
	q.APIVersion, q.Kind = isobarv1alpha1.GroupVersion.String(), "Plan"
	return q, nil
}

// questionOfStaged returns the Plan of what is staged, and what its objects are called.
func (f *planFlags) questionOfStaged(ctx context.Context, config *rest.Config) (*isobarv1alpha1.Plan, []string, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	staged, err := stagedIn(ctx, client, "")
	if err != nil {
		return nil, nil, err
	}
	ids, err := f.staged.pick(slices.Sorted(maps.Keys(staged)))
	if err != nil {
		return nil, nil, err
	}
	if len(ids) == 0 {
		return nil, nil, errors.New("no policy is staged")
	}
	q, err := newPlan(len(ids))
	if err != nil {
		return nil, nil, err
	}
	for _, id := range ids {
		text, err := enforced(staged[id]).MarshalJSON()
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", id, err)
		}
		q.Spec.Manifests = append(q.Spec.Manifests, runtime.RawExtension{Raw: text})
	}
	return q, ids, nil
}

// questionOfManifests returns the Plan of manifests, and where its objects stand.
func (f *planFlags) questionOfManifests(in io.Reader, errOut io.Writer, namespace string) (*isobarv1alpha1.Plan, []string, error) {
	objects, warnings, err := manifest.Objects(f.files, manifest.Options{Stdin: in, IgnoreUnknown: f.ignoreUnknown, Namespace: namespace})
	if err != nil {
		return nil, nil, err
	}
	for _, w := range warnings {
		fmt.Fprintln(errOut, "warning:", w)
	}
	q, err := newPlan(len(objects))
	if err != nil {
		return nil, nil, err
	}
	var where []string
	for _, o := range objects {
		where = append(where, o.Where())
		if f.isDelete {
			q.Spec.Delete = append(q.Spec.Delete, isobarv1alpha1.PlanObject{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
			continue
		}
		m, err := o.Manifest()
		if err != nil {
			return nil, nil, err
		}
		text, err := json.Marshal(m)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", o.Where(), err)
		}
		q.Spec.Manifests = append(q.Spec.Manifests, runtime.RawExtension{Raw: text})
	}
	return q, where, nil
}

// ask sends a Plan, and returns it with its answer.
func ask(ctx context.Context, config *rest.Config, q *isobarv1alpha1.Plan) (*isobarv1alpha1.Plan, error) {
	config = rest.CopyConfig(config)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/apis", &isobarv1alpha1.GroupVersion, scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	result := client.Post().Resource(isobarv1alpha1.ResourcePlans).
		SetHeader("Content-Type", runtime.ContentTypeJSON).SetHeader("Accept", runtime.ContentTypeJSON).Body(body).Do(ctx)
	err = result.Error() // which reads the answer's Status, as Raw does not
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("plan: the API server at %s has no plans.isobar.dev: no Isobar serves them there", config.Host)
	case err != nil:
		return nil, fmt.Errorf("plan: %w", err)
	}
	answer, err := result.Raw()
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	out := &isobarv1alpha1.Plan{}
	if err := json.Unmarshal(answer, out); err != nil {
		return nil, fmt.Errorf("plan: read the answer: %w", err)
	}
	return out, nil
}

// tellProblems prints what is a warning, and returns the rest as an error: a plan of
// something else than what is written would mislead.
func tellProblems(errOut io.Writer, objects []string, problems []isobarv1alpha1.PlanProblem) error {
	var errs []error
	for _, p := range problems {
		where := fmt.Sprintf("object %d", p.Index)
		if int(p.Index) < len(objects) {
			where = objects[p.Index]
		}
		if p.Field != "" {
			where += ": " + p.Field
		}
		if p.Warning {
			fmt.Fprintf(errOut, "warning: %s: %s\n", where, p.Message)
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %s", where, p.Message))
	}
	return errors.Join(errs...)
}

func exitStatusOf(t isobarv1alpha1.PlanTotals) error {
	switch {
	case t.Refused+t.Unknown > 0:
		return statusRefused
	case t.Create+t.Update+t.Delete > 0:
		return statusChanges
	}
	return nil
}

func (f *planFlags) print(out io.Writer, s isobarv1alpha1.PlanStatus) error {
	if isObject(f.output) {
		return writeObject(out, f.output, s)
	}
	p := planPrinter{out: out, wide: f.output == "wide"}
	return p.print(s)
}
