// Package nodes has the faults that Nodes have to survive, each as a test of a whole
// cluster: the API server, the controller, the agents' processes, the CNI plugin's, the
// kernel's rules and the packets are real. Machines and Pods are network namespaces.
//
// Pods try each other by TCP, UDP and ICMP all the while, by connections that begin and by
// connections that were there before. Each answer, and each silence, is held against
// policy.Evaluate of the worlds that there may have been at its time: during a change those
// before and after it, and after it the last alone. A silence where all of them allow, and
// an answer where all deny, is a wrong one, and there has to be none:
//
//	I1  nothing passes that all of these worlds deny;
//	I2  nothing is lost that all of them allow, and no connection breaks that has passed;
//	I3  in the end each Node's table is exactly that of the last world;
//	I4  what an agent says of itself is true.
//
// What is scaled for CI, and can have its size by ISOBAR_FAULTS=full:
//
//	F1   agents are killed 24 times; full: 200; ISOBAR_FAULTS_KILLS has another number
//	F3   two files are damaged; full: three
//	F4   the API server is away for 3 s; full: ten minutes
//	F9   one leader is killed, and another cut off for as long as its Lease lasts; full: 20, and 30 s longer
//	F10  a connection that is dead is found so after 2 s in place of 45 s
//	F13  a policy flaps for 3 s; full: for a minute
//	F20  60 Pods are added and removed, 16 at a time; full: 500; ISOBAR_FAULTS_PODS has another number
package nodes
