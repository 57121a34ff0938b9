// Package replicas runs replicas of the controller in processes of their own, which tests of faults kill and stop.
// They are processes of the test's binary.
package replicas
