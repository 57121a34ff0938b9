package controlplane

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"isobar.dev/api/answer"
	"isobar.dev/control/apiserver"
)

// storage is what an API server asks of every resource.
type storage struct {
	make       func() runtime.Object
	singular   string
	shortNames []string
	namespaced bool
	columns    []metav1.TableColumnDefinition
	cells      func(runtime.Object) ([]any, error)
}

var (
	_ rest.Storage              = storage{}
	_ rest.Scoper               = storage{}
	_ rest.SingularNameProvider = storage{}
	_ rest.ShortNamesProvider   = storage{}
)

// New returns an empty object.
func (s storage) New() runtime.Object { return s.make() }

// Destroy does nothing: there is nothing to close.
func (s storage) Destroy() {}

// NamespaceScoped says whether the objects have a namespace.
func (s storage) NamespaceScoped() bool { return s.namespaced }

// GetSingularName is what kubectl takes for the resource's name too.
func (s storage) GetSingularName() string { return s.singular }

// ShortNames are what kubectl takes for the resource's name too.
func (s storage) ShortNames() []string { return s.shortNames }

// ConvertToTable makes the table that kubectl prints.
func (s storage) ConvertToTable(_ context.Context, in, options runtime.Object) (*metav1.Table, error) {
	return apiserver.TableOf(in, options, s.columns, s.cells)
}

// cellsOf makes the cells of a row from an object of one kind.
func cellsOf[T runtime.Object](cells func(T) []any) func(runtime.Object) ([]any, error) {
	return func(o runtime.Object) ([]any, error) {
		x, ok := o.(T)
		if !ok {
			return nil, apiserver.ErrNoTable(o)
		}
		return cells(x), nil
	}
}

// errNotKnown is the answer before the world is known: an empty one would say that
// there is nothing.
func errNotKnown() error {
	return apierrors.NewServiceUnavailable("the policies and workloads have not been read yet")
}

// answerError is an error of package answer as clients of an API see it.
func answerError(err error) error {
	if !errors.Is(err, answer.ErrNotFound) {
		return apierrors.NewBadRequest(err.Error())
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound, Message: err.Error(),
	}}
}
