package antrea_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/source/antrea"
)

const stateFile, aheadFile = "controlplane.state", "controlplane.ahead"

// keep has a Source write a State to dir, and returns the file.
func keep(t *testing.T, dir string, state convert.ControlPlane) []byte {
	t.Helper()
	inBubble(t, antrea.Options{Dir: dir}, has(state), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		is(t, s, state)
		if err := s.Status().DirErr; err != nil {
			t.Fatal(err)
		}
	})
	text, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// away has a Source start with a directory and without a controller.
func away(t *testing.T, dir string, f func(t *testing.T, c *controller, s *antrea.Source)) {
	t.Helper()
	inBubble(t, antrea.Options{Dir: dir}, refusing(503), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(4 * time.Second)
		if s.State() != nil {
			t.Error("the controller was given no time")
		}
		pass(time.Minute)
		f(t, c, s)
	})
}

// A start without a controller goes on with the last State; when the controller is back
// and says the same, nobody is told.
func TestKeptState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	keep(t, dir, sample())
	for _, name := range []string{dir, filepath.Join(dir, stateFile)} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v, %v: others may read it", name, info.Mode(), err)
		}
	}
	away(t, dir, func(t *testing.T, c *controller, s *antrea.Source) {
		is(t, s, sample())
		<-s.Synced()
		was := s.State()
		if !was.Kept || !news(s) {
			t.Errorf("kept %t", was.Kept)
		}
		c.set(sample())
		c.with(func(c *controller) { clear(c.refuse) })
		pass(time.Minute)
		if st := s.State(); st.Kept || st.Reading != was.Reading || news(s) {
			t.Errorf("kept %t, or what is equal was told", st.Kept)
		}
		now := with(sample(), func(in *convert.ControlPlane) { in.Policies = nil })
		c.set(now, resources...)
		pass(time.Minute)
		is(t, s, now)
	})
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
	away(t, dir, func(t *testing.T, _ *controller, s *antrea.Source) {
		is(t, s, with(sample(), func(in *convert.ControlPlane) { in.Policies = nil }))
	})
}

// A State of which the controller has replaced a part is not given out before it is
// whole: it would be of two times.
func TestKeptStateIsNotMixed(t *testing.T) {
	dir := t.TempDir()
	keep(t, dir, sample())
	inBubble(t, antrea.Options{Dir: dir}, func(c *controller) {
		refusing(503)(c)
		delete(c.refuse, "networkpolicies")
	}, func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		is(t, s, sample())
		if !s.State().Kept {
			t.Error("is said to be the controller's")
		}
	})
}

// What is kept is what was given out, and not what is held while a watch is broken.
func TestKeptStateIsWhole(t *testing.T) {
	dir := t.TempDir()
	ranked := func(n int32, ip string) convert.ControlPlane {
		return with(sample(), func(in *convert.ControlPlane) {
			in.Policies[0].Rules[0].Priority = n
			in.Addresses[0] = addressGroup("web", member("w1", ip))
		})
	}
	inBubble(t, antrea.Options{Dir: dir}, has(sample()), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		c.set(ranked(1, "10.0.0.1"), resources...)
		pass(time.Second) // it is written
		c.set(ranked(2, "10.0.0.2"), resources...)
		pass(time.Second) // it waits to be written
		is(t, s, ranked(2, "10.0.0.2"))
		c.with(func(c *controller) { c.refuse["addressgroups"] = 503 })
		c.cut("addressgroups")
		pass(0)
		c.set(ranked(3, "10.0.0.3"), resources...)
		pass(time.Minute)
	})
	got, _, err := antrea.ReadState(dir, "node-1")
	if err != nil || got.Policies[0].Rules[0].Priority == 3 {
		t.Errorf("%v: a policy of now is kept with groups of then: %+v", err, got)
	}
}

