// Package webhook serves the admission webhooks: it refuses policies, tiers,
// groups, accounts and selectors that cannot mean what they say, and fills in
// what upstream fills in. Of Kubernetes NetworkPolicies it refuses a mode that is none.
//
// Package validate decides. Here is what it needs: a [Server] that speaks
// AdmissionReview, certificates that it makes and renews itself, reads of other
// objects that are never stale, because they are asked of the API server for
// each decision, and [Install], which tells the API server where to ask.
//
// It fails closed. While the server is away, writes of these kinds are refused;
// deletions, and updates of what is being deleted, are not, so that nothing is
// stuck. When the server cannot read what a decision depends on, it refuses too.
package webhook
