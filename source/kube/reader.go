package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// listTimeout bounds one page of a list.
const listTimeout = time.Minute

// backoff is how long a reader waits after a failure: up to 5 s, so that a kind that
// appears and an API server that is back are seen soon. Three small requests in
// that time for each kind that is missing are nothing to an API server.
var backoff = wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 6, Cap: 5 * time.Second}

// clients makes one client for each group and version.
type clients struct {
	config *rest.Config
	scheme *runtime.Scheme
	made   map[schema.GroupVersion]rest.Interface
}

func (c clients) parameters() runtime.ParameterCodec { return runtime.NewParameterCodec(c.scheme) }

func (c clients) of(k *kind) (rest.Interface, error) {
	gv := k.gvr.GroupVersion()
	if client, ok := c.made[gv]; ok {
		return client, nil
	}
	config := rest.CopyConfig(c.config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(c.scheme).WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if k.custom {
		config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	}
	// A reader waits for its own answers, and backs off.
	config.QPS, config.RateLimiter = -1, nil
	config.Timeout = 0 // which would end streams; pages have a bound of their own
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	c.made[gv] = client
	return client, nil
}

// reader reads one kind into the store. It is the ListerWatcher and the store of
// a Reflector, which calls it from one goroutine at a time.
type reader struct {
	source     *Source
	index      int // of the kind's status
	kind       *kind
	client     rest.Interface
	parameters runtime.ParameterCodec
}

var (
	_ cache.ListerWatcherWithContext = (*reader)(nil)
	_ cache.TransformingStore        = (*reader)(nil)
	_ cache.ReflectorBookmarkStore   = (*reader)(nil)
)

func (r *reader) run(ctx context.Context) {
	wait, silent := backoff, logr.Discard()
	reflector := cache.NewReflectorWithOptions(withoutContext{r}, nil, r, cache.ReflectorOptions{
		Name: "source/kube", TypeDescription: r.kind.String(), Backoff: &wait, Logger: &silent,
	})
	reflector.WatchListPageSize = r.source.options.PageSize
	reflector.RunWithContext(ctx)
}

// withoutContext has the methods that a Reflector asks for and does not call.
type withoutContext struct{ *reader }

func (r withoutContext) List(o metav1.ListOptions) (runtime.Object, error) {
	return r.ListWithContext(context.Background(), o)
}

func (r withoutContext) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return r.WatchWithContext(context.Background(), o)
}

// get is a request that is tried once: the Reflector tries again, and what went
// wrong is to be seen meanwhile.
func (r *reader) get(o *metav1.ListOptions) *rest.Request {
	return r.client.Get().Resource(r.kind.gvr.Resource).VersionedParams(o, r.parameters).MaxRetries(0)
}

// ListWithContext returns one page, converted. Reflectors ask for it where the
// API server cannot stream a first read.
func (r *reader) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	// A Reflector is content with any version at first. An API server that lags
	// behind would take back, at our start, what was enforced before.
	o.ResourceVersion, o.ResourceVersionMatch = "", ""
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	page, err := r.get(&o).Do(ctx).Get()
	if err != nil {
		return nil, r.failed(ctx, err)
	}
	m, err := meta.ListAccessor(page)
	if err != nil {
		return nil, r.failed(ctx, err)
	}
	out := &metainternal.List{}
	out.ResourceVersion, out.Continue, out.RemainingItemCount = m.GetResourceVersion(), m.GetContinue(), m.GetRemainingItemCount()
	err = meta.EachListItem(page, func(obj runtime.Object) error {
		it, err := r.kind.read(obj, r.source.intern)
		out.Items = append(out.Items, it)
		return err
	})
	if err != nil {
		return nil, r.failed(ctx, err)
	}
	return out, nil
}

// WatchWithContext streams objects, as the API server gives them.
func (r *reader) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	w, err := r.get(&o).Watch(ctx)
	if reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()) {
		// The client hides a connection that ends before an answer behind this.
		w, err = nil, io.ErrUnexpectedEOF
	}
	switch {
	case err == nil:
		r.source.report(r.index, func(s *KindStatus) { s.Err = nil })
	case o.SendInitialEvents != nil && (apierrors.IsNotFound(err) || apierrors.IsInvalid(err)):
		// The Reflector lists instead, and that says why.
	default:
		err = r.failed(ctx, err)
	}
	return w, err
}

// failed reports err, which is why the kind cannot be read now, and returns it.
func (r *reader) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return err // we are stopping
	}
	missing, since := false, uint64(0)
	if r.kind.custom && apierrors.IsNotFound(err) {
		var checked error
		if missing, since, checked = r.isMissing(ctx); checked != nil {
			err = fmt.Errorf("%w (%w)", err, checked)
		}
	}
	if missing {
		// The API server deletes a kind's objects before its definition, but a watch may be cut
		// before it tells of all of them.
		wasMissing := r.source.Status()[r.index].Missing
		r.source.store.edit(func(e *edit) {
			if wasMissing { // there is nothing of it, and to look for that costs as much as there is of others
				e.came(r.kind, since)
				return
			}
			e.replace(r.kind, nil)
			e.listed(r.kind, since, 0)
		})
	}
	r.source.report(r.index, func(s *KindStatus) {
		s.Missing, s.Err = missing, nil
		if !missing {
			s.Err = fmt.Errorf("read %v: %w", r.kind, err)
		}
	})
	return err
}

