// Package wire has what is between a controller and its agents in tests of faults: networks that fail as
// networks do, and controllers of other versions.
package wire
