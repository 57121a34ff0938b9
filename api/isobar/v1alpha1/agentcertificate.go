package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentCertificate asks for the certificate of a machine's agent. It can only be created, by an agent
// that has a join token or a certificate, and is answered at once; the answer is kept nowhere. For whom the
// certificate is, what it is for and how long it is good is not asked: the token or the present certificate says who.
//
// +kubebuilder:object:root=true
type AgentCertificate struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata of the answer has the name of the machine's ExternalNode.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the question.
	Spec AgentCertificateSpec `json:"spec"`
	// Status is the answer.
	// +optional
	Status AgentCertificateStatus `json:"status,omitempty"`
}

// AgentCertificateSpec has the public key.
type AgentCertificateSpec struct {
	// Request is a PKCS #10 request in PEM, of which only the public key counts: ECDSA P-256 or P-384, or
	// Ed25519. That it is signed shows that who asks has the private key. At most 4096 bytes.
	Request string `json:"request"`
}

// AgentCertificateStatus has the certificate.
type AgentCertificateStatus struct {
	// Certificate in PEM.
	// +optional
	Certificate string `json:"certificate,omitempty"`
	// CABundle is the PEM of the authorities by which to verify the servers from now on.
	// +optional
	CABundle string `json:"caBundle,omitempty"`
	// Time is that of the server's clock when the certificate was made.
	// +optional
	Time metav1.Time `json:"time,omitempty"`
	// ExpirationTimestamp is when the certificate ends, by the same clock.
	// +optional
	ExpirationTimestamp metav1.Time `json:"expirationTimestamp,omitempty"`
}
