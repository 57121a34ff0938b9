package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// View tells of what version the views of the console are. There is one, by the name console: a
// watch of it tells when views may have other answers.
//
// A view itself is read at its own name, such as views/workloads?namespace=shop, and its answer is
// no object of Kubernetes but the view's own JSON, of what the user may list.
//
// +kubebuilder:object:root=true
type View struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is what is known of the views.
	// +optional
	Status ViewStatus `json:"status,omitempty"`
}

// ViewList is a list of Views.
//
// +kubebuilder:object:root=true
type ViewList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []View `json:"items"`
}

// ViewStatus is of what version views are.
type ViewStatus struct {
	// Revision is a word that is another one when views may have other answers.
	Revision string `json:"revision"`
}
