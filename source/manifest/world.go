package manifest

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"

	"isobar.dev/api/convert"
	"isobar.dev/policy"
)

// Options configure Read. The zero value reads strictly.
type Options struct {
	Stdin         io.Reader // what "-" reads; nil means nothing
	IgnoreUnknown bool      // skip kinds that are not known, with a warning
}

// World is what the manifests describe.
type World struct {
	Snapshot policy.Snapshot
	Warnings []string // sorted by where they stand
}

// Read reads files and folders into one world. The error joins every *Error
// that was found, in order.
func Read(paths []string, o Options) (World, error) {
	if o.Stdin == nil {
		o.Stdin = eof{}
	}
	r := reader{options: o, seen: map[string]document{}, bare: map[string]bool{}}
	for _, path := range paths {
		list, err := files(path)
		if err != nil {
			return World{}, err
		}
		for _, file := range list {
			docs, err := read(file, o.Stdin)
			if err != nil {
				r.errs = append(r.errs, err)
				continue
			}
			for _, d := range docs {
				r.object(d, d.json)
			}
		}
	}
	if len(r.errs) > 0 {
		return World{}, errors.Join(r.errs...)
	}
	r.complete()
	return World{r.world, r.warnings}, nil
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// reader builds one world.
type reader struct {
	options  Options
	world    policy.Snapshot
	seen     map[string]document // by kind, namespace and name
	machines []machine
	bare     map[string]bool // IDs of Pods without a status
	errs     []error
	warnings []string
}

// object takes one object, or the items of a list.
func (r *reader) object(d document, raw []byte) {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(raw, &head); err != nil {
		r.fail(d, "", "", "%v", err)
		return
	}
	if head.Kind == "" || head.APIVersion == "" {
		r.fail(d, "", "", "not a Kubernetes object: apiVersion and kind must be set")
		return
	}
	if head.Kind == "List" && head.APIVersion == "v1" {
		r.list(d, raw)
		return
	}
	k, known := kinds[head.APIVersion+" "+head.Kind]
	if !known {
		if r.options.IgnoreUnknown {
			r.warn(d, head.Kind+" "+head.Metadata.Name, "", "kind %s of %s is not known: ignored", head.Kind, head.APIVersion)
			return
		}
		r.fail(d, head.Kind+" "+head.Metadata.Name, "kind", "%s of %s is not known", head.Kind, head.APIVersion)
		return
	}
	ns, name := head.Metadata.Namespace, head.Metadata.Name
	if k.namespaced && ns == "" {
		ns = "default"
	}
	if !k.namespaced {
		ns = ""
	}
	o := object{r: r, doc: d, raw: raw, namespace: ns, name: name, label: label(head.Kind, ns, name)}
	if name == "" {
		o.fail("metadata.name", "must be set")
		return
	}
	key := head.APIVersion + " " + o.label
	if first, dup := r.seen[key]; dup {
		o.fail("metadata.name", "the same object stands in %s, document %d", first.file, first.number)
		return
	}
	r.seen[key] = d
	k.read(&o)
}

func label(kind, namespace, name string) string {
	if namespace == "" {
		return kind + " " + name
	}
	return kind + " " + namespace + "/" + name
}

func (r *reader) list(d document, raw []byte) {
	var list struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ListMeta `json:"metadata"`
		Items           []rawItem       `json:"items"`
	}
	strict, err := json.UnmarshalStrict(raw, &list)
	if err = errors.Join(append(strict, err)...); err != nil {
		r.fail(d, "List", "", "%v", err)
		return
	}
	for _, item := range list.Items {
		r.object(d, item)
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
	r.warnings = append(r.warnings, e.Error())
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
	if err = errors.Join(append(strict, err)...); err != nil {
		o.fail("", "%v", err)
		return false
	}
	into.SetNamespace(o.namespace)
	return true
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
	next := netip.MustParseAddr("198.18.0.1") // of the range for tests, RFC 2544
	for _, w := range r.world.Workloads.All() {
		if w.Namespace != "" {
			r.needNamespace(w.Namespace)
		}
		if !r.bare[w.ID] {
			continue
		}
		placed := *w
		placed.Addrs = []netip.Addr{next}
		r.world.Workloads = r.world.Workloads.Put(w.ID, &placed)
		r.warnings = append(r.warnings, fmt.Sprintf("%s has no status: it is taken to run with the address %v", w.ID, next))
		next = next.Next()
	}
	for _, p := range r.world.Policies.All() {
		if p.Namespace != "" {
			r.needNamespace(p.Namespace)
		}
		if _, ok := r.world.TierNumber(p.Tier); !ok {
			r.warnings = append(r.warnings, fmt.Sprintf("%s: spec.tier: %q does not exist: what the policy denies stands in tier application, what it allows does not count", p.ID, p.Tier))
		}
		for _, id := range groupsOf(p) {
			if _, _, ok := r.world.Members(id); !ok {
				r.warnings = append(r.warnings, fmt.Sprintf("%s: %s does not exist, or its child groups have children: it has no members", p.ID, id))
			}
		}
	}
}

// needNamespace adds the Namespace that a cluster would have.
func (r *reader) needNamespace(name string) {
	if _, ok := r.world.Namespaces.Get(name); !ok {
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
