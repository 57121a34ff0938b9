// Package azure stands in for Microsoft Entra's tokens and for Azure Resource Manager with networks and
// virtual machines: it serves their wire protocols from memory and answers, by Azure's own semantics,
// whether a flow passes.
//
// It exists so that a driver for Azure can be run, demonstrated and broken on purpose without a
// subscription. It is written from Azure's documents and from what its clients expect, and knows nothing
// of the driver that it judges. It tries to be never kinder than Azure: tokens, rights, quotas, token
// buckets, long-running operations, ETags and paging are on unless Options says otherwise, and what it
// does not know is refused, never ignored.
//
// One [Cloud] holds any number of tenants and subscriptions behind one [http.Handler]. [Estate] is the
// cloud written down, as a seed and as saved state. [Cloud.Reach] is the judge. Paths under /_sim/ are
// for tests and demonstrations: they answer loopback peers only.
package azure
