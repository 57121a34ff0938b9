package archive_test

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/cmd/isobar/archive"
)

var created = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sample is an archive with these files besides a snapshot.
func sample(t testing.TB, files map[string]string, order ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	var sources []archive.Source
	for _, name := range append([]string{archive.Snapshot}, order...) {
		text, ok := files[name]
		if !ok {
			text = "the content of " + name
		}
		path := filepath.Join(dir, strings.ReplaceAll(name, "/", "+"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		sources = append(sources, archive.Source{Name: name, Path: path})
	}
	var out bytes.Buffer
	if err := archive.Write(&out, created, sources); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func read(text []byte) (map[string]string, time.Time, error) {
	got := map[string]string{}
	at, err := archive.Read(bytes.NewReader(text), func(f archive.File, r io.Reader) error {
		b, err := io.ReadAll(r)
		got[f.Name] = string(b)
		return err
	})
	return got, at, err
}

func TestReadWhatWasWritten(t *testing.T) {
	text := sample(t, map[string]string{"control-plane/port": ""}, "control-plane/ca.pem", "control-plane/port", "webhook/webhook-ca.pem")
	got, at, err := read(text)
	if err != nil || !at.Equal(created) {
		t.Fatalf("Read = %v, %v; want %v", at, err, created)
	}
	want := map[string]string{
		archive.Snapshot: "the content of " + archive.Snapshot, "control-plane/ca.pem": "the content of control-plane/ca.pem",
		"control-plane/port": "", "webhook/webhook-ca.pem": "the content of webhook/webhook-ca.pem",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if again := sample(t, map[string]string{"control-plane/port": ""}, "control-plane/ca.pem", "control-plane/port", "webhook/webhook-ca.pem"); !bytes.Equal(text, again) {
		t.Error("the same files gave other bytes")
	}
	// What nobody reads is checked all the same.
	if _, err := archive.Read(bytes.NewReader(text), func(archive.File, io.Reader) error { return nil }); err != nil {
		t.Error(err)
	}
}

// Every archive that is cut off, or in which one bit is another, is refused, or the bit means nothing.
func TestBrokenArchivesAreRefused(t *testing.T) {
	text := sample(t, nil, "control-plane/ca.pem")
	want, _, err := read(text)
	if err != nil {
		t.Fatal(err)
	}
	end := bytes.LastIndex(text, []byte("the content of control-plane/ca.pem")) + 30
	for n := range end {
		if _, _, err := read(text[:n]); err == nil {
			t.Fatalf("the first %d bytes of %d were taken", n, len(text))
		}
	}
	for i := range text {
		broken := bytes.Clone(text)
		broken[i] ^= 1
		got, _, err := read(broken)
		if d := cmp.Diff(want, got); err == nil && d != "" {
			t.Errorf("with another bit in byte %d: %s", i, d)
		}
	}
}

type entry struct {
	header tar.Header
	text   string
}

// made is an archive as nobody should make one.
func made(t testing.TB, files []archive.File, entries ...entry) []byte {
	t.Helper()
	text, err := json.Marshal(map[string]any{"format": "isobar-server-backup", "version": 1, "created": created, "files": files})
	if err != nil {
		t.Fatal(err)
	}
	return madeOf(t, string(text), entries...)
}

func madeOf(t testing.TB, manifest string, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range append([]entry{{tar.Header{Typeflag: tar.TypeReg, Name: "manifest.json"}, manifest}}, entries...) {
		if e.header.Typeflag == tar.TypeReg {
			e.header.Size = int64(len(e.text))
		}
		if err := w.WriteHeader(&e.header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestHostileArchivesAreRefused(t *testing.T) {
	file := func(name, text string) archive.File {
		sum := sha256.Sum256([]byte(text))
		return archive.File{Name: name, Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}
	}
	plain := func(name, text string) entry { return entry{tar.Header{Typeflag: tar.TypeReg, Name: name}, text} }
	snap, snapEntry := file(archive.Snapshot, "s"), plain(archive.Snapshot, "s")
	many := []archive.File{snap}
	manyEntries := []entry{snapEntry}
	for i := range 1000 {
		name := "f" + strings.Repeat("x", i%50) + "/" + string(rune('a'+i%26)) + strings.Repeat("y", i/26)
		many, manyEntries = append(many, file(name, "")), append(manyEntries, plain(name, ""))
	}
	good := made(t, []archive.File{snap, file("a/b", "text")}, snapEntry, plain("a/b", "text"))
	if _, _, err := read(good); err != nil {
		t.Fatalf("what the others differ from: %v", err)
	}
	long := strings.Repeat("x", 1<<20+1)
	for name, text := range map[string][]byte{
		"nothing":                  nil,
		"no tar":                   []byte(strings.Repeat("no tar", 200)),
		"path upwards":             made(t, []archive.File{snap, file("../b", "text")}, snapEntry, plain("../b", "text")),
		"path upwards, in between": made(t, []archive.File{snap, file("a/../../b", "text")}, snapEntry, plain("a/../../b", "text")),
		"absolute path":            made(t, []archive.File{snap, file("/b", "text")}, snapEntry, plain("/b", "text")),
		"hidden file":              made(t, []archive.File{snap, file("a/.b", "text")}, snapEntry, plain("a/.b", "text")),
		"backslash":                made(t, []archive.File{snap, file(`a\b`, "text")}, snapEntry, plain(`a\b`, "text")),
		"empty name":               made(t, []archive.File{snap, file("", "text")}, snapEntry, plain("", "text")),
		"long name":                made(t, []archive.File{snap, file(strings.Repeat("x", 201), "")}, snapEntry, plain(strings.Repeat("x", 201), "")),
		"link":                     made(t, []archive.File{snap, file("a", "")}, snapEntry, entry{tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc"}, ""}),
		"hard link":                made(t, []archive.File{snap, file("a", "")}, snapEntry, entry{tar.Header{Typeflag: tar.TypeLink, Name: "a", Linkname: "/etc/passwd"}, ""}),
		"directory":                made(t, []archive.File{snap, file("a", "")}, snapEntry, entry{tar.Header{Typeflag: tar.TypeDir, Name: "a"}, ""}),
		"device":                   made(t, []archive.File{snap, file("a", "")}, snapEntry, entry{tar.Header{Typeflag: tar.TypeChar, Name: "a"}, ""}),
		"twice":                    made(t, []archive.File{snap, file("a", "1"), file("a", "1")}, snapEntry, plain("a", "1"), plain("a", "1")),
		"not announced":            made(t, []archive.File{snap}, snapEntry, plain("a", "1")),
		"missing":                  made(t, []archive.File{snap, file("a", "1")}, snapEntry),
		"another order":            made(t, []archive.File{snap, file("a", "1"), file("b", "1")}, snapEntry, plain("b", "1"), plain("a", "1")),
		"another name":             made(t, []archive.File{snap, file("a", "1")}, snapEntry, plain("b", "1")),
		"another size":             made(t, []archive.File{snap, file("a", "1")}, snapEntry, plain("a", "12")),
		"another text":             made(t, []archive.File{snap, file("a", "1")}, snapEntry, plain("a", "2")),
		"no snapshot":              made(t, []archive.File{file("a", "1")}, plain("a", "1")),
		"snapshot later":           made(t, []archive.File{file("a", "1"), snap}, plain("a", "1"), snapEntry),
		"no files":                 made(t, nil),
		"too many":                 made(t, many, manyEntries...),
		"too long":                 made(t, []archive.File{snap, file("a", long)}, snapEntry, plain("a", long)),
		"negative size":            made(t, []archive.File{{Name: archive.Snapshot, Size: -1, SHA256: snap.SHA256}}, snapEntry),
		"no checksum":              made(t, []archive.File{{Name: archive.Snapshot, Size: 1}}, snapEntry),
		"something after it":       append(bytes.Clone(good), "more"...),
		"another archive after it": append(bytes.Clone(good), good...),
		"another format":           madeOf(t, `{"format":"x","version":1,"files":[{"name":"etcd.snapshot","size":1,"sha256":"`+snap.SHA256+`"}]}`, snapEntry),
		"another version":          madeOf(t, `{"format":"isobar-server-backup","version":2,"files":[{"name":"etcd.snapshot","size":1,"sha256":"`+snap.SHA256+`"}]}`, snapEntry),
		"unknown key":              madeOf(t, `{"format":"isobar-server-backup","version":1,"more":1,"files":[{"name":"etcd.snapshot","size":1,"sha256":"`+snap.SHA256+`"}]}`, snapEntry),
		"two manifests":            madeOf(t, `{"format":"isobar-server-backup","version":1,"files":[{"name":"etcd.snapshot","size":1,"sha256":"`+snap.SHA256+`"}]}{}`, snapEntry),
		"long manifest":            madeOf(t, strings.Repeat(" ", 1<<20)+`{"format":"isobar-server-backup","version":1,"files":[{"name":"etcd.snapshot","size":1,"sha256":"`+snap.SHA256+`"}]}`, snapEntry),
	} {
		if _, _, err := read(text); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
}

// What is read without an error has plain names and what it says, whatever the bytes are.
func FuzzRead(f *testing.F) {
	f.Add(sample(f, nil, "control-plane/ca.pem"))
	f.Add(madeOf(f, `{"format":"isobar-server-backup","version":1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		files, _, err := read(text)
		if err != nil {
			return
		}
		for name := range files {
			if !filepath.IsLocal(name) || strings.Contains(name, "..") && strings.Contains(name, "/..") {
				t.Errorf("the name %q was taken", name)
			}
		}
	})
}
