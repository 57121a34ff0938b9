// Package identity knows the agents of machines, to the servers that they speak to. It issues their
// certificates, for a join token at first and then for the certificate before; it says who asks by one, and
// what he may; and it ends what is open when an identity is revoked.
//
// What is known of an agent is in its AgentIdentity. Every replica follows those, so any of them may issue, and any
// refuses what was revoked. The other side is package enroll.
package identity
