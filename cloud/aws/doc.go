// Package aws enforces Rulesets with the security groups of Amazon EC2, and
// lists the VMs of an account.
//
// Workloads of a VPC that are under the same policy form a class, and a class
// has a security group whose rules are what the policy allows, flattened. A
// peer is written as addresses or, when it has many, as a security group that
// its network interfaces carry for that purpose. What is ours is known by its
// tags; the groups that an interface had before are remembered in its tags, and
// come back when the last policy leaves.
package aws
