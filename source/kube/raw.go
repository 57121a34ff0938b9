package kube

import (
	"bytes"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"
)

// maxBody bounds what is decoded of one custom object. etcd refuses requests of
// more than 1.5 MiB unless it is told otherwise.
const maxBody = 4 << 20

// raw is a custom object before it is decoded: its text and what a Reflector
// needs. Decoding objects one at a time keeps one that does not fit our types
// from making its whole kind unreadable, as it does in typed clients.
type raw struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	body []byte
}

// UnmarshalJSON keeps the text. It fails only where there is no JSON object.
func (r *raw) UnmarshalJSON(text []byte) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name            string            `json:"name"`
			Namespace       string            `json:"namespace"`
			UID             types.UID         `json:"uid"`
			ResourceVersion string            `json:"resourceVersion"`
			Annotations     map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &head); err != nil {
		return fmt.Errorf("read metadata: %w", err)
	}
	m := head.Metadata
	*r = raw{
		TypeMeta:   metav1.TypeMeta{APIVersion: head.APIVersion, Kind: head.Kind},
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace, UID: m.UID, ResourceVersion: m.ResourceVersion, Annotations: m.Annotations},
		body:       bytes.Clone(text),
	}
	return nil
}

// MarshalJSON returns the text as it was.
func (r *raw) MarshalJSON() ([]byte, error) { return json.RawMessage(r.body).MarshalJSON() }

// DeepCopyObject makes raw a runtime.Object. The text is never changed.
func (r *raw) DeepCopyObject() runtime.Object {
	c := *r
	c.ObjectMeta = *r.ObjectMeta.DeepCopy()
	return &c
}

// rawList is a list of custom objects.
type rawList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []raw `json:"items"`
}

// DeepCopyObject makes rawList a runtime.Object.
func (l *rawList) DeepCopyObject() runtime.Object {
	c := &rawList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy(), Items: make([]raw, len(l.Items))}
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*raw)
	}
	return c
}

// decode reads the text into out. unknown names the fields that out does not have.
func (r *raw) decode(out any) (unknown []error, err error) {
	if len(r.body) > maxBody {
		return nil, fmt.Errorf("%d bytes are more than the limit of %d", len(r.body), maxBody)
	}
	return kjson.UnmarshalStrict(r.body, out)
}
