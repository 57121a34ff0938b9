package manifest

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of what is read. YAML takes some forty times its size to parse, so a
// document of it may be less than a file.
const (
	MaxBytes     = 256 << 20 // of one file or stream
	MaxYAMLBytes = 32 << 20  // of one YAML document, its aliases written out; JSON has no such bound
)

// Error is something wrong in a document.
type Error struct {
	File     string // "-" for the standard input
	Document int    // from 1
	Object   string // kind and name, as far as they are known
	Field    string // may be empty
	Message  string
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: document %d", e.File, e.Document)
	if e.Object != "" {
		b.WriteString(": " + e.Object)
	}
	if e.Field != "" {
		b.WriteString(": " + e.Field)
	}
	return b.String() + ": " + e.Message
}

// document is one YAML or JSON document as JSON, and where it came from.
type document struct {
	file   string
	number int // from 1
	json   []byte
	text   []byte // as it is written
	line   int    // that the text begins on, from 1
}

// files lists what path stands for: itself, or the .yaml, .yml and .json files
// of a folder and its sub-folders, sorted. Folders whose names begin with a dot
// are left out, as those that a mounted ConfigMap keeps its versions in.
func files(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	root := path
	if link, err := filepath.EvalSymlinks(path); err == nil {
		root = link // a walk does not follow links, not even at its root
	}
	var out []string
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p != root && strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		if slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(p))) {
			out = append(out, filepath.Join(path, strings.TrimPrefix(p, root)))
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: no .yaml, .yml or .json file in it", path)
	}
	return out, err
}

// oneLine makes one line of the YAML parser's errors.
var oneLine = strings.NewReplacer("yaml: ", "", "unmarshal errors:\n  ", "", "\n  ", "; ", "error converting YAML to JSON: ", "")

// read returns the documents of one file that can be read, and what is wrong
// with the others; "-" reads in.
func read(file string, in io.Reader) ([]document, []error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, []error{err}
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, MaxBytes+1))
	switch {
	case err != nil:
		return nil, []error{fmt.Errorf("read %s: %w", file, err)}
	case len(text) > MaxBytes:
		return nil, []error{fmt.Errorf("%s: more than %d MiB", file, MaxBytes>>20)}
	}
	var docs []document
	var errs []error
	n := 0
	for line, part := range split(text) {
		values, err := values(part)
		for _, v := range values {
			n++
			if v.json != nil {
				docs = append(docs, document{file, n, v.json, v.text, line + v.line})
			}
		}
		if err != nil {
			n++
			errs = append(errs, &Error{File: file, Document: n, Message: oneLine.Replace(err.Error())})
		}
	}
	return docs, errs
}
