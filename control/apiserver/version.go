package apiserver

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// version is a resourceVersion: a count in the upper bits and, in the lower, a
// mark of the process that counts. The count begins with the time of the start,
// so that versions grow over restarts; at 256 in a millisecond changes cannot
// outrun it. By the mark a version of another replica, or of a clock that has
// since been set back, is not taken for one of ours.
type version uint64

const (
	markBits   = 12
	startShift = 8
)

// firstVersion is the version at a start.
func firstVersion() version {
	return version(uint64(time.Now().UnixMilli())<<startShift<<markBits | rand.Uint64N(1<<markBits))
}

func (v version) next() version { return v + 1<<markBits }

// isOf says whether v and o were counted by the same process.
func (v version) isOf(o version) bool { return v&(1<<markBits-1) == o&(1<<markBits-1) }

func (v version) String() string { return strconv.FormatUint(uint64(v), 10) }

// parseVersion parses a resourceVersion; "" and "0" are 0, which is any.
func parseVersion(s string) (version, error) {
	if s == "" {
		return 0, nil
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("invalid resource version %q", s)
	}
	return version(v), nil
}
