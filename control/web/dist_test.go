package web_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"isobar.dev/control/web"
)

// The page that is embedded was built of the sources beside it: build.mjs says in manifest.json of which, and this must say the same.
func TestPageIsCurrent(t *testing.T) {
	var files []string
	err := filepath.WalkDir("ui", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "node_modules":
			return filepath.SkipDir
		case !d.IsDir():
			files = append(files, strings.TrimPrefix(filepath.ToSlash(p), "ui/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	all := sha256.New()
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join("ui", filepath.FromSlash(f)))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		fmt.Fprintf(all, "%s\x00%s\n", f, hex.EncodeToString(sum[:]))
	}
	text, err := os.ReadFile("dist/manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct{ Sources string }
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if want := hex.EncodeToString(all.Sum(nil)); manifest.Sources != want || len(files) < 10 {
		t.Errorf("dist was built of other sources (%s) than the %d files of ui (%s): run `npm ci && npm run build` in control/web/ui", manifest.Sources, len(files), want)
	}
}

// Browsers load what the embedded page asks for: it is there, and nothing of it is what the content policy forbids.
func TestEmbeddedPage(t *testing.T) {
	access, err := web.Tokens(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := web.New(access, web.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		return w
	}
	page := get("/").Body.String()
	links := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(links) < 3 {
		t.Errorf("the page asks for %v", links)
	}
	for _, l := range links {
		if w := get(l[1]); w.Code != 200 || !strings.HasPrefix(l[1], "/assets/") || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", l[1], w.Code, w.Header())
		}
	}
	if inline := regexp.MustCompile(`<script(?:>|[^>]*[^">]>)|<style|style=| on[a-z]+=`).FindString(page); inline != "" {
		t.Errorf("the page has %q in it, which the content policy forbids", inline)
	}
}
