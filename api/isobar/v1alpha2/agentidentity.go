package v1alpha2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AgentIdentity is by what the agent of a machine is known to the servers of Isobar. It has the
// namespace and name of the machine's ExternalNode. Deleting either revokes all certificates of the agent.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=agentidentities,shortName=aid
// +kubebuilder:printcolumn:name="Token-Expires",type=date,JSONPath=`.spec.joinToken.expirationTimestamp`
// +kubebuilder:printcolumn:name="Joined",type=date,JSONPath=`.status.joinTime`
// +kubebuilder:printcolumn:name="Renewed",type=date,JSONPath=`.status.renewTime`
// +kubebuilder:printcolumn:name="Certificate-Until",type=string,JSONPath=`.status.keys[-1:].notAfter`
type AgentIdentity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what people set.
	// +optional
	Spec AgentIdentitySpec `json:"spec,omitempty"`
	// Status is what the servers keep.
	// +optional
	Status AgentIdentityStatus `json:"status,omitempty"`
}

// AgentIdentityList is a list of AgentIdentity.
//
// +kubebuilder:object:root=true
type AgentIdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AgentIdentity `json:"items"`
}

// AgentIdentitySpec says how the agent may join.
type AgentIdentitySpec struct {
	// JoinToken is the token by which an agent may join once. Joining by it ends what the agent
	// that had joined before was known by.
	// +optional
	JoinToken *JoinToken `json:"joinToken,omitempty"`
}

// JoinToken is a secret of which only a hash is kept. `isobar token create` makes one.
type JoinToken struct {
	// Hash is "sha256:" and the SHA-256 of the secret in hexadecimal digits.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	Hash string `json:"hash"`
	// ExpirationTimestamp is until when it may be used.
	ExpirationTimestamp metav1.Time `json:"expirationTimestamp"`
}

// AgentIdentityStatus is what the agent has done.
type AgentIdentityStatus struct {
	// Keys are the public keys of which certificates are believed: one, and for a while after a renewal
	// also the one after it, whose first use ends the other.
	// +optional
	// +listType=map
	// +listMapKey=fingerprint
	// +kubebuilder:validation:MaxItems=2
	Keys []AgentKey `json:"keys,omitempty"`
	// UsedToken is the hash of the join token that was used last.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	UsedToken string `json:"usedToken,omitempty"`
	// UsedBy is the fingerprint of the key that was joined with by it. It alone may ask again by the
	// token, where the answer was lost.
	// +optional
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	UsedBy string `json:"usedBy,omitempty"`
	// ExternalNodeUID is that of the ExternalNode at the time of joining. One that is
	// made anew under its name is another machine.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	ExternalNodeUID string `json:"externalNodeUID,omitempty"`
	// JoinTime is when the agent joined.
	// +optional
	JoinTime *metav1.Time `json:"joinTime,omitempty"`
	// RenewTime is when its certificate was renewed last.
	// +optional
	RenewTime *metav1.Time `json:"renewTime,omitempty"`
}

// AgentKey is a public key of an agent.
type AgentKey struct {
	// Fingerprint is "sha256:" and the SHA-256 of the key's SubjectPublicKeyInfo in hexadecimal digits.
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	// +kubebuilder:validation:MaxLength=71
	Fingerprint string `json:"fingerprint"`
	// Issued is when the last certificate of it was made.
	Issued metav1.Time `json:"issued"`
	// NotAfter is when that certificate ends.
	NotAfter metav1.Time `json:"notAfter"`
}
