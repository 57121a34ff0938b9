// Package azure enforces Rulesets with the network security groups of Azure, and
// lists the VMs of a subscription.
//
// What we read of a resource are the few fields that we use. What we change, we
// read as the JSON object that it is, change in place and put back under its ETag,
// so that fields, tags and rules of others stay as they are, known to us or not.
// See docs/decisions/0013-azure-documents.md.
package azure
