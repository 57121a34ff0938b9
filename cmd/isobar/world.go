package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	"isobar.dev/api/convert"
	runtimev1alpha1 "isobar.dev/api/runtime/v1alpha1"
	"isobar.dev/api/verdict"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
	"isobar.dev/source/manifest"
)

// worldFlags say which world a command is about: that of manifests, or a cluster's.
type worldFlags struct {
	onlineFlags
	files         []string
	ignoreUnknown bool
	podNetwork    string
	nodeNetwork   string
}

func (f *worldFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file, folder or - with manifests, in place of a cluster; may be repeated")
	flags.BoolVar(&f.ignoreUnknown, "ignore-unknown", false, "skip kinds that are not known, with a warning")
	flags.StringVar(&f.podNetwork, "pod-network", "", "of a cluster: the network of its Pods, as its controller is told")
	flags.StringVar(&f.nodeNetwork, "node-network", "", "of a cluster: the network of its Nodes, as its controller is told")
	f.onlineFlags.add(cmd)
	flags.Lookup("namespace").Usage = "namespace of manifests that do not say (default: default)"
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
}

// read returns the world, having told of what is not as it is written in it.
func (f *worldFlags) read(ctx context.Context, in io.Reader, errOut io.Writer) (policy.Snapshot, error) {
	if len(f.files) == 0 {
		return f.live(ctx, errOut)
	}
	return f.manifests(f.files, in, errOut)
}

func (f *worldFlags) manifests(files []string, in io.Reader, errOut io.Writer) (policy.Snapshot, error) {
	world, err := f.written(files, in)
	for _, w := range world.Warnings {
		fmt.Fprintln(errOut, "warning:", w)
	}
	return world.Snapshot, err
}

// written returns the world of manifests, with where it is written. Its warnings are yet to be told.
func (f *worldFlags) written(files []string, in io.Reader) (manifest.World, error) {
	return manifest.Read(files, manifest.Options{Stdin: in, IgnoreUnknown: f.ignoreUnknown, Namespace: f.namespace})
}

// liveTimeout bounds how long the first read of a cluster takes.
const liveTimeout = 2 * time.Minute

// live returns the world of a cluster. What of it cannot be read is an error: a part
// of a world would be answered for as if it were all.
func (f *worldFlags) live(ctx context.Context, errOut io.Writer) (policy.Snapshot, error) {
	config, _, err := f.load()
	if err != nil {
		return policy.Snapshot{}, err
	}
	config.Timeout = 0 // of a watch, which lasts
	source, err := kube.New(config, kube.Options{Networks: kube.Networks{Pods: f.podNetwork, Nodes: f.nodeNetwork}})
	if err != nil {
		return policy.Snapshot{}, err
	}
	ctx, stop := context.WithTimeout(ctx, liveTimeout)
	defer stop()
	done := make(chan struct{})
	go func() { defer close(done); _ = source.Run(ctx) }()
	defer func() { stop(); <-done }()
	if err := awaitSynced(ctx, source); err != nil {
		return policy.Snapshot{}, fmt.Errorf("read the cluster at %s: %w", config.Host, err)
	}
	s := source.Snapshot()
	for _, n := range source.Notices().All() {
		if n.Unread {
			fmt.Fprintf(errOut, "warning: %v: nothing of it can be read\n", n.Object)
		}
		for _, p := range n.Problems {
			fmt.Fprintf(errOut, "warning: %v: %s: %s\n", n.Object, p.Field, p.Message)
		}
	}
	return f.onClouds(ctx, config, s, errOut)
}

// awaitSynced waits until all kinds were read, or one cannot be.
func awaitSynced(ctx context.Context, source *kube.Source) error {
	for {
		select {
		case <-source.Synced():
			return nil
		case <-source.Noticed():
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), unread(source))
		}
		if err := unread(source); err != nil {
			return err
		}
	}
}

// unread says which kinds cannot be read.
func unread(source *kube.Source) error {
	var errs []error
	for _, k := range source.Status() {
		if k.Err != nil && !k.Synced {
			errs = append(errs, fmt.Errorf("%s: %w", k.Resource.GroupResource(), k.Err))
		}
	}
	return errors.Join(errs...)
}

