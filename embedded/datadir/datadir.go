// Package datadir keeps the directory that a control plane owns: private to its
// user, held by one process at a time, its small files replaced in one step.
package datadir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockName is the file that marks a directory as ours and says who holds it.
const lockName = "lock"

// maxHolder bounds what is read of another process's lock file, in bytes.
const maxHolder = 1024

// A Dir is a data directory that this process holds until Close.
type Dir struct {
	path string
	lock *os.File
}

// InUseError says that another process holds the directory.
type InUseError struct {
	Dir    string
	Holder string // what the holder wrote about itself with Describe; may be empty
}

func (e *InUseError) Error() string {
	holder := e.Holder
	if holder == "" {
		holder = "another process"
	}
	return fmt.Sprintf("data directory %s is in use by %s", e.Dir, holder)
}

// Open makes path (mode 0700) when it is missing, and takes hold of it. It
// refuses a directory of another user, and one that has files but no mark of
// ours, since it would otherwise change the mode of somebody's home. When
// another process holds it the error is an *InUseError.
func Open(path string) (*Dir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", path, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	if err := check(abs); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(abs, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of data directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock data directory %s: %w", abs, err)
		}
		holder, _ := io.ReadAll(io.LimitReader(lock, maxHolder)) // the name of the holder is a courtesy
		return nil, &InUseError{Dir: abs, Holder: strings.TrimSpace(string(holder))}
	}
	d := &Dir{path: abs, lock: lock}
	// Only now: the mode of a directory that another process holds is its own affair.
	if err := os.Chmod(abs, 0o700); err != nil {
		d.Close()
		return nil, fmt.Errorf("make data directory private: %w", err)
	}
	return d, nil
}

// check refuses directories that cannot be ours.
func check(abs string) error {
	info, err := os.Stat(abs)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("data directory %s belongs to user %d, not to user %d", abs, st.Uid, os.Geteuid())
	}
	entries, err := os.ReadDir(abs)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if len(entries) == 0 {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(abs, lockName)); err != nil {
		return fmt.Errorf("data directory %s has files and was not made by isobar-control-plane: choose an empty one", abs)
	}
	return nil
}

// Describe records who holds the directory, for the message that a second
// instance gets.
func (d *Dir) Describe(holder string) error {
	if err := d.lock.Truncate(0); err != nil {
		return fmt.Errorf("describe holder of %s: %w", d.path, err)
	}
	if _, err := d.lock.WriteAt([]byte(holder+"\n"), 0); err != nil {
		return fmt.Errorf("describe holder of %s: %w", d.path, err)
	}
	return nil
}

// Path is the absolute path of name in the directory.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// ReadFile reads name. A file that is missing gives an error that is fs.ErrNotExist.
func (d *Dir) ReadFile(name string) ([]byte, error) { return os.ReadFile(d.Path(name)) }

// WriteFile replaces name with data, mode 0600, in one step: after a crash the
// file is the old or the new one, never a part.
func (d *Dir) WriteFile(name string, data []byte) error {
	tmp, err := os.CreateTemp(d.path, "."+name+"-") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", d.Path(name), err)
	}
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), d.Path(name))
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("write %s: %w", d.Path(name), err)
	}
	return syncDir(d.path)
}

// syncDir has the names of a directory outlive a power cut: an authority that is
// forgotten while what it signed is not would lock out its clients.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

// Close lets go of the directory. The lock file stays: it marks the directory
// as ours, and removing it would let two processes lock two files of one name.
func (d *Dir) Close() error {
	_ = d.lock.Truncate(0) // a stale holder would only mislead
	return d.lock.Close()
}
