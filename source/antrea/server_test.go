package antrea_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kprotobuf "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/control/feed"
)

// object is what the server sends: its codec here is that of Kubernetes' own
// serializers, around ours of the kinds.
type object interface {
	runtime.Object
	GetName() string
}

// controller is a small controller: it serves the three watches of one Node, and takes
// reports. What it has is set as a whole, and sent as what has changed.
type controller struct {
	t    testing.TB
	http *http.Server

	mu       sync.Mutex
	have     convert.ControlPlane
	watchers map[*watcher]bool
	begun    map[string]int        // watches by resource
	refuse   map[string]int        // status by resource
	silent   bool                  // sends no BOOKMARK
	posts    map[string][][]byte   // bodies by path
	inJSON   bool                  // whatever is asked for
	answer   http.HandlerFunc      // in place of everything
	first    map[string][]rawEvent // in place of what a watch begins with, by resource; once
	feed     *feed.Feed            // in place of what it has
	node     string                // that asks
	plain    bool                  // tells no Moments, as upstream
	moment   string                // of what a watch begins with; empty for none
	moments  func() string         // in its place
}

type watcher struct {
	resource string
	events   chan rawEvent
	end      chan struct{}
}

// rawEvent is an event, or, where bytes is set, whatever they are.
type rawEvent struct {
	kind   watch.EventType
	object runtime.Object
	bytes  []byte
}

var resources = []string{"networkpolicies", "appliedtogroups", "addressgroups"}

func newController(t testing.TB) *controller {
	c := &controller{
		t: t, watchers: map[*watcher]bool{}, begun: map[string]int{}, refuse: map[string]int{}, posts: map[string][][]byte{}, first: map[string][]rawEvent{}, node: "node-1",
	}
	c.http = &http.Server{Handler: c}
	return c
}

// pipes listens for connections in memory, as a bubble of synctest can wait for.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// connect serves in memory until stop is called, and says how it is reached.
func (c *controller) connect() (config *rest.Config, stop func()) {
	p := &pipes{accept: make(chan net.Conn), closed: make(chan struct{})}
	go c.http.Serve(p)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		near, far := net.Pipe()
		select {
		case p.accept <- far:
			return near, nil
		case <-p.closed:
			return nil, fmt.Errorf("connection refused")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	return &rest.Config{Host: "http://controller", Transport: transport}, func() {
		c.http.Close()
		transport.CloseIdleConnections()
	}
}

func (c *controller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	answer := c.answer
	c.mu.Unlock()
	if answer != nil {
		answer(w, r)
		return
	}
	rest, ok := strings.CutPrefix(r.URL.Path, "/apis/controlplane.antrea.io/v1beta2/")
	if !ok {
		http.NotFound(w, r)
		return
	}
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		if code := c.refuse[rest]; code != 0 {
			c.sayNo(w, code)
			return
		}
		c.posts[rest] = append(c.posts[rest], body)
		w.WriteHeader(http.StatusCreated)
		return
	}
	if q := r.URL.Query(); q.Get("watch") != "true" || q.Get("fieldSelector") != "nodeName="+c.node || !slices.Contains(resources, rest) {
		c.t.Errorf("asked for %v", r.URL)
		http.Error(w, "what?", http.StatusBadRequest)
		return
	}
	c.serveWatch(w, r, rest)
}

func (c *controller) sayNo(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: "Refused", Message: "not now", Code: int32(code)})
}

