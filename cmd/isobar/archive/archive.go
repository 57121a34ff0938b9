// Package archive writes and reads the files of `isobar server backup`: a tar
// whose first entry says what the others are, with their sizes and checksums.
//
// What is read is believed in nothing: an entry that is not announced, that is no
// plain file, that is longer than it may be or that another directory's name is in, is an
// error, and so is what follows the last one.
package archive

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"time"
)

// Snapshot is the name of the first file, which alone may be long: what etcd has.
const Snapshot = "etcd.snapshot"

const (
	format       = "isobar-server-backup"
	version      = 1
	manifestName = "manifest.json"

	maxFiles    = 1000
	maxManifest = 1 << 20  // bytes
	maxFile     = 1 << 20  // bytes, of each file but the snapshot
	maxSnapshot = 16 << 30 // bytes; etcd refuses writes at half of it
	maxName     = 200      // bytes
	maxPadding  = 1 << 20  // bytes of zeros at the end: tar writes blocks
)

// part is what a part of a name may be: no dot or hyphen at its beginning, so neither "." nor "..".
var part = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// A File is one that an archive has.
type File struct {
	Name   string `json:"name"` // slashes, relative to the data directory
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// manifest is the first entry.
type manifest struct {
	Format  string    `json:"format"`
	Version int       `json:"version"`
	Created time.Time `json:"created"`
	Files   []File    `json:"files"`
}

// check says what is wrong with a manifest.
func (m manifest) check() error {
	switch {
	case m.Format != format:
		return fmt.Errorf("format %q: it is no backup of isobar server", m.Format)
	case m.Version != version:
		return fmt.Errorf("version %d: this program reads version %d", m.Version, version)
	case len(m.Files) == 0 || m.Files[0].Name != Snapshot:
		return fmt.Errorf("its first file is not %s", Snapshot)
	case len(m.Files) > maxFiles:
		return fmt.Errorf("%d files: want %d at most", len(m.Files), maxFiles)
	}
	seen := map[string]bool{}
	for i, f := range m.Files {
		most := int64(maxFile)
		if i == 0 {
			most = maxSnapshot
		}
		sum, err := hex.DecodeString(f.SHA256)
		switch {
		case !isName(f.Name) || f.Name == manifestName:
			return fmt.Errorf("file %q: want a plain relative name", f.Name)
		case seen[f.Name]:
			return fmt.Errorf("file %s is there twice", f.Name)
		case f.Size < 0 || f.Size > most:
			return fmt.Errorf("file %s: %d bytes, want %d at most", f.Name, f.Size, most)
		case err != nil || len(sum) != sha256.Size || strings.ToLower(f.SHA256) != f.SHA256:
			return fmt.Errorf("file %s: %q is no checksum", f.Name, f.SHA256)
		}
		seen[f.Name] = true
	}
	return nil
}

func isName(name string) bool {
	if len(name) > maxName || !fs.ValidPath(name) {
		return false
	}
	for p := range strings.SplitSeq(name, "/") {
		if !part.MatchString(p) {
			return false
		}
	}
	return true
}

// A Source is a file to archive.
type Source struct {
	Name string // in the archive
	Path string // where it is
}

// Write writes an archive of files, the first of which is the Snapshot. Each is read
// twice, for its checksum first; one that changes meanwhile is an error. Memory is
// bounded whatever their size.
func Write(w io.Writer, created time.Time, sources []Source) error {
	m := manifest{Format: format, Version: version, Created: created.UTC().Truncate(time.Second)}
	for _, s := range sources {
		size, sum, err := digest(s.Path)
		if err != nil {
			return fmt.Errorf("back up %s: %w", s.Name, err)
		}
		m.Files = append(m.Files, File{s.Name, size, sum})
	}
	if err := m.check(); err != nil { // what cannot be restored is no backup
		return fmt.Errorf("back up: %w", err)
	}
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	out := tar.NewWriter(w)
	if err := add(out, m, manifestName, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	for i, s := range sources {
		if err := addFile(out, m, m.Files[i], s.Path); err != nil {
			return err
		}
	}
	return out.Close()
}

func digest(path string) (int64, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return n, hex.EncodeToString(h.Sum(nil)), err
}

func addFile(out *tar.Writer, m manifest, f File, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("back up %s: %w", f.Name, err)
	}
	defer in.Close()
	h := sha256.New()
	if err := add(out, m, f.Name, f.Size, io.TeeReader(in, h)); err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
		return fmt.Errorf("back up %s: it has changed meanwhile", f.Name)
	}
	return nil
}

