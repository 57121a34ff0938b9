// Package agents has the faults that a policy controller and the agents of Nodes have to
// survive, each as a test: the connections are real, with TLS, the agents' client is
// source/antrea, and the API server is real where the fault is one of it.
//
// What an agent enforces is the Ruleset of its last State. A probe looks at it whenever it
// changes, and holds the verdict of each flow against policy.Evaluate of the worlds that
// there have been since the last quiet moment, in their order:
//
//	I1  nothing is allowed that all of these worlds deny;
//	I2  nothing is denied that all of these worlds allow;
//	    and no flow goes back to the verdict of a world before;
//	I3  in the end every agent has exactly the table of the last world;
//	I4  the status of a policy says so, and not before.
//
// There are two ways to a world. A hub serves one that a test gives it, without an API
// server's objects, so that it may be large. Replicas are whole controllers, in processes of
// their own where they are killed, behind one address that spreads connections as a
// Service does.
//
// What is scaled for CI, and can have its size by ISOBAR_FAULTS=full:
//
//	F4   the API server is away for 3 s, not for 10 minutes
//	F9   three leaders are killed, each as soon as all is well; full: for 10 minutes, one every 20 s, with the Lease's own times
//	F10  a connection that is stalled is found dead after 6 s in place of 45 s
//	F13  2,000 changes as fast as they go; full: 100 a second for 10 minutes
//	F20  21,000 Pods and 2,100 policies are deleted at once; full: 102,000 and 10,200
package agents