// What is not just what was written is told, and not used.
func TestSpoiledState(t *testing.T) {
	dir := t.TempDir()
	good := keep(t, dir, sample())
	flipped := func(i int) []byte {
		b := bytes.Clone(good)
		b[i] ^= 1
		return b
	}
	newer := bytes.Clone(good)
	binary.BigEndian.PutUint32(newer[8:], 2)
	type spoiled struct {
		name string
		text []byte
		told string
	}
	rows := []spoiled{
		{"empty", nil, "no state file"},
		{"something else", []byte(strings.Repeat("x", 500)), "no state file"},
		{"newer", newer, "version 2"},
		{"longer", append(bytes.Clone(good), 0), "damaged"},
	}
	for _, n := range []int{10, 40, 60, len(good) - 1} {
		rows = append(rows, spoiled{"truncated", good[:n], ""})
	}
	for i := range good {
		if i < 60 || i%7 == 0 {
			rows = append(rows, spoiled{"flipped", flipped(i), ""})
		}
	}
	for _, tt := range rows {
		if err := os.WriteFile(filepath.Join(dir, stateFile), tt.text, 0o600); err != nil {
			t.Fatal(err)
		}
		away(t, dir, func(t *testing.T, _ *controller, s *antrea.Source) {
			err := s.Status().DirErr
			if s.State() != nil || err == nil || !strings.Contains(err.Error(), tt.told) {
				t.Errorf("%s (%d bytes): told %v, State %v", tt.name, len(tt.text), err, s.State())
			}
		})
	}
	// Of another Node, or where others may write.
	name := filepath.Join(dir, stateFile)
	if err := errors.Join(os.WriteFile(name, good, 0o600), os.Chmod(name, 0o620)); err != nil {
		t.Fatal(err)
	}
	away(t, dir, func(t *testing.T, _ *controller, s *antrea.Source) {
		if err := s.Status().DirErr; s.State() != nil || err == nil || !strings.Contains(err.Error(), "nobody else") {
			t.Errorf("a file that others may write: %v", err)
		}
	})
}

// A directory that cannot be written is told; enforcing goes on.
func TestUnwritableDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	inBubble(t, antrea.Options{Dir: file}, has(sample()), func(t *testing.T, c *controller, s *antrea.Source) {
		pass(time.Minute)
		is(t, s, sample())
		if s.Status().DirErr == nil {
			t.Error("what cannot be written is not told")
		}
	})
}

// A State is not kept as soon as it is given out. What was kept before it is not the last one
// then, and would take back what is enforced.
func TestKeptStateIsTheLast(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, dir string){
		"killed": func(*testing.T, string) {},
		"killed, and the mark could not be made": func(t *testing.T, dir string) {
			if err := os.Mkdir(filepath.Join(dir, aheadFile), 0o700); err != nil { // in whose place no file can be
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			now := with(sample(), func(in *convert.ControlPlane) { in.Policies = nil })
			crashed := filepath.Join(t.TempDir(), "crashed")
			inBubble(t, antrea.Options{Dir: dir}, has(sample()), func(t *testing.T, c *controller, s *antrea.Source) {
				pass(time.Minute)
				c.set(with(sample(), func(in *convert.ControlPlane) {
					in.Addresses = []controlplanev1beta2.AddressGroup{addressGroup("web", member("w1", "10.0.0.9"))}
				}), resources...)
				pass(time.Second) // it is written
				spoil(t, dir)
				c.set(now, resources...)
				pass(time.Second) // it waits to be written
				is(t, s, now)
				if err := os.CopyFS(crashed, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
			})
			if info, err := os.Stat(filepath.Join(crashed, aheadFile)); err != nil {
				t.Fatal(err)
			} else if info.IsDir() { // which was only in the way
				if err := os.Remove(filepath.Join(crashed, aheadFile)); err != nil {
					t.Fatal(err)
				}
			}
			away(t, crashed, func(t *testing.T, _ *controller, s *antrea.Source) {
				if s.State() != nil {
					t.Errorf("a State of before: %+v", s.State().Policies)
				}
			})
		})
	}
}
