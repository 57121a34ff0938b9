package manifest

import (
	"cmp"
	gojson "encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect" // to say what a field of the wrong type should have been
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/json"

	"isobar.dev/api/convert"
	"isobar.dev/api/validate"
	"isobar.dev/policy"
)

// Options configure Read. The zero value reads strictly.
type Options struct {
	Stdin         io.Reader // what "-" reads; nil means nothing
	IgnoreUnknown bool      // skip kinds that are not known, with a warning
	Namespace     string    // of objects that do not say; empty means default
}

// World is what the manifests describe.
type World struct {
	Snapshot policy.Snapshot
	Warnings []Warning // sorted by where they stand
	Objects  []Object  // in order
}

// Warning says what of the world is not as it is written, or is taken for granted.
type Warning struct {
	Text string
	// Lacking is the ID of the policy or group that refers to what no manifest has, where that is
	// what it says; else it is empty.
	Lacking string
}

func (w Warning) String() string { return w.Text }

// Read reads files and folders into one world. The error joins every *Error
// that was found, in order.
func Read(paths []string, o Options) (World, error) {
	r, err := readAll(paths, o)
	if err != nil {
		return World{}, err
	}
	r.complete()
	return World{r.world, r.warnings, r.objects}, nil
}

// readAll reads files and folders, and completes nothing.
func readAll(paths []string, o Options) (*reader, error) {
	if o.Stdin == nil {
		o.Stdin = eof{}
	}
	r := &reader{options: o, seen: map[string]document{}, bare: map[string]bool{}, tiers: map[int32]string{}}
	for _, path := range paths {
		list, err := files(path)
		if err != nil {
			return nil, err
		}
		for _, file := range list {
			docs, errs := read(file, o.Stdin)
			r.errs = append(r.errs, errs...)
			for _, d := range docs {
				r.object(d, d.json, place{})
			}
		}
	}
	return r, errors.Join(r.errs...)
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// reader builds one world.
type reader struct {
	options  Options
	world    policy.Snapshot
	seen     map[string]document // by kind, namespace and name
	objects  []Object
	machines []machine
	bare     map[string]bool  // IDs of Pods without a status
	tiers    map[int32]string // names by number
	invented []string         // Namespaces that no manifest has
	errs     []error
	warnings []Warning
}

// place is where in a document an object stands: nowhere but at its root, or in
// a list.
type place struct {
	name             string // such as items[3]; empty at the root
	apiVersion, kind string // what the list says of its items; empty where they say it
}

// object takes one object, or the items of a list.
func (r *reader) object(d document, raw []byte, in place) {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		r.fail(d, in.name, "", "not a Kubernetes object: %v", err)
		return
	}
	if in.kind != "" && head.Kind == "" && head.APIVersion == "" {
		head.Kind, head.APIVersion = in.kind, in.apiVersion
	}
	if head.Kind == "" || head.APIVersion == "" {
		r.fail(d, in.name, "", "not a Kubernetes object: apiVersion and kind must be set")
		return
	}
	if of, isList := listOf(head.APIVersion, head.Kind); isList {
		if in.name != "" {
			r.fail(d, in.name, "kind", "a list in a list")
			return
		}
		r.list(d, raw, head.APIVersion, of)
		return
	}
	k, known := kinds[head.APIVersion+" "+head.Kind]
	if !known {
		object := label(head.Kind, head.Metadata.Namespace, head.Metadata.Name)
		if r.options.IgnoreUnknown {
			r.warn(d, object, "", "kind %s of %s is not known: ignored", head.Kind, head.APIVersion)
			return
		}
		r.fail(d, object, "kind", "%s of %s is not known", head.Kind, head.APIVersion)
		return
	}
	ns, name := head.Metadata.Namespace, head.Metadata.Name
	if k.namespaced && ns == "" {
		ns = cmp.Or(r.options.Namespace, "default")
	}
	o := object{r: r, doc: d, raw: raw, namespace: ns, name: name, label: label(head.Kind, ns, name)}
	if name == "" {
		o.label = label(head.Kind, ns, in.name)
		o.fail("metadata.name", "must be set")
		return
	}
	if why := validation.IsDNS1123Subdomain(name); len(why) > 0 {
		o.fail("metadata.name", "%q: %s", name, why[0])
		return
	}
	if why := validation.IsDNS1123Label(ns); k.namespaced && len(why) > 0 {
		o.fail("metadata.namespace", "%q: %s", ns, why[0])
		return
	}
	if !k.namespaced && ns != "" {
		o.fail("metadata.namespace", "a %s of %s belongs to no namespace", head.Kind, head.APIVersion)
		return
	}
	key := head.APIVersion + " " + o.label
	if first, dup := r.seen[key]; dup {
		o.fail("metadata.name", "the same object stands in %s, document %d", first.file, first.number)
		return
	}
	r.seen[key] = d
	r.objects = append(r.objects, Object{d.file, d.number, o.label, head.APIVersion, head.Kind, ns, name, raw, d, in.name})
	k.read(&o)
}

