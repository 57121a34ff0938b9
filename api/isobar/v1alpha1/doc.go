// Package v1alpha1 holds the keys of isobar.dev that Isobar puts on objects, in
// Kubernetes and in clouds. The group has no kinds yet.
package v1alpha1
