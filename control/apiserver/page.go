package apiserver

import (
	"cmp"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
)

// place is where a list that has been sent in part goes on: after the object of
// that name. The zero place is before all.
type place struct{ namespace, name string }

// isBefore says whether x is still to be sent.
func (p place) isBefore(x metav1.Object) bool {
	return cmp.Or(cmp.Compare(p.namespace, x.GetNamespace()), cmp.Compare(p.name, x.GetName())) < 0
}

// token is what a client continues with, of a list of version v.
func (p place) token(v version) (string, error) {
	return storage.EncodeContinue("/"+p.namespace+"/"+p.name, "/", int64(v))
}

func parseToken(s string) (place, version, error) {
	key, v, err := storage.DecodeContinue(s, "/")
	if err != nil {
		return place{}, 0, err
	}
	namespace, name, ok := strings.Cut(strings.TrimPrefix(key, "/"), "/")
	if !ok || v < 0 {
		return place{}, 0, fmt.Errorf("continue key is not valid: %q", key)
	}
	return place{namespace, name}, version(v), nil
}
