package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"isobar.dev/control/console"
	"isobar.dev/policy"
	"isobar.dev/source/kube"
	"isobar.dev/source/manifest"
)

// lookEvery is the time between two looks at the files of manifests.
const lookEvery = time.Second

// fileWorld is the world of manifests, read again when they change.
type fileWorld struct {
	console.Fixed // what nobody enforces; its own world is empty

	files   []string
	options manifest.Options
	say     func(format string, args ...any)

	mu       sync.Mutex
	seen     string // what the files were when they were read
	snapshot policy.Snapshot
	problem  error // why they cannot be read now
	revision int
	changed  chan struct{}
}

var _ console.Source = (*fileWorld)(nil)

// readWorld reads the manifests for the first time, when what is wrong with them is an error.
func (c *consoleRun) readWorld() (*fileWorld, error) {
	w := &fileWorld{files: c.flags.files, options: manifest.Options{IgnoreUnknown: c.flags.ignoreUnknown, Namespace: c.flags.namespace}, changed: make(chan struct{})}
	w.say = func(format string, args ...any) { fmt.Fprintf(c.errOut, format+"\n", args...) }
	for _, f := range w.files {
		if f == "-" {
			return nil, fmt.Errorf("-f -: manifests are read again when they change, and so from files and folders alone")
		}
	}
	w.look()
	return w, w.problem
}

// KnownWorld returns the world, as long as it can be read.
func (w *fileWorld) KnownWorld() (policy.Snapshot, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.snapshot, w.problem == nil
}

// Revision counts the changes.
func (w *fileWorld) Revision() (now string, changed <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strconv.Itoa(w.revision), w.changed
}

// Lay lays writes over the world.
func (w *fileWorld) Lay(writes []kube.Write) (before, after policy.Snapshot, notices []*kube.Notice, err error) {
	s, _ := w.KnownWorld()
	return console.Fixed{Snapshot: s}.Lay(writes)
}

// follow looks for changes until ctx ends.
func (w *fileWorld) follow(ctx context.Context) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			w.look()
		}
	}
}

// look reads the files if they are others than they were.
func (w *fileWorld) look() {
	seen := fingerprint(w.files) // before they are read
	w.mu.Lock()
	isSame := w.seen == seen && w.revision > 0
	w.mu.Unlock()
	if isSame {
		return
	}
	read, err := manifest.Read(w.files, w.options)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.revision > 0 && err != nil {
		w.say("isobar: %v", err)
	}
	for _, warning := range read.Warnings {
		w.say("warning: %s", warning)
	}
	w.seen, w.problem = seen, err
	if err == nil {
		w.snapshot = read.Snapshot
	}
	w.revision++
	close(w.changed)
	w.changed = make(chan struct{})
}

// fingerprint tells files apart by name, size and time.
func fingerprint(paths []string) string {
	var b strings.Builder
	for _, p := range paths {
		// What cannot be read is told when it is.
		_ = filepath.WalkDir(p, func(p string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				fmt.Fprintln(&b, p, err)
				return nil
			}
			info, err := os.Stat(p)
			if err != nil {
				fmt.Fprintln(&b, p, err)
				return nil
			}
			fmt.Fprintln(&b, p, info.Size(), info.ModTime().UnixNano())
			return nil
		})
	}
	return b.String()
}

// handler serves the console's API, as an API server would, to somebody who may see all.
func (w *fileWorld) handler() http.Handler {
	const views = "/apis/console.isobar.dev/v1alpha1/views"
	answers := console.Handler(w, console.All("you"))
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+views, w.watch)
	mux.HandleFunc(views+"/{name}", func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		problem := w.problem
		w.mu.Unlock()
		if problem == nil {
			answers.ServeHTTP(out, r)
			return
		}
		out.Header().Set("Content-Type", "application/json")
		out.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(out).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
			Message: "the manifests cannot be read: " + problem.Error(), Reason: metav1.StatusReasonServiceUnavailable, Code: http.StatusServiceUnavailable,
		})
	})
	return mux
}

// watch tells of each change, as a watch of the API does.
func (w *fileWorld) watch(out http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "true" {
		http.Error(out, "want watch=true", http.StatusBadRequest)
		return
	}
	out.Header().Set("Content-Type", "application/json")
	for kind := "ADDED"; ; kind = "MODIFIED" {
		revision, changed := w.Revision()
		if _, err := fmt.Fprintf(out, `{"type":%q,"object":{"metadata":{"name":"console"},"status":{"revision":%q}}}`+"\n", kind, revision); err != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
