package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/common"

	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
	"isobar.dev/control/apiserver"
	"isobar.dev/control/feed"
	"isobar.dev/control/leader"
	"isobar.dev/policy"
)

// Feed has the resources that agents watch, of the world that is known; *feed.Feed does.
type Feed interface {
	List(feed.Resource, feed.Span) (objects []runtime.Object, version string)
	Get(r feed.Resource, s feed.Span, name string) (runtime.Object, bool)
	Watch(context.Context, feed.Resource, feed.WatchOptions) watch.Interface
	// IsAt says whether the agent of a node enforces any rule of a policy.
	IsAt(nodeName, policyID string) bool
}

var _ Feed = (*feed.Feed)(nil)

// Options configure a Service.
type Options struct {
	// World returns the world of now. ok is false while it is not known.
	World func() (s policy.Snapshot, ok bool)
	// Feed has the watched resources.
	Feed Feed
	// Reports take what agents say of policies.
	Reports *Reports
	// Office says whether reports are taken here: by the leader, who writes what comes of
	// them. nil means always.
	Office *leader.Office
}

// Service answers for the groups.
type Service struct {
	o       Options
	watches watches
	sources sources
	stats   stats
	joined  joined
}

// New returns a Service. It starts nothing.
func New(o Options) *Service {
	s := &Service{o: o, watches: watches{open: map[string]map[watch.Interface]struct{}{}}}
	s.sources.world, s.sources.ids = o.World, map[string]string{}
	return s
}

// Groups are what an apiserver.Server is to serve of s.
func (s *Service) Groups() []apiserver.Group {
	return []apiserver.Group{
		{Version: controlplanev1beta2.GroupVersion, AddToScheme: addToScheme, Storage: s.storage, Elsewhere: s.elsewhere, Definitions: GetOpenAPIDefinitions},
		{Version: statsv1alpha1.GroupVersion, AddToScheme: statsv1alpha1.AddToScheme, Storage: s.statsStorage, Elsewhere: s.elsewhere, Definitions: noDefinitions},
	}
}

// elsewhere returns an error for what only the leader can answer: reports, and what has
// been counted.
func (s *Service) elsewhere(info *request.RequestInfo) error {
	isReport := info.Verb == "create" && info.Resource != "networkpolicyevaluation"
	if !isReport && info.APIGroup != statsv1alpha1.GroupVersion.Group || s.o.Office.Check() == nil {
		return nil
	}
	return errElsewhere()
}

func errElsewhere() error {
	return apierrors.NewServiceUnavailable("another replica leads, and takes and adds up reports: try again")
}

func (s *Service) storage(who authorizer.Authorizer, closing <-chan struct{}) map[string]rest.Storage {
	g := gate{who}
	go s.watches.follow(s.o.Office, closing)
	out := map[string]rest.Storage{
		"groupmembers":             newMembers(s.o.World, true),
		"clustergroupmembers":      newMembers(s.o.World, false),
		"groupassociations":        associations{groupAssociations, s.o.World},
		"ipgroupassociations":      addressAssociations{ipGroupAssociations, s.o.World},
		"networkpolicyevaluation":  evaluations{evaluation, s.o.World},
		"egressgroups":             newEmpty(egressGroups, &s.watches),
		"supportbundlecollections": newEmpty(bundles, &s.watches),
	}
	for name, k := range watchedKinds {
		out[name] = &watched{watchedKind: k, name: name, feed: s.o.Feed, world: s.o.World, gate: g, watches: &s.watches}
	}
	out["networkpolicies/status"] = policyStatuses{policyStatus, s, g}
	out["nodestatssummaries"] = summaries{summary, s, g}
	return out
}

// Agents is how many Nodes and VMs agents watch policies for, here: not at other replicas. A
// controller that enforces them on the VMs of clouds is no agent.
func (s *Service) Agents() int { return s.watches.nodes(watchedPolicies) }

// noDefinitions are those of a group whose kinds are among another's.
func noDefinitions(common.ReferenceCallback) map[string]common.OpenAPIDefinition { return nil }

