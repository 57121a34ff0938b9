// Package shape_test checks the house itself: who imports whom, that each
// package says what it is for, and what each binary links.
package shape_test

import (
	"bytes"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "isobar.dev"

var update = flag.Bool("update", false, "rewrite the deps.txt of each command")

// mayImport is the table of the design: the rooms of ours that a room may
// import. A room is a top folder, or a folder in one of those that hold
// adapters. Every room may import itself and what is below it.
var mayImport = map[string][]string{
	"policy":     nil,
	"compile":    {"policy"},
	"plan":       {"policy"},
	"api":        {"policy"},
	"source":     {"api", "policy"},
	"cloud":      {"policy", "plan"},
	"dataplane":  {"policy", "plan"},
	"control":    {"api", "policy", "compile", "plan", "source", "cloud"},
	"sim":        {"api", "policy"},
	"cmd":        {"api", "policy", "compile", "plan", "source", "cloud", "dataplane", "control", "deploy", "sim"},
	"deploy":     nil,
	"tools":      nil,
	"acceptance": {"api", "control"}, // tests, and what they share
}

// pure rooms import the standard library alone, and none of it that has a
// clock, a socket or a process.
var pure = []string{"policy", "compile", "plan"}

var impure = []string{"log", "log/slog", "net", "net/http", "os", "os/exec", "os/signal", "syscall", "time"}

// adapters are rooms whose folders must not import their siblings.
var adapters = []string{"cloud", "dataplane", "sim", "source"}

type file struct {
	path    string // from the root, slashes
	dir     string
	isTest  bool
	imports []string
	doc     string
	pkg     string
}

// files parses every Go file of the main module.
func files(t *testing.T) []file {
	t.Helper()
	var out []file
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		p = filepath.ToSlash(p)
		if d.IsDir() {
			if p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			if _, err := os.Stat(path.Join(p, "go.mod")); err == nil && p != "." {
				return filepath.SkipDir // a module of its own
			}
			return nil
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, describe(p, f))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func describe(p string, f *ast.File) file {
	x := file{path: p, dir: path.Dir(p), isTest: strings.HasSuffix(p, "_test.go"), pkg: f.Name.Name}
	for _, i := range f.Imports {
		name, _ := strconv.Unquote(i.Path.Value)
		x.imports = append(x.imports, name)
	}
	if f.Doc != nil {
		x.doc = f.Doc.Text()
	}
	return x
}

// room returns the room of a package path relative to the module.
func room(dir string) string { return strings.Split(dir, "/")[0] }

func TestImports(t *testing.T) {
	for _, f := range files(t) {
		if f.isTest || f.dir == "." {
			continue // a test may use whatever shows that the package is right
		}
		// A package for tests, such as plan/plantest, is bound like its room.
		from := room(f.dir)
		allowed, known := mayImport[from]
		if !known {
			t.Errorf("%s: %s is no room of the design", f.path, from)
			continue
		}
		for _, i := range f.imports {
			if rel, ours := strings.CutPrefix(i, module+"/"); ours {
				checkOurs(t, f, from, allowed, rel)
				continue
			}
			checkForeign(t, f, from, i)
		}
	}
}

func checkOurs(t *testing.T, f file, from string, allowed []string, to string) {
	t.Helper()
	if room(to) != from && !slices.Contains(allowed, room(to)) {
		t.Errorf("%s imports %s: %s may import %v", f.path, to, from, allowed)
	}
	if from == "control" && room(to) == "cloud" && to != "cloud" {
		t.Errorf("%s imports %s: only cmd names an adapter", f.path, to)
	}
	if from != room(to) || !slices.Contains(adapters, from) {
		return
	}
	here, there := strings.Split(f.dir, "/"), strings.Split(to, "/")
	if len(here) > 1 && len(there) > 1 && here[1] != there[1] {
		t.Errorf("%s imports its sibling %s", f.path, to)
	}
}

func checkForeign(t *testing.T, f file, from, to string) {
	t.Helper()
	if !slices.Contains(pure, from) || strings.HasSuffix(f.pkg, "test") {
		return // plantest and its like are for tests only
	}
	if strings.Contains(strings.Split(to, "/")[0], ".") {
		t.Errorf("%s imports %s: %s uses the standard library only", f.path, to, from)
	}
	if slices.Contains(impure, to) {
		t.Errorf("%s imports %s: %s is pure", f.path, to, from)
	}
}

// nameless are the rooms that work for every cloud, and name none: one more needs no
// change there.
var nameless = []string{"compile", "plan", "control"}

// aCloud is the name of a cloud, as a word or as a part of an identifier.
var aCloud = regexp.MustCompile(`(?i:^|[^a-z])(?i:aws|ec2|azure)|[a-z0-9](?:AWS|Aws|EC2|Ec2|Azure)`)

func TestNoCloudIsNamed(t *testing.T) {
	for text, want := range map[string]bool{"aws": true, "AWSConfig": true, "awsLocal": true, "ProviderAWS": true, "parseAzure": true, "set azureConfig": true, "ec2:Vpc": true,
		"draws": false, "Laws": false, "of laws": false, "withdrawsAll": false} {
		if aCloud.MatchString(text) != want {
			t.Errorf("%q names a cloud: want %t", text, want)
		}
	}
	seen := 0
	for _, f := range files(t) {
		if f.isTest || !slices.Contains(nameless, room(f.dir)) {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, f.path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if ast.IsGenerated(parsed) {
			continue // from the docs of an API
		}
		seen++
		ast.Inspect(parsed, func(n ast.Node) bool {
			text := ""
			switch n := n.(type) {
			case *ast.Ident:
				text = n.Name
			case *ast.BasicLit:
				text = n.Value
			}
			if aCloud.MatchString(text) {
				t.Errorf("%s: %s is of one cloud: it belongs in api, or in what makes accounts", set.Position(n.Pos()), text)
			}
			return true
		})
	}
	if seen < 50 {
		t.Errorf("%d files", seen)
	}
}

func TestPackageDocs(t *testing.T) {
	docs, packages := map[string][]string{}, map[string]string{}
	for _, f := range files(t) {
		if f.isTest {
			continue
		}
		packages[f.dir] = f.pkg
		if f.doc != "" {
			docs[f.dir] = append(docs[f.dir], f.doc)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		if len(docs[dir]) != 1 {
			t.Errorf("%s: %d package docs, want one", dir, len(docs[dir]))
			continue
		}
		want := "Package " + packages[dir] + " "
		if packages[dir] == "main" {
			want = "Command " + path.Base(dir) + " "
		}
		if !strings.HasPrefix(docs[dir][0], want) {
			t.Errorf("%s: the package doc does not begin with %q", dir, want)
		}
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "types", "manager", "misc"}, packages[dir]) {
			t.Errorf("%s: %s says nothing about what it is for", dir, packages[dir])
		}
	}
}

func TestArchitectureNamesEveryRoom(t *testing.T) {
	text, err := os.ReadFile("ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	rooms := map[string]bool{"embedded": true}
	for _, f := range files(t) {
		if f.dir == "." || f.isTest {
			continue
		}
		parts := strings.Split(f.dir, "/")
		rooms[strings.Join(parts[:min(2, len(parts))], "/")] = true
	}
	for _, r := range slices.Sorted(maps.Keys(rooms)) {
		if !bytes.Contains(text, []byte("`"+r+"/`")) {
			t.Errorf("ARCHITECTURE.md does not name `%s/`", r)
		}
	}
}

// A binary's packages of ours and the modules that it links are committed, so
// that none of them grows without being seen.
func TestDependencies(t *testing.T) {
	mains, err := filepath.Glob("cmd/*/main.go")
	if err != nil || len(mains) == 0 {
		t.Fatalf("no command found: %v", err)
	}
	nested, err := filepath.Glob("embedded/cmd/*/main.go")
	if err != nil || len(nested) == 0 {
		t.Fatalf("no command found in embedded: %v", err)
	}
	for _, m := range append(mains, nested...) {
		dir := filepath.ToSlash(filepath.Dir(m))
		cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{else}}{{.Path}}{{end}}{{end}}", ".")
		cmd.Dir = dir
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, stderr.String())
		}
		lines := strings.Fields(string(out))
		slices.Sort(lines)
		got := strings.Join(slices.Compact(lines), "\n") + "\n"
		file := dir + "/deps.txt"
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(file)
		if err != nil || string(want) != got {
			t.Errorf("%s is not current: run `go test -run TestDependencies -update .` and read the change (%v)", file, err)
		}
	}
}
