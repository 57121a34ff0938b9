package antrea

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/api/wire"
)

// A state file has a mark, a version, the length of its body, a checksum of all this and
// the body, and the body: the name of the Node and the objects in protobuf.
const (
	fileName    = "controlplane.state"
	fileMark    = "isobarCP"
	fileVersion = 1
	fileHead    = len(fileMark) + 4 + 8 + sha256.Size
	// maxFile bounds what is read: a million members are a tenth of it.
	maxFile = 1 << 30
)

// The fields of the body.
const (
	fieldNode = iota + 1
	fieldPolicy
	fieldAppliedTo
	fieldAddresses
	fieldPosition // of the State, as text; not there where it is not known
)

// writeState replaces the state file of a directory as a whole, or leaves it as it is.
// It can be read by its owner alone.
func writeState(dir, node string, state convert.ControlPlane, at controlplanev1beta2.Position) (err error) {
	body := protowire.AppendString(protowire.AppendTag(nil, fieldNode, protowire.BytesType), node)
	add := func(num protowire.Number, m interface{ Marshal() ([]byte, error) }) {
		b, failed := m.Marshal()
		err = errors.Join(err, failed)
		body = protowire.AppendBytes(protowire.AppendTag(body, num, protowire.BytesType), b)
	}
	for i := range state.Policies {
		add(fieldPolicy, &state.Policies[i])
	}
	for i := range state.AppliedTo {
		add(fieldAppliedTo, &state.AppliedTo[i])
	}
	for i := range state.Addresses {
		add(fieldAddresses, &state.Addresses[i])
	}
	if err != nil {
		return err
	}
	if at.Cluster != "" {
		body = protowire.AppendString(protowire.AppendTag(body, fieldPosition, protowire.BytesType), at.String())
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, fileName+".*") // for its owner alone
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(append(fileHeader(body), body...))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, fileName)); err != nil {
		return err
	}
	return syncDir(dir)
}

// aheadName is that of the file that is there while what was given out is newer than the
// state file. Who starts then without a controller does not know what is enforced; the state
// file would take it back. It is not synced: what is enforced is gone, too, when a machine
// loses its power.
const aheadName = "controlplane.ahead"

// errAhead says that the state file is not of the last State.
var errAhead = errors.New("is older than what was enforced last")

// markAhead says that the state file is not of the last State from now on. Where that
// cannot be said, there is no state file any more.
func markAhead(dir string) error {
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		var f *os.File
		if f, err = os.OpenFile(filepath.Join(dir, aheadName), os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
			return f.Close()
		}
	}
	if failed := os.Remove(filepath.Join(dir, fileName)); failed != nil && !errors.Is(failed, fs.ErrNotExist) {
		err = errors.Join(err, failed)
	}
	return err
}

// unmarkAhead says that the state file is of the last State.
func unmarkAhead(dir string) error {
	if err := os.Remove(filepath.Join(dir, aheadName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// isLast says whether the state file is of the last State. Where nothing can be written
// that is not known, for nothing could be said of it.
func isLast(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, aheadName)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s: %w", filepath.Join(dir, fileName), errAhead), err)
	}
	f, err := os.CreateTemp(dir, fileName+".*")
	if err != nil {
		return fmt.Errorf("whether what is kept is the last: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func fileHeader(body []byte) []byte {
	head := binary.BigEndian.AppendUint32([]byte(fileMark), fileVersion)
	head = binary.BigEndian.AppendUint64(head, uint64(len(body)))
	sum := sha256.New()
	sum.Write(head)
	sum.Write(body)
	return sum.Sum(head)
}

// readState reads what writeState has written for a Node. The error is fs.ErrNotExist
// where nothing was; whatever else is wrong, nothing of the file is to be used.
func readState(dir, node string) (out convert.ControlPlane, at controlplanev1beta2.Position, err error) {
	name := filepath.Join(dir, fileName)
	f, err := os.Open(name)
	if err != nil {
		return out, at, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return out, at, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 {
		return out, at, fmt.Errorf("%s: mode %v: want a file that nobody else can write", name, info.Mode())
	}
	if info.Size() > maxFile {
		return out, at, fmt.Errorf("%s: %d bytes are more than %d", name, info.Size(), maxFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return out, at, err
	}
	out, at, err = parseState(text, node)
	if err != nil {
		return convert.ControlPlane{}, controlplanev1beta2.Position{}, fmt.Errorf("%s: %w", name, err)
	}
	return out, at, nil
}

func parseState(text []byte, node string) (out convert.ControlPlane, at controlplanev1beta2.Position, err error) {
	if len(text) < fileHead || string(text[:len(fileMark)]) != fileMark {
		return out, at, errors.New("is no state file")
	}
	if v := binary.BigEndian.Uint32(text[len(fileMark):]); v != fileVersion {
		return out, at, fmt.Errorf("is of version %d, and this is %d", v, fileVersion)
	}
	if body := text[fileHead:]; !bytes.Equal(text[:fileHead], fileHeader(body)) {
		return out, at, errors.New("is damaged")
	}
	isNode := false
	err = fields("state", text[fileHead:], func(f wire.Field) error {
		switch f.Number {
		case fieldNode:
			isNode = string(f.Bytes) == node
			return nil
		case fieldPolicy:
			out.Policies = append(out.Policies, controlplanev1beta2.NetworkPolicy{})
			return wire.Message(f, &out.Policies[len(out.Policies)-1])
		case fieldAppliedTo:
			out.AppliedTo = append(out.AppliedTo, controlplanev1beta2.AppliedToGroup{})
			return wire.Message(f, &out.AppliedTo[len(out.AppliedTo)-1])
		case fieldAddresses:
			out.Addresses = append(out.Addresses, controlplanev1beta2.AddressGroup{})
			return wire.Message(f, &out.Addresses[len(out.Addresses)-1])
		case fieldPosition:
			at, err = controlplanev1beta2.ParsePosition(string(f.Bytes))
			return err
		}
		return fmt.Errorf("field %d is not known", f.Number)
	})
	if err == nil && !isNode {
		err = errors.New("is of another Node")
	}
	return out, at, err
}

// isAbsent says whether there is simply no state file yet.
func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// Kept returns what a Source of a Node keeps in its Dir. It is an error that nothing is there, or not the last
// that it has given out.
func Kept(dir, node string) (*convert.Reading, error) {
	state, _, err := readState(dir, node)
	if err == nil {
		err = isLast(dir)
	}
	if err != nil {
		return nil, err
	}
	in := newIntake(targetOf(node))
	if err := hold(in.reader, state); err != nil {
		return nil, err
	}
	return in.reader.Reading(), nil
}

// CopyKept copies what a Source keeps in its Dir to another directory, if it is the last that it has given out, and
// still says so afterwards. Otherwise the other directory stays as it is.
func CopyKept(from, to string, still func() bool) (err error) {
	if err := isLast(from); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(from, fileName))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(to, fileName+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := isLast(from); err != nil {
		return err
	}
	if !still() {
		return errAhead
	}
	if err := os.Rename(f.Name(), filepath.Join(to, fileName)); err != nil {
		return err
	}
	return syncDir(to)
}
