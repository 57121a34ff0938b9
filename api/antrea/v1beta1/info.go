package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AntreaControllerInfo is what a controller tells of itself once a minute. There is one
// of it, and its fields are at the top, not below spec or status.
//
// A field beside these stays: other versions of the controller may write more.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=antreacontrollerinfos,shortName=aci,scope=Cluster
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.controllerConditions[?(@.type=='ControllerHealthy')].status`,description="Whether the controller is well."
// +kubebuilder:printcolumn:name="Last Heartbeat",type=date,JSONPath=`.controllerConditions[?(@.type=='ControllerHealthy')].lastHeartbeatTime`,description="When it said so."
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.version`,description="The controller's version."
// +kubebuilder:printcolumn:name="Connected Agents",type=integer,priority=1,JSONPath=`.connectedAgentNum`,description="Number of agents that watch."
// +kubebuilder:printcolumn:name="Node",type=string,priority=1,JSONPath=`.nodeRef.name`,description="Node that the controller runs on."
// +kubebuilder:printcolumn:name="Pod",type=string,priority=1,JSONPath=`.podRef.name`,description="The controller's Pod."
type AntreaControllerInfo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Version string `json:"version,omitempty"`
	// PodRef is the controller's Pod.
	// +optional
	PodRef corev1.ObjectReference `json:"podRef,omitempty"`
	// NodeRef is the Node of that Pod.
	// +optional
	NodeRef corev1.ObjectReference `json:"nodeRef,omitempty"`
	// ServiceRef is the Service of the controller.
	// +optional
	ServiceRef corev1.ObjectReference `json:"serviceRef,omitempty"`
	// +optional
	NetworkPolicyControllerInfo NetworkPolicyControllerInfo `json:"networkPolicyControllerInfo,omitempty"`
	// ConnectedAgentNum counts the agents that watch.
	// +optional
	ConnectedAgentNum int32 `json:"connectedAgentNum,omitempty"`
	// +optional
	// +listType=atomic
	ControllerConditions []ControllerCondition `json:"controllerConditions,omitempty"`
	// APIPort is that of the controller's API server.
	// +optional
	APIPort int32 `json:"apiPort,omitempty"`
}

// AntreaControllerInfoList is a list of AntreaControllerInfo.
//
// +kubebuilder:object:root=true
type AntreaControllerInfoList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AntreaControllerInfo `json:"items"`
}

// NetworkPolicyControllerInfo counts what a controller has computed.
type NetworkPolicyControllerInfo struct {
	// +optional
	NetworkPolicyNum int32 `json:"networkPolicyNum,omitempty"`
	// +optional
	AddressGroupNum int32 `json:"addressGroupNum,omitempty"`
	// +optional
	AppliedToGroupNum int32 `json:"appliedToGroupNum,omitempty"`
}

// ControllerHealthy is the condition of a controller that is well.
const ControllerHealthy = "ControllerHealthy"

// ControllerCondition is one thing that a controller says of itself.
type ControllerCondition struct {
	Type   string                 `json:"type"`
	Status corev1.ConditionStatus `json:"status"`
	// LastHeartbeatTime is when it was said.
	LastHeartbeatTime metav1.Time `json:"lastHeartbeatTime"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
}
