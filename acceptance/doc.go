// Package acceptance has the scenarios that a user of Nephe would try, each as one test for
// AWS and one for Azure, TestA06_Azure…: the API server is real, the controller is wired as
// the command wires it, and the cloud is sim/aws or sim/azure behind a socket, which also
// judges who reaches whom.
//
// A test makes a world, which is a namespace, a simulated cloud and a controller of its
// own, so that all run at once:
//
//	w := newWorld(t, estate(network{id: "vpc-1", vms: []vm{{name: "web"}, {name: "db"}}}))
//	w.start()
//	w.account()
//	w.importAll()
//	w.apply(`...`)
//	w.eventuallyReach(`
//	FROM \ TO  db:5432  db:22
//	web        .        X
//	`)
//	w.settle()
//
// Where a scenario is the same in both clouds it is one function of a provider, which makes
// the world.
//
// Worlds share the API server and its webhooks. A controller sees the accounts and
// selectors of its namespaces, and policies of all: one that is cluster-scoped must select
// the world's namespace. The runtime API is served by a server for each world, which
// runtimeAPI reaches without aggregation; aggregated is for the tests of that.
package acceptance
