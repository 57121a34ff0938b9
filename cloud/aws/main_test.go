package aws_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// The tests make many small worlds, of which little is alive at any time: the collector
// would run for every few megabytes, and take half of the processor.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}