func (c *controller) serveWatch(w http.ResponseWriter, r *http.Request, resource string) {
	c.mu.Lock()
	if code := c.refuse[resource]; code != 0 {
		c.mu.Unlock()
		c.sayNo(w, code)
		return
	}
	inJSON := c.inJSON || !strings.HasPrefix(r.Header.Get("Accept"), "application/vnd.kubernetes.protobuf")
	x := &watcher{resource: resource, events: make(chan rawEvent, 1000), end: make(chan struct{})}
	initial, has := c.first[resource]
	delete(c.first, resource)
	if !has && c.feed == nil {
		initial = added(c.have, resource)
		if !c.silent {
			if c.moments != nil {
				c.moment = c.moments()
			}
			initial = append(initial, bookmarkAt(resource, c.moment))
		}
	}
	c.begun[resource]++
	c.watchers[x] = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, x)
	}()
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	if inJSON {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher).Flush
	flush()
	send := func(e rawEvent) bool {
		b := e.bytes
		if b == nil {
			b = encoded(c.t, e, inJSON)
		}
		_, err := w.Write(b)
		flush()
		return err == nil
	}
	for _, e := range initial {
		if !send(e) {
			return
		}
	}
	var fed <-chan watch.Event
	if c.feed != nil {
		w := c.feed.Watch(r.Context(), feed.Resource(slices.Index([]string{"networkpolicies", "appliedtogroups", "addressgroups"}, resource)), feed.WatchOptions{Span: feed.SpanOf(c.node), Marks: !c.plain && r.URL.Query().Get("allowWatchBookmarks") == "true"})
		defer w.Stop()
		fed = w.ResultChan()
	}
	for {
		select {
		case e, ok := <-fed:
			if !ok {
				return
			}
			o := e.Object
			if cached, ok := o.(runtime.CacheableObject); ok {
				o = cached.GetObject()
			}
			if !send(rawEvent{kind: e.Type, object: o}) {
				return
			}
		case e := <-x.events:
			if !send(e) {
				return
			}
		case <-x.end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

var scheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	if err := controlplanev1beta2.AddToScheme(s); err != nil {
		panic(err)
	}
	s.AddKnownTypes(metav1.Unversioned, &metav1.Status{})
	return s
}()

// encoded returns an event as Kubernetes' own serializers write it.
func encoded(t testing.TB, e rawEvent, inJSON bool) []byte {
	gvks, _, err := scheme.ObjectKinds(e.object)
	if err != nil {
		t.Errorf("%T: %v", e.object, err)
		return nil
	}
	obj := e.object.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(gvks[0])
	if inJSON {
		b, err := json.Marshal(map[string]any{"type": e.kind, "object": obj})
		if err != nil {
			t.Error(err)
		}
		return b
	}
	var body, frame bytes.Buffer
	if err := kprotobuf.NewSerializer(scheme, scheme).Encode(obj, &body); err != nil {
		t.Error(err)
	}
	event := &metav1.WatchEvent{Type: string(e.kind), Object: runtime.RawExtension{Raw: body.Bytes()}}
	text, err := event.Marshal()
	if err != nil {
		t.Error(err)
	}
	if _, err := kprotobuf.LengthDelimitedFramer.NewFrameWriter(&frame).Write(text); err != nil {
		t.Error(err)
	}
	return frame.Bytes()
}

func empty(resource string) runtime.Object {
	switch resource {
	case "networkpolicies":
		return &controlplanev1beta2.NetworkPolicy{}
	case "appliedtogroups":
		return &controlplanev1beta2.AppliedToGroup{}
	}
	return &controlplanev1beta2.AddressGroup{}
}

// bookmarkAt is the bookmark of a Moment, or of none. Behind an @ it has a Position.
func bookmarkAt(resource, moment string) rawEvent {
	o := empty(resource)
	moment, position, ok := strings.Cut(moment, "@")
	if moment != "" {
		annotations := map[string]string{controlplanev1beta2.MomentAnnotation: moment}
		if ok {
			annotations[controlplanev1beta2.PositionAnnotation] = position
		}
		o.(metav1.Object).SetAnnotations(annotations)
	}
	return rawEvent{kind: watch.Bookmark, object: o}
}

// objects returns those of a resource, by name.
func objects(in convert.ControlPlane, resource string) map[string]object {
	out := map[string]object{}
	switch resource {
	case "networkpolicies":
		for i := range in.Policies {
			out[in.Policies[i].Name] = &in.Policies[i]
		}
	case "appliedtogroups":
		for i := range in.AppliedTo {
			out[in.AppliedTo[i].Name] = &in.AppliedTo[i]
		}
	case "addressgroups":
		for i := range in.Addresses {
			out[in.Addresses[i].Name] = &in.Addresses[i]
		}
	}
	return out
}

func added(in convert.ControlPlane, resource string) []rawEvent {
	var out []rawEvent
	all := objects(in, resource)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		out = append(out, rawEvent{kind: watch.Added, object: all[name]})
	}
	return out
}

// changes returns the events that lead from one state of a resource to another.
func changes(was, now convert.ControlPlane, resource string) []rawEvent {
	old, next := objects(was, resource), objects(now, resource)
	var out []rawEvent
	for _, name := range slices.Sorted(maps.Keys(next)) {
		o, has := old[name]
		switch x := next[name].(type) {
		case *controlplanev1beta2.NetworkPolicy:
			if has {
				a, _ := x.Marshal()
				b, _ := o.(*controlplanev1beta2.NetworkPolicy).Marshal()
				if !bytes.Equal(a, b) {
					out = append(out, rawEvent{kind: watch.Modified, object: x})
				}
			}
		case *controlplanev1beta2.AppliedToGroup:
			if has {
				p := &controlplanev1beta2.AppliedToGroupPatch{ObjectMeta: x.ObjectMeta}
				p.AddedGroupMembers, p.RemovedGroupMembers = controlplanev1beta2.DiffMembers(o.(*controlplanev1beta2.AppliedToGroup).GroupMembers, x.GroupMembers)
				if len(p.AddedGroupMembers)+len(p.RemovedGroupMembers) > 0 {
					out = append(out, rawEvent{kind: watch.Modified, object: p})
				}
			}
		case *controlplanev1beta2.AddressGroup:
			if has {
				p := &controlplanev1beta2.AddressGroupPatch{ObjectMeta: x.ObjectMeta}
				p.AddedGroupMembers, p.RemovedGroupMembers = controlplanev1beta2.DiffMembers(o.(*controlplanev1beta2.AddressGroup).GroupMembers, x.GroupMembers)
				if len(p.AddedGroupMembers)+len(p.RemovedGroupMembers) > 0 {
					out = append(out, rawEvent{kind: watch.Modified, object: p})
				}
			}
		}
		if !has {
			out = append(out, rawEvent{kind: watch.Added, object: next[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		if next[name] == nil {
			gone := empty(resource)
			gone.(metav1.Object).SetName(name) // metadata alone
			out = append(out, rawEvent{kind: watch.Deleted, object: gone})
		}
	}
	return out
}

// set makes now what there is, and tells it; resources are those that are told, in that
// order: the others know nothing of it.
func (c *controller) set(now convert.ControlPlane, tell ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range tell {
		for _, e := range changes(c.have, now, resource) {
			c.sendTo(resource, e)
		}
	}
	c.have = now
}

// send sends an event to who watches a resource.
func (c *controller) send(resource string, e rawEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendTo(resource, e)
}

func (c *controller) sendTo(resource string, e rawEvent) {
	for x := range c.watchers {
		if x.resource == resource {
			x.events <- e
		}
	}
}

// cut ends the watches of resources.
func (c *controller) cut(which ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for x := range c.watchers {
		if slices.Contains(which, x.resource) {
			close(x.end)
			delete(c.watchers, x)
		}
	}
}

// with changes the controller.
func (c *controller) with(f func(c *controller)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

func (c *controller) beginnings(resource string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun[resource]
}
