package nodes

import (
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 9 0 1000 4096000 3 more"
	for _, text := range []string{"7 (isobar)" + rest, "7 (a ) (b) c)" + rest} {
		u, err := parseStat([]byte(text))
		if err != nil || u.CPU != 2*time.Second || u.Memory <= 0 || u.Memory%3 != 0 {
			t.Errorf("parseStat(%q) = %+v, %v", text, u, err)
		}
	}
	for _, text := range []string{"", "7 (isobar) S 1 2", strings.Replace("7 (isobar)"+rest, "150", "x", 1)} {
		if u, err := parseStat([]byte(text)); err == nil {
			t.Errorf("parseStat(%q) = %+v", text, u)
		}
	}
}