// addToScheme adds the kinds, and how they may be asked for.
func addToScheme(s *runtime.Scheme) error {
	if err := controlplanev1beta2.AddToScheme(s); err != nil {
		return err
	}
	var errs []error
	for _, kind := range []string{"NetworkPolicy", "AppliedToGroup", "AddressGroup", "EgressGroup", "SupportBundleCollection"} {
		errs = append(errs, s.AddFieldLabelConversionFunc(controlplanev1beta2.GroupVersion.WithKind(kind), func(label, value string) (string, string, error) {
			if label == fieldName || label == fieldNode {
				return label, value, nil
			}
			return "", "", fmt.Errorf("no field selector %q: there are %s and %s", label, fieldName, fieldNode)
		}))
	}
	errs = append(errs, s.AddConversionFunc((*url.Values)(nil), (*controlplanev1beta2.PaginationGetOptions)(nil), func(in, out any, _ conversion.Scope) error {
		return readPage(*in.(*url.Values), out.(*controlplanev1beta2.PaginationGetOptions))
	}))
	return errors.Join(errs...)
}

// readPage reads the parameters of a request for members.
func readPage(in url.Values, out *controlplanev1beta2.PaginationGetOptions) error {
	for _, x := range []struct {
		name string
		to   *int64
	}{{"page", &out.Page}, {"limit", &out.Limit}} {
		text := in.Get(x.name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("%s: %q is no number", x.name, text)
		}
		*x.to = n
	}
	return nil
}

// watches are the watches that are open, by who has opened them.
type watches struct {
	mu     sync.Mutex
	open   map[string]map[watch.Interface]struct{}
	closed bool
}

// watchesAtOnce is how many watches of one resource one user may have open for one
// Node. An agent has one.
const watchesAtOnce = 64

// follow ends the watches of policies when the office is taken or left, here or at another
// replica: agents then begin them anew, and say again what the new leader has not heard
// (docs/decisions/0024-reports-after-a-change-of-leaders.md). When closing is closed all end, and none
// begin any more.
func (w *watches) follow(office *leader.Office, closing <-chan struct{}) {
	changed := office.Changed()
	for {
		select {
		case <-changed:
			changed = office.Changed() // before: what changes meanwhile is not missed
			w.end(watchedPolicies)
		case <-closing:
			w.close()
			return
		}
	}
}

// close ends all watches, and those that begin from now on.
func (w *watches) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.end("")
}

// end ends the watches of a resource; empty means of all.
func (w *watches) end(resource string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for who, of := range w.open {
		if resource != "" && !strings.HasPrefix(who, whoWatches(resource)) {
			continue
		}
		for x := range of {
			x.Stop()
		}
	}
}

// whoWatches begins what a watch of a resource is known by.
func whoWatches(resource string) string { return resource + "\x00" }

// nodes counts the Nodes with agents for which a resource is watched.
func (w *watches) nodes(resource string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[string]struct{}{}
	for who := range w.open {
		if rest, ok := strings.CutPrefix(who, whoWatches(resource)); ok {
			if node, _, _ := strings.Cut(rest, "\x00"); node != "" && node != cloudv1alpha1.ExternalNodeController {
				found[node] = struct{}{}
			}
		}
	}
	return len(found)
}

// errTooMany is that a user has as many watches open as it may.
var errTooMany = fmt.Errorf("%d watches like this one are open already", watchesAtOnce)

// add opens a watch, and keeps it until it is stopped.
func (w *watches) add(who string, open func() watch.Interface) (watch.Interface, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open[who]) >= watchesAtOnce {
		return nil, errTooMany
	}
	x := open()
	if w.closed {
		x.Stop()
		return x, nil
	}
	if w.open[who] == nil {
		w.open[who] = map[watch.Interface]struct{}{}
	}
	w.open[who][x] = struct{}{}
	return &kept{Interface: x, done: func() { w.remove(who, x) }}, nil
}

func (w *watches) remove(who string, x watch.Interface) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open[who], x)
	if len(w.open[who]) == 0 {
		delete(w.open, who)
	}
}

// kept is a watch that tells when it is stopped.
type kept struct {
	watch.Interface
	once sync.Once
	done func()
}

// Stop ends the watch.
func (k *kept) Stop() {
	k.Interface.Stop()
	k.once.Do(k.done)
}
