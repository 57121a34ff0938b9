// Package flat turns an ordered list of rules into the set of what it allows,
// for targets that know neither order nor denial, and tells it as Steps to those
// that do.
//
// What the flat form cannot tell (a DNS name, a payload, a source port) it
// treats as [policy.Evaluate] does where a flow does not tell it: the strictest
// answer holds. So an Allow that needs it is left out, a Drop closes its whole
// match, and a Refusal says so.
package flat
