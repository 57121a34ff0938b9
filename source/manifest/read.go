package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// MaxBytes bounds what is read of one file or stream.
const MaxBytes = 256 << 20

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
}

// files lists what path stands for: itself, or the .yaml, .yml and .json files
// of a folder and its sub-folders, sorted.
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
	var out []string
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(p)) {
			out = append(out, p)
		}
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("%s: no .yaml, .yml or .json file in it", path)
	}
	return out, err
}

// read returns the documents of one file; "-" reads in.
func read(file string, in io.Reader) ([]document, error) {
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	limited := &io.LimitedReader{R: in, N: MaxBytes + 1}
	var out []document
	r := utilyaml.NewYAMLReader(bufio.NewReader(limited))
	for n := 1; ; n++ {
		text, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, &Error{File: file, Document: n, Message: err.Error()}
		}
		if limited.N == 0 {
			return nil, fmt.Errorf("%s: more than %d MiB", file, MaxBytes>>20)
		}
		j, err := yaml.YAMLToJSONStrict(text)
		if err != nil {
			return nil, &Error{File: file, Document: n, Message: err.Error()}
		}
		if bytes.Equal(bytes.TrimSpace(j), []byte("null")) {
			continue // an empty document, or one of comments only
		}
		out = append(out, document{file, n, j})
	}
}
