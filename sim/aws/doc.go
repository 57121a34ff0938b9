// Package aws stands in for Amazon EC2, STS, RDS and Elastic Load Balancing: it serves their wire protocols from memory and
// answers, by EC2's own semantics, whether a flow passes.
//
// It exists so that a driver for EC2 can be run, demonstrated and broken on purpose without an
// account. It is written from EC2's documents and from what its clients expect, and knows nothing
// of the driver that it judges. It tries to be never kinder than EC2: quotas, token buckets,
// eventual consistency, paging, signatures, permissions and all-or-nothing writes are on unless
// Options says otherwise, and what it does not know is refused, never ignored.
//
// One [Cloud] holds any number of accounts and regions behind one [http.Handler]; account, region
// and service come from the request's signature. [Estate] is the cloud written down, as a seed and
// as saved state. [Cloud.Reach] is the judge. Paths under /_sim/ are for tests and demonstrations:
// they answer loopback peers only.
package aws
