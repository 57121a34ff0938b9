package validate

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	antreav1alpha2 "isobar.dev/api/antrea/v1alpha2"
	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	cloudv1alpha1 "isobar.dev/api/cloud/v1alpha1"
	netpolv1alpha1 "isobar.dev/api/netpol/v1alpha1"
	netpolv1alpha2 "isobar.dev/api/netpol/v1alpha2"
)

// Operation is what is done to an object, in the words of admission requests.
type Operation string

// The operations.
const (
	Create Operation = "CREATE"
	Update Operation = "UPDATE"
	Delete Operation = "DELETE"
)

// Request is one write to decide.
type Request struct {
	Operation Operation

	// Object is the object as it would become, a pointer; nil for Delete.
	Object runtime.Object

	// Old is the object as it is; nil for Create. An Update without it is
	// checked like a Create.
	Old runtime.Object

	// FromController: Isobar itself asks. It alone may repair the priority of a
	// tier and delete a built-in one.
	FromController bool
}

// World is what there is besides the object of the request. A namespace is
// empty for kinds of the cluster. The answers are only read.
type World interface {
	// Tiers returns all Tiers.
	Tiers() []*antreav1beta1.Tier

	// PoliciesIn counts the policies whose tier, by TierName, is this one.
	PoliciesIn(tier string) int

	// Group returns a Group, or with an empty namespace a ClusterGroup.
	Group(namespace, name string) (*antreav1beta1.GroupSpec, bool)

	// Parents returns the names of the groups of which this one is a child.
	Parents(namespace, name string) []string

	// Account returns a CloudProviderAccount.
	Account(namespace, name string) (*cloudv1alpha1.CloudProviderAccount, bool)

	// Accounts and Selectors return all CloudProviderAccounts and
	// CloudEntitySelectors, of every namespace.
	Accounts() []*cloudv1alpha1.CloudProviderAccount
	Selectors() []*cloudv1alpha1.CloudEntitySelector

	// Secret returns the data of a Secret; an error when it cannot be told
	// whether there is one.
	Secret(namespace, name string) (data map[string][]byte, found bool, err error)

	// AllowsLayer7 says whether rules may have l7Protocols.
	AllowsLayer7() bool
}

// MaxErrors is how many errors and how many warnings an answer has at most; a
// last one says how many more there are.
const MaxErrors = 32

// Validate decides a request: it is refused when there are errors. Warnings say
// what is admitted but hardly meant. A nil World leaves out what concerns other
// objects, as for manifests that are read from files.
//
// An update that leaves the spec, and a policy's mode, as they were is never refused, so that
// labels can be changed and finalizers removed whatever became of the rest; neither is one
// of an object that is being deleted. Kinds that are not known are not refused.
func Validate(r Request, w World) (errs field.ErrorList, warnings []string) {
	if r.Operation == Delete {
		if t, ok := r.Old.(*antreav1beta1.Tier); ok && t != nil {
			return deleteTier(t, r.FromController, w), nil
		}
		return nil, nil
	}
	if isNil(r.Object) || isLeaving(r.Object) {
		return nil, nil
	}
	v := &validator{w: w}
	v.mode(r)
	if r.Operation != Update || !sameSpec(r.Object, r.Old) {
		v.object(r)
	}
	if n := len(v.errs) - MaxErrors; n > 0 {
		v.errs = append(v.errs[:MaxErrors], field.InternalError(field.NewPath("spec"), fmt.Errorf("and %d more", n)))
	}
	if n := len(v.warnings) - MaxErrors; n > 0 {
		v.warnings = append(v.warnings[:MaxErrors], fmt.Sprintf("and %d more", n))
	}
	return v.errs, v.warnings
}

// validator gathers what is wrong with one object.
type validator struct {
	w        World // nil when nothing is known of other objects
	errs     field.ErrorList
	warnings []string
}

func (v *validator) object(r Request) {
	spec := field.NewPath("spec")
	switch o := r.Object.(type) {
	case *antreav1beta1.NetworkPolicy:
		v.policy(spec, &o.Spec, true)
	case *antreav1beta1.ClusterNetworkPolicy:
		v.policy(spec, &o.Spec, false)
	case *antreav1beta1.Tier:
		old, _ := r.Old.(*antreav1beta1.Tier)
		v.tier(spec, o, old, r)
	case *antreav1beta1.Group:
		v.group(spec, o.Namespace, o.Name, &o.Spec, true)
	case *antreav1beta1.ClusterGroup:
		v.group(spec, "", o.Name, &o.Spec, false)
	case *antreav1alpha2.ExternalEntity:
		v.externalEntity(spec, &o.Spec)
	case *antreav1alpha1.ExternalNode:
		v.externalNode(spec, &o.Spec)
	case *cloudv1alpha1.CloudProviderAccount:
		old, _ := r.Old.(*cloudv1alpha1.CloudProviderAccount)
		v.account(spec, &o.Spec, old)
		v.sharedCloud(spec, o)
	case *cloudv1alpha1.CloudEntitySelector:
		old, _ := r.Old.(*cloudv1alpha1.CloudEntitySelector)
		v.selector(spec, &o.Spec, old)
		v.overlaps(spec, o)
	case *netpolv1alpha2.ClusterNetworkPolicy:
		v.clusterNetworkPolicy(spec, &o.Spec)
	case *netpolv1alpha1.AdminNetworkPolicy:
		v.adminNetworkPolicy(spec, &o.Spec)
	case *netpolv1alpha1.BaselineAdminNetworkPolicy:
		v.baselineAdminNetworkPolicy(spec, &o.Spec)
	}
}

func (v *validator) add(e *field.Error) { v.errs = append(v.errs, e) }

func (v *validator) invalid(p *field.Path, value any, format string, args ...any) {
	v.add(field.Invalid(p, value, fmt.Sprintf(format, args...)))
}

func (v *validator) forbid(p *field.Path, format string, args ...any) {
	v.add(field.Forbidden(p, fmt.Sprintf(format, args...)))
}

func (v *validator) require(p *field.Path, format string, args ...any) {
	v.add(field.Required(p, fmt.Sprintf(format, args...)))
}

func (v *validator) missing(p *field.Path, value any, fix string) {
	e := field.NotFound(p, value)
	e.Detail = fix
	v.add(e)
}

func (v *validator) duplicate(p *field.Path, value any, fix string) {
	e := field.Duplicate(p, value)
	e.Detail = fix
	v.add(e)
}

func (v *validator) warn(p *field.Path, format string, args ...any) {
	v.warnings = append(v.warnings, p.String()+": "+fmt.Sprintf(format, args...))
}

// isNil tells an object that is absent, also as a nil pointer of some type.
func isNil(o runtime.Object) bool {
	return o == nil || reflect.ValueOf(o).IsNil()
}

func isLeaving(o runtime.Object) bool {
	m, err := meta.Accessor(o)
	return err == nil && m.GetDeletionTimestamp() != nil
}

// sameSpec compares the Spec of two objects of one kind. It uses reflection
// because the kinds share no interface.
func sameSpec(a, b runtime.Object) bool {
	if isNil(a) || isNil(b) || reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	x, y := reflect.ValueOf(a).Elem().FieldByName("Spec"), reflect.ValueOf(b).Elem().FieldByName("Spec")
	return x.IsValid() && y.IsValid() && equality.Semantic.DeepEqual(x.Interface(), y.Interface())
}
