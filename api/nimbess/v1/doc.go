// Package v1 holds the UnifiedNetworkPolicy of nimbess.com/v1: rules on what
// connections carry, per network.
//
// +kubebuilder:object:generate=true
// +groupName=nimbess.com
package v1
