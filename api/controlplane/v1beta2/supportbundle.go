package v1beta2

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SupportBundleCollection tells agents to collect what supporters need, and where to
// put it. It holds a secret: what reads it must not log it.
//
// +kubebuilder:object:root=true
type SupportBundleCollection struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	ExpiredAt         metav1.Time `json:"expiredAt,omitempty" protobuf:"bytes,2,opt,name=expiredAt"`
	// SinceTime is how far back logs go, such as 1d, 2h or 30m.
	SinceTime      string                        `json:"sinceTime,omitempty" protobuf:"bytes,3,opt,name=sinceTime"`
	FileServer     BundleFileServer              `json:"fileServer,omitempty" protobuf:"bytes,4,opt,name=fileServer"`
	Authentication BundleServerAuthConfiguration `json:"authentication,omitempty" protobuf:"bytes,5,opt,name=authentication"`
}

// SupportBundleCollectionList is a list of SupportBundleCollection.
//
// +kubebuilder:object:root=true
type SupportBundleCollectionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	Items           []SupportBundleCollection `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// BundleFileServer is where bundles go.
type BundleFileServer struct {
	URL string `json:"url,omitempty" protobuf:"bytes,1,opt,name=url"`
	// HostPublicKey is the only key that the server may have; empty means any.
	HostPublicKey []byte `json:"hostPublicKey,omitempty" protobuf:"bytes,2,opt,name=hostPublicKey"`
}

// BundleServerAuthConfiguration is how agents show the server who they are.
type BundleServerAuthConfiguration struct {
	BearerToken         string               `json:"bearerToken,omitempty" protobuf:"bytes,1,opt,name=bearerToken"`
	APIKey              string               `json:"apiKey,omitempty" protobuf:"bytes,2,opt,name=apiKey"`
	BasicAuthentication *BasicAuthentication `json:"basicAuthentication,omitempty" protobuf:"bytes,3,opt,name=basicAuthentication"`
}

// BasicAuthentication is a name and a password.
type BasicAuthentication struct {
	Username string `json:"username" protobuf:"bytes,1,opt,name=username"`
	Password string `json:"password" protobuf:"bytes,2,opt,name=password"`
}

// SupportBundleCollectionStatus is how far agents have come with a
// SupportBundleCollection, whose name it has. It can only be created.
//
// +kubebuilder:object:root=true
type SupportBundleCollectionStatus struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
	// +listType=atomic
	Nodes []SupportBundleCollectionNodeStatus `json:"nodes,omitempty" protobuf:"bytes,2,rep,name=nodes"`
}

// SupportBundleCollectionNodeStatus is how far one agent has come.
type SupportBundleCollectionNodeStatus struct {
	NodeName string `json:"nodeName,omitempty" protobuf:"bytes,1,opt,name=nodeName"`
	// NodeNamespace is that of an ExternalNode; empty for a Node.
	NodeNamespace string `json:"nodeNamespace,omitempty" protobuf:"bytes,2,opt,name=nodeNamespace"`
	NodeType      string `json:"nodeType,omitempty" protobuf:"bytes,3,opt,name=nodeType"`
	Completed     bool   `json:"completed,omitempty" protobuf:"varint,4,opt,name=completed"`
	Error         string `json:"error,omitempty" protobuf:"bytes,5,opt,name=error"`
}