// isMissing says whether the API server has no definition of the kind, which it says of
// that very definition: a bare "not found" may be from whatever stands before it. Where
// there is one that does not serve our version, now or ever, its objects are unknown, which
// is not the same as none: the error says so. Where it is missing it was so at that version, at
// the latest: the answer itself has none.
func (r *reader) isMissing(ctx context.Context) (missing bool, at uint64, err error) {
	name := r.kind.gvr.GroupResource().String()
	if at, err = r.version(ctx); err != nil {
		return false, 0, fmt.Errorf("find definition %s: %w", name, err)
	}
	answer := r.client.Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", name).MaxRetries(0).Do(ctx)
	err = answer.Error() // which, unlike that of Raw, is what the API server says
	var told apierrors.APIStatus
	if errors.As(err, &told) && apierrors.IsNotFound(err) {
		if d := told.Status().Details; d != nil && d.Name == name && d.Kind == "customresourcedefinitions" && d.Group == "apiextensions.k8s.io" {
			return true, at, nil
		}
	}
	if err != nil {
		return false, 0, fmt.Errorf("find definition %s: %w", name, err)
	}
	body, err := answer.Raw()
	if err != nil {
		return false, 0, fmt.Errorf("read definition %s: %w", name, err)
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Name   string
				Served bool
			}
		}
	}
	if err := json.Unmarshal(body, &definition); err != nil {
		return false, 0, fmt.Errorf("read definition %s: %w", name, err)
	}
	var served []string
	for _, v := range definition.Spec.Versions {
		if v.Served {
			served = append(served, v.Name)
		}
	}
	if slices.Contains(served, r.kind.gvr.Version) {
		return false, 0, fmt.Errorf("definition %s is not served yet", name)
	}
	return false, 0, fmt.Errorf("definition %s serves %s, and we read %s", name, strings.Join(served, ", "), r.kind.gvr.Version)
}

// version returns a resourceVersion of now. Namespaces are where definitions are kept, and
// there are always some.
func (r *reader) version(ctx context.Context) (uint64, error) {
	body, err := r.client.Get().AbsPath("/api/v1/namespaces").Param("limit", "1").MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return 0, fmt.Errorf("list Namespaces: %w", err)
	}
	var list struct{ Metadata metav1.ListMeta }
	if err := json.Unmarshal(body, &list); err != nil {
		return 0, fmt.Errorf("list Namespaces: %w", err)
	}
	return versionOf(list.Metadata.ResourceVersion), nil
}

// Transformer converts objects while they are streamed, so that a first read
// never holds them all.
func (r *reader) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return r.item(obj) }
}

// item converts obj, unless that is done.
func (r *reader) item(obj any) (*item, error) {
	switch obj := obj.(type) {
	case *item:
		return obj, nil
	case runtime.Object:
		return r.kind.read(obj, r.source.intern)
	}
	return nil, fmt.Errorf("read %v: got a %T", r.kind, obj)
}

// Add takes an object that is there.
func (r *reader) Add(obj any) error {
	it, err := r.item(obj)
	if err != nil {
		return err
	}
	r.source.store.edit(func(e *edit) {
		e.put(r.kind, it)
		e.came(r.kind, it.version)
	})
	return nil
}

// Update is Add.
func (r *reader) Update(obj any) error { return r.Add(obj) }

// Delete takes an object that is gone. It is not converted: what cannot be read
// can be deleted.
func (r *reader) Delete(obj any) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return fmt.Errorf("delete %v: %w", r.kind, err)
	}
	key := r.kind.key(m.GetNamespace(), m.GetName())
	r.source.store.edit(func(e *edit) {
		e.delete(r.kind, key)
		e.came(r.kind, versionOf(m.GetResourceVersion()))
	})
	return nil
}

// Bookmark takes that all has come up to a version.
func (r *reader) Bookmark(version string) error {
	r.source.store.edit(func(e *edit) { e.came(r.kind, versionOf(version)) })
	return nil
}

// Replace takes all objects that are there.
func (r *reader) Replace(objs []any, version string) error {
	items, newest := make([]*item, len(objs)), uint64(0)
	for i, obj := range objs {
		it, err := r.item(obj)
		if err != nil {
			return err
		}
		items[i], newest = it, max(newest, it.version)
	}
	r.source.store.edit(func(e *edit) {
		e.replace(r.kind, items)
		e.listed(r.kind, versionOf(version), newest)
	})
	// An error goes when a watch follows: without one the kind is not read on.
	r.source.report(r.index, func(s *KindStatus) { s.Missing, s.Synced = false, true })
	return nil
}

// Resync does nothing: the store is never behind.
func (r *reader) Resync() error { return nil }
