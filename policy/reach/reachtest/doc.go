// Package reachtest is the slow twin of package reach, for its tests: it asks a
// Judge about every two classes of workloads, one after the other.
package reachtest