func label(kind, namespace, name string) string {
	switch {
	case name == "":
		return kind
	case namespace == "":
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
}

// listOf says whether a kind is a list, and of what kind: none for a List, whose
// items say themselves what they are.
func listOf(apiVersion, k string) (of string, isList bool) {
	if apiVersion == "v1" && k == "List" {
		return "", true
	}
	of, isList = strings.CutSuffix(k, "List")
	_, known := kinds[apiVersion+" "+of]
	return of, isList && known
}

func (r *reader) list(d document, raw []byte, apiVersion, of string) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta `json:"metadata"`
		Items           []rawItem       `json:"items"`
	}
	strict, err := json.UnmarshalStrict(raw, &list)
	for _, err := range append(strict, err) {
		if err != nil {
			r.fail(d, of+"List", "", "%v", err)
		}
	}
	if len(strict) > 0 || err != nil {
		return
	}
	for i, item := range list.Items {
		in := place{name: fmt.Sprintf("items[%d]", i)}
		if of != "" {
			in.apiVersion, in.kind = apiVersion, of
		}
		r.object(d, item, in)
	}
}

// rawItem keeps the JSON of an item.
type rawItem []byte

// UnmarshalJSON keeps b.
func (i *rawItem) UnmarshalJSON(b []byte) error {
	*i = slices.Clone(b)
	return nil
}

func (r *reader) fail(d document, object, field, format string, args ...any) {
	r.errs = append(r.errs, &Error{d.file, d.number, object, field, fmt.Sprintf(format, args...)})
}

func (r *reader) warn(d document, object, field, format string, args ...any) {
	e := Error{d.file, d.number, object, field, fmt.Sprintf(format, args...)}
	r.warnings = append(r.warnings, Warning{Text: e.Error()})
}

// lacks warns of a reference to what is not there.
func (r *reader) lacks(id, format string, args ...any) {
	r.warnings = append(r.warnings, Warning{id + ": " + fmt.Sprintf(format, args...), id})
}

// object is one object that is being read.
type object struct {
	r               *reader
	doc             document
	raw             []byte
	namespace, name string // namespace is filled in, and empty for a kind of the cluster
	label           string
}

func (o *object) fail(field, format string, args ...any) {
	o.r.fail(o.doc, o.label, field, format, args...)
}

// decode reads the object into a typed one, strictly, and says whether it could.
func (o *object) decode(into metav1.Object) bool {
	strict, err := json.UnmarshalStrict(o.raw, into)
	var wrongType *gojson.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		o.fail(wrongType.Field, "want %s, not %s", wanted(wrongType.Type), wrongType.Value)
		return false
	}
	for _, err := range append(strict, err) {
		if err == nil {
			continue
		}
		// As in `unknown field "spec.foo"`.
		if f, ok := err.(json.FieldError); ok {
			reason, _, _ := strings.Cut(err.Error(), " \"")
			o.fail(f.FieldPath(), "%s", reason)
			continue
		}
		o.fail("", "%v", err)
	}
	if len(strict) > 0 || err != nil {
		return false
	}
	into.SetNamespace(o.namespace)
	return true
}

// wanted says in the words of JSON what a Go type is written as.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string (YAML takes words such as n, on and 1.0 as one in quotes only)"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map, reflect.Pointer, reflect.Interface:
		return "an object"
	}
	return "a number in range"
}

// validate refuses what admission would refuse of an object alone. Whether what
// it refers to is there is not asked: a world may be a part of one.
func (o *object) validate(in runtime.Object) bool {
	errs, warnings := validate.Validate(validate.Request{Operation: validate.Create, Object: in}, nil)
	for _, e := range errs {
		o.fail(e.Field, "%s", e.ErrorBody())
	}
	for _, w := range warnings {
		o.r.warn(o.doc, o.label, "", "%s", w)
	}
	return len(errs) == 0
}

