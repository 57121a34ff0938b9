package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

//go:embed all:dist
var dist embed.FS

// pages are the first parts of the paths under which the page shows something of its own.
var pages = []string{"", "map", "matrix", "explain", "policies", "workloads", "preview", "accounts", "login"}

// buildManifest says of which sources the page was built. It is for tests, and not served.
const buildManifest = "manifest.json"

// assets are the files of the built page.
type assets struct{ files map[string]*asset } // by path, "/index.html"

type asset struct {
	text, packed []byte // packed by gzip; nil where that saves nothing
	kind, tag    string
	isForever    bool // its name has a hash of what it is
}

func readAssets(from fs.FS) (*assets, error) {
	a := &assets{files: map[string]*asset{}}
	err := fs.WalkDir(from, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || p == buildManifest {
			return err
		}
		text, err := fs.ReadFile(from, p)
		if err != nil {
			return err
		}
		f, err := newAsset(p, text)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		a.files["/"+p] = f
		return nil
	})
	if err == nil && a.files["/index.html"] == nil {
		err = errors.New("there is no index.html")
	}
	return a, err
}

// kinds are the types of files, which must not depend on the machine's tables.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml", ".png": "image/png",
	".ico": "image/x-icon", ".woff2": "font/woff2", ".json": "application/json", ".txt": "text/plain; charset=utf-8",
}

func newAsset(p string, text []byte) (*asset, error) {
	kind, ok := kinds[path.Ext(p)]
	if !ok {
		return nil, fmt.Errorf("files of type %q are not served", path.Ext(p))
	}
	sum := sha256.Sum256(text)
	f := &asset{text: text, kind: kind, tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`, isForever: strings.HasPrefix(p, "assets/")}
	if media, _, _ := mime.ParseMediaType(kind); strings.HasPrefix(media, "image/p") || strings.HasPrefix(media, "font/") {
		return f, nil // packed already
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	if b.Len() < len(text) {
		f.packed = b.Bytes()
	}
	return f, nil
}

// ServeHTTP serves a file, or the page for each path under which that shows something.
func (a *assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "pages can only be read")
		return
	}
	p := r.URL.Path
	f := a.files[p]
	if first, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/"); f == nil && slices.Contains(pages, first) && p == cleanPath(p) {
		f = a.files["/index.html"]
	}
	if f == nil {
		refuse(w, http.StatusNotFound, "there is no such page")
		return
	}
	f.serve(w, r)
}

func (f *asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache")
	if f.isForever {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Vary", "Accept-Encoding")
	text, tag := f.text, f.tag
	if f.packed != nil && takesGzip(r) {
		text, tag = f.packed, strings.TrimSuffix(tag, `"`)+`-gzip"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

// takesGzip says whether a client takes answers that are packed by gzip.
func takesGzip(r *http.Request) bool {
	for _, each := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(each), ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, isQ := strings.CutPrefix(strings.ReplaceAll(weight, " ", ""), "q=")
			return !isQ || strings.Trim(q, "0.") != ""
		}
	}
	return false
}