func add(out *tar.Writer, m manifest, name string, size int64, from io.Reader) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: m.Created, Format: tar.FormatGNU}
	if err := out.WriteHeader(h); err != nil {
		return fmt.Errorf("back up %s: %w", name, err)
	}
	n, err := io.Copy(out, from)
	if err == nil && n != size {
		err = fmt.Errorf("it has %d bytes, and had %d", n, size)
	}
	if err != nil {
		return fmt.Errorf("back up %s: %w", name, err)
	}
	return nil
}

// Read reads an archive, and calls each with every file in order; what that does not
// read is read after it. A checksum is compared when each has returned, so whoever must
// not act upon a broken archive reads it twice. It returns when the archive was made.
func Read(r io.Reader, each func(File, io.Reader) error) (time.Time, error) {
	in := tar.NewReader(r)
	m, err := readManifest(in)
	if err != nil {
		return time.Time{}, err
	}
	for _, f := range m.Files {
		if err := next(in, f.Name, f.Size); err != nil {
			return time.Time{}, err
		}
		h := sha256.New()
		from := io.TeeReader(in, h)
		if err := each(f, from); err != nil {
			return time.Time{}, fmt.Errorf("%s: %w", f.Name, err)
		}
		if _, err := io.Copy(io.Discard, from); err != nil {
			return time.Time{}, fmt.Errorf("%s: %w", f.Name, err)
		}
		if hex.EncodeToString(h.Sum(nil)) != f.SHA256 {
			return time.Time{}, fmt.Errorf("%s: it does not have its checksum", f.Name)
		}
	}
	if _, err := in.Next(); !errors.Is(err, io.EOF) {
		return time.Time{}, errors.New("there is more than it announces")
	}
	rest, err := io.ReadAll(io.LimitReader(r, maxPadding+1))
	if err != nil {
		return time.Time{}, err
	}
	if len(rest) > maxPadding || len(bytes.Trim(rest, "\x00")) > 0 {
		return time.Time{}, errors.New("something follows its end")
	}
	return m.Created, nil
}

func readManifest(in *tar.Reader) (manifest, error) {
	h, err := in.Next()
	if err != nil {
		return manifest{}, fmt.Errorf("it is no backup: %w", err)
	}
	if h.Size > maxManifest {
		return manifest{}, fmt.Errorf("%s has %d bytes, want %d at most", manifestName, h.Size, maxManifest)
	}
	if err := is(h, manifestName, h.Size); err != nil {
		return manifest{}, err
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return manifest{}, fmt.Errorf("%s: %w", manifestName, err)
	}
	var m manifest
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return manifest{}, fmt.Errorf("%s: %w", manifestName, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return manifest{}, fmt.Errorf("%s: something follows its end", manifestName)
	}
	return m, m.check()
}

// next goes on to the entry that must come now.
func next(in *tar.Reader, name string, size int64) error {
	h, err := in.Next()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return is(h, name, size)
}

// is returns an error unless the header is of that plain file.
func is(h *tar.Header, name string, size int64) error {
	if h.Name != name || h.Size != size || h.Typeflag != tar.TypeReg || h.Linkname != "" || len(h.PAXRecords) > 0 {
		return fmt.Errorf("entry %q of %d bytes: want the plain file %s of %d", h.Name, h.Size, name, size)
	}
	return nil
}