// onClouds gives the VMs of s their cloud's side, which only the controller knows.
func (f *worldFlags) onClouds(ctx context.Context, config *rest.Config, s policy.Snapshot, errOut io.Writer) (policy.Snapshot, error) {
	imported := map[string]bool{} // whose cloud's side is still to be told
	for id, w := range s.Workloads.All() {
		if w.Kind == policy.KindExternal && w.Isolation == policy.IsolateDirection {
			imported[id] = true
		}
	}
	if len(imported) == 0 {
		return s, nil
	}
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return s, err
	}
	var machines []runtimev1alpha1.VirtualMachine
	err = list(ctx, client, runtimev1alpha1.GroupVersion.WithResource(runtimev1alpha1.ResourceVirtualMachine), "", &machines)
	if err != nil {
		return s, fmt.Errorf("the cluster has imported VMs, and which networks they are in cannot be read: %w", err)
	}
	isolations, err := readIsolations(ctx, client)
	if err != nil {
		return s, err
	}
	for i := range machines {
		m := &machines[i]
		id := policy.WorkloadID(policy.KindExternal, m.Namespace, cloudv1alpha1.ExternalEntityName(m.Name))
		w, ok := s.Workloads.Get(id)
		if !ok {
			continue // not imported yet
		}
		interfaces, problems := convert.VirtualMachineInterfaces(m)
		for _, p := range problems {
			if !p.Warning {
				return s, fmt.Errorf("VirtualMachine %s/%s: %s: %s", m.Namespace, m.Name, p.Field, p.Message)
			}
		}
		isolation, err := isolations.of(m.Namespace)
		if err != nil {
			return s, err
		}
		target := w.Target
		if m.Status.CloudVpcID != "" && !m.Status.Agented {
			target = convert.CloudTarget(string(m.Status.Provider), m.Labels[cloudv1alpha1.LabelAccountNamespace], m.Labels[cloudv1alpha1.LabelAccountName], m.Status.Region, m.Status.CloudVpcID)
		}
		s.Workloads = s.Workloads.Put(id, convert.OnCloud(w, target, m.Status.CloudVpcID, interfaces, isolation))
		delete(imported, id)
	}
	for _, id := range slices.Sorted(maps.Keys(imported)) {
		// A database or a load balancer, or a VM that is going.
		if !f.ignoreUnknown {
			return s, fmt.Errorf("%s: in which network of its cloud it is, is not told: with --ignore-unknown it is left out", id)
		}
		fmt.Fprintf(errOut, "warning: %s: in which network of its cloud it is, is not told: it is left out\n", id)
		s.Workloads = s.Workloads.Delete(id)
	}
	return s, nil
}

// isolations are the settings of the selectors of each namespace.
type isolations map[string][]policy.Isolation

func readIsolations(ctx context.Context, client dynamic.Interface) (isolations, error) {
	var selectors []cloudv1alpha1.CloudEntitySelector
	if err := list(ctx, client, cloudv1alpha1.GroupVersion.WithResource("cloudentityselectors"), "", &selectors); err != nil {
		return nil, err
	}
	out := isolations{}
	for _, x := range selectors {
		for _, vm := range x.Spec.VMSelector {
			out[x.Namespace] = append(out[x.Namespace], convert.Isolation(vm.Isolation))
		}
	}
	return out, nil
}

// of returns the isolation of the VMs of a namespace. Which selector a VM was imported
// by is not told, so where selectors differ it is not known.
func (i isolations) of(namespace string) (policy.Isolation, error) {
	settings := i[namespace]
	if len(settings) == 0 {
		return policy.IsolateDirection, nil
	}
	for _, x := range settings[1:] {
		if x != settings[0] {
			return 0, fmt.Errorf("the CloudEntitySelectors of namespace %s set different isolations: which VM has which is not told", namespace)
		}
	}
	return settings[0], nil
}

// completeEnds offers the workloads of the manifests that stand on the command line.
func (f *worldFlags) completeEnds(prefix string) ([]string, cobra.ShellCompDirective) {
	if len(f.files) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	files := slices.Clone(f.files) // which completion parses more than once
	slices.Sort(files)
	s, err := f.manifests(slices.Compact(files), nil, io.Discard)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, w := range s.Workloads.All() {
		if n := verdict.EndOf(w); strings.HasPrefix(n, prefix) {
			out = append(out, n)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
