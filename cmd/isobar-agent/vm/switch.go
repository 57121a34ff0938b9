package vm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"isobar.dev/dataplane/nft"
	"isobar.dev/plan"
	"isobar.dev/policy"
)

// DefaultStateDir is where the agent of a VM keeps what it has to know after a restart.
const DefaultStateDir = "/var/lib/isobar-agent"

// Files of the state directory.
const (
	policiesDir = "policies"
	goodDir     = "good"
	offFile     = "off"      // there: the machine is switched off
	leaveFile   = "leaving"  // there: it is to be switched off
	lockFile    = "lock"     // held by who writes the table
	runningFile = "running"  // held by the agent that runs
	hadFile     = "enforced" // there: the machine has had rules
)

// mode is what the table is made of.
type mode uint8

const (
	modeRules    mode = iota + 1 // of the policies
	modeOpen                     // no rules; but connections are followed
	modeClosed                   // nothing passes but what always does
	modeOff                      // there is no table
	modeStay                     // that which is there stays; without one, modeClosed
	modeStayOpen                 // the same, but modeOpen
)

// table is the one who writes this machine's table: an [agent.Enforcer] that can be switched off by a file, also
// while no agent runs. Each write is made under a lock that whoever switches has, too.
type table struct {
	dir    string
	syncer *plan.Syncer

	mu   sync.Mutex
	mode mode // of the write that is under way, or of the last
}

// now returns the mode of the write that is under way.
func (t *table) now() mode { return t.mode } // asked by the driver, while t.mu is held

// isOtherThan says whether the last write was of a machine that is on, when it is off, or the other way round.
func (t *table) isOtherThan(isOff bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mode != 0 && (t.mode == modeOff) != isOff
}

// Sync makes the kernel enforce rs, or nothing where the machine is switched off.
func (t *table) Sync(ctx context.Context, rs policy.Ruleset) (plan.Report, error) {
	return t.write(ctx, rs, modeRules, nil)
}

// Forget makes the next write read the kernel anew.
func (t *table) Forget() { t.syncer.Forget() }

// errLate says that something else is to be written by now.
var errLate = errors.New("there are rules by now")

// write writes the table in a mode, if still says so when it is its turn.
func (t *table) write(ctx context.Context, rs policy.Ruleset, m mode, still func() bool) (plan.Report, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	unlock, err := lock(t.dir)
	if err == nil {
		defer unlock()
	} // and where there can be no lock, nobody can have switched it off
	if still != nil && !still() {
		return plan.Report{}, errLate
	}
	if IsOff(t.dir) {
		m = modeOff
	}
	if m != modeRules {
		rs = policy.Ruleset{Target: rs.Target}
	}
	t.mode = m
	return t.syncer.Sync(ctx, rs)
}

// lock waits until nobody else writes the table.
func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); err != unix.EINTR {
			return err
		}
	}
}

// IsOff says whether the machine is switched off. What cannot be read is no such word.
func IsOff(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, offFile))
	return err == nil
}

// Off switches the machine off until On: it takes away Isobar's table, and nothing else, and an agent
// writes none any more, however often it starts. No agent needs to run, and no server. netNS is the machine's network
// namespace, or 0 for the caller's.
func Off(ctx context.Context, dir string, netNS int) error {
	return leaveNow(ctx, dir, netNS, EndedAtOnce, nil)
}

// takeAway deletes the table, if it is there and Isobar's.
func takeAway(ctx context.Context, netNS int) error {
	d := nft.NewDriver(nft.Config{NetNS: netNS, Place: func() nft.Place { return nft.Place{Locals: []nft.Local{}} }})
	defer d.Close()
	_, err := plan.NewSyncer("", d).Sync(ctx, policy.Ruleset{})
	return err
}

// On undoes Off and Leave. The agent enforces again within a second, where one runs.
func On(dir string) error {
	unlock, err := lock(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	// The wish to be off first: alone it would be fulfilled anew.
	for _, name := range []string{leaveFile, offFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := syncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// touch makes an empty file, which is there after a crash, too.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), syncDir(filepath.Dir(path)))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ErrRunning says that an agent of the state directory runs.
var ErrRunning = errors.New("an agent runs with this state directory")

// claim returns when no other agent runs with a state directory, or with [ErrRunning].
func claim(dir string) (release func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, runningFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("%s: %w", dir, ErrRunning)
		}
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// IsRunning says whether an agent runs with a state directory.
func IsRunning(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, runningFile), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(flock(f, unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
}

// Uninstall leaves the machine as it was before: it takes away the table, and of the state directory what an agent
// has made there. More names the files in it that are others', such as those of the machine's identity.
func Uninstall(ctx context.Context, dir string, netNS int, more ...string) error {
	release, err := claim(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		defer release()
	}
	if err := takeAway(ctx, netNS); err != nil {
		return err
	}
	var errs []error
	for _, name := range append([]string{policiesDir, goodDir, hadFile, lockFile, offFile, leaveFile, leaveFile + ".next", runningFile}, more...) {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// hadRules says whether a machine has had rules, of which perhaps nothing can be read any more.
func hadRules(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, hadFile)); !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	list, err := os.ReadDir(filepath.Join(dir, policiesDir))
	return len(list) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist)
}