// accept reports problems and says whether the object may be used.
func (o *object) accept(problems []convert.Problem) bool {
	ok := true
	for _, p := range problems {
		if p.Warning {
			o.r.warn(o.doc, o.label, p.Field, "%s", p.Message)
			continue
		}
		o.fail(p.Field, "%s", p.Message)
		ok = false
	}
	return ok
}

// complete fills in what a cluster would have: the Namespaces of workloads, and
// addresses for Pods that are written as they are applied, without status.
func (r *reader) complete() {
	r.placeMachines()
	r.placeBarePods()
	for _, w := range r.world.Workloads.All() {
		r.needNamespace(w.Namespace)
	}
	for _, p := range r.world.WithStaged().Policies.All() {
		r.needNamespace(p.Namespace)
		if _, ok := r.world.TierNumber(p.Tier); !ok {
			r.lacks(p.ID, "spec.tier: %q does not exist: what the policy denies stands in tier application, what it allows does not count", p.Tier)
		}
		for _, id := range groupsOf(p) {
			if _, _, ok := r.world.Members(id); !ok {
				r.lacks(p.ID, "%s does not exist, or its child groups have children: it has no members", id)
			}
		}
		for _, id := range servicesOf(p) {
			r.needService(p.ID, id)
		}
	}
	for _, g := range r.world.Groups.All() {
		r.needService(g.ID, g.Service)
		for _, id := range g.Children {
			if _, ok := r.world.Groups.Get(id); !ok {
				r.lacks(g.ID, "spec.childGroups: %s does not exist: it adds no members", id)
			}
		}
	}
	if len(r.invented) > 0 {
		r.warnings = append(r.warnings, Warning{Text: fmt.Sprintf("no manifest has the Namespace %s: it is taken to have no labels but its name", strings.Join(r.invented, ", "))})
	}
}

// placeBarePods gives Pods without a status addresses of the ranges for tests
// (RFC 2544, RFC 5180) that nothing else has.
func (r *reader) placeBarePods() {
	taken := map[netip.Addr]bool{}
	for _, w := range r.world.Workloads.All() {
		for _, a := range w.Addrs {
			taken[a] = true
		}
	}
	v4, v6 := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("2001:2::1")
	for _, w := range r.world.Workloads.All() {
		if !r.bare[w.ID] {
			continue
		}
		for taken[v4] {
			v4 = v4.Next()
		}
		for taken[v6] {
			v6 = v6.Next()
		}
		placed := *w
		placed.Addrs = []netip.Addr{v4, v6}
		r.world.Workloads = r.world.Workloads.Put(w.ID, &placed)
		r.warnings = append(r.warnings, Warning{Text: fmt.Sprintf("%s has no status: it is taken to run with the addresses %v and %v", w.ID, v4, v6)})
		v4, v6 = v4.Next(), v6.Next()
	}
}

// needService warns of a Service that is not there.
func (r *reader) needService(of, id string) {
	if _, ok := r.world.Services.Get(id); !ok && id != "" {
		r.lacks(of, "Service %s does not exist: nothing is matched by it", id)
	}
}

// servicesOf returns the IDs of the Services that p refers to, sorted.
func servicesOf(p *policy.Policy) []string {
	var ids []string
	for _, rule := range p.Egress {
		ids = append(ids, rule.Peers.Services...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// needNamespace adds the Namespace that a cluster would have, if name is not empty.
func (r *reader) needNamespace(name string) {
	if _, ok := r.world.Namespaces.Get(name); !ok && name != "" {
		r.invented = append(r.invented, name)
		ns := &policy.Namespace{Name: name, Labels: policy.LabelsOf(map[string]string{"kubernetes.io/metadata.name": name})}
		r.world.Namespaces = r.world.Namespaces.Put(name, ns)
	}
}

// groupsOf returns the IDs of the groups that p refers to, sorted.
func groupsOf(p *policy.Policy) []string {
	ids := slices.Clone(p.AppliedTo.Groups)
	for _, rules := range [][]policy.Rule{p.Ingress, p.Egress} {
		for _, rule := range rules {
			ids = append(ids, rule.Peers.Set.Groups...)
			if rule.AppliedTo != nil {
				ids = append(ids, rule.AppliedTo.Groups...)
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
