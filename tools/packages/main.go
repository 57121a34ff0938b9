// Command packages makes the deb and rpm packages of the agent of VMs and of the server, for amd64 and arm64.
// The same sources give the same bytes: every time in them is SOURCE_DATE_EPOCH, or that of the release.
//
//	go -C tools/packages run . --out DIR [--version 0.1.0] [--arch amd64,arm64] [--binaries DIR]
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// epoch is the time of all files where SOURCE_DATE_EPOCH says none.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var versionRE = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+([-+~][A-Za-z0-9.]+)?$`)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
}

type options struct {
	root, out, version, binaries string
	archs, only                  []string
	at                           time.Time
}

func run(args []string) error {
	var o options
	var archs, only string
	fs := flag.NewFlagSet("packages", flag.ContinueOnError)
	fs.StringVar(&o.out, "out", "", "folder of the packages (required)")
	fs.StringVar(&o.version, "version", "0.1.0", "version, as 1.2.3")
	fs.StringVar(&archs, "arch", "amd64,arm64", "architectures, as Go calls them")
	fs.StringVar(&only, "only", "isobar-agent,isobar-server", "packages to make")
	fs.StringVar(&o.binaries, "binaries", "", "folder with isobar-agent, isobar and isobar-control-plane, which are built otherwise; for one architecture")
	fs.StringVar(&o.root, "root", "../..", "the checkout")
	if err := fs.Parse(args); err != nil {
		return err
	}
	o.archs, o.only = strings.Split(archs, ","), strings.Split(only, ",")
	switch {
	case o.out == "" || fs.NArg() > 0:
		return errors.New("want --out DIR, and no arguments")
	case !versionRE.MatchString(o.version):
		return fmt.Errorf("--version %q: want one as 1.2.3", o.version)
	case o.binaries != "" && len(o.archs) != 1:
		return errors.New("--binaries are of one --arch")
	}
	var err error
	if o.at, err = sourceDate(); err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, arch := range o.archs {
		for _, name := range o.only {
			if err := o.make(name, arch); err != nil {
				return fmt.Errorf("%s for %s: %w", name, arch, err)
			}
		}
	}
	return nil
}

// sourceDate is the time that files are to have.
func sourceDate() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		return epoch, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH %q: want seconds", text)
	}
	return time.Unix(n, 0).UTC(), nil
}

// A part is a package: its files, and what dpkg and rpm run.
type part struct {
	description string
	binaries    map[string]string // where, and of which command
	links       map[string]string // where, and to what
	unit, env   string
	scripts     string   // prefix of their names
	dirs        []string // of its own
	deb, rpm    []string
}

var parts = map[string]part{
	"isobar-agent": {
		description: "Network policies on this machine\nThe agent of Isobar for virtual machines: it enforces in the kernel what its server says.",
		binaries:    map[string]string{"/usr/bin/isobar-agent": "isobar-agent"},
		unit:        "isobar-agent.service", env: "agent.env", scripts: "agent",
	},
	"isobar-server": {
		description: "Server of network policies for virtual machines\nAn API server with its store and Isobar's controller, without a cluster.",
		binaries:    map[string]string{"/usr/bin/isobar": "isobar", "/usr/lib/isobar/isobar-control-plane": "isobar-control-plane"},
		links:       map[string]string{"/usr/bin/kubectl-isobar": "isobar", "/usr/bin/kubectl_complete-isobar": "isobar"}, // kubectl isobar
		unit:        "isobar-server.service", env: "server.env", scripts: "server",
		dirs: []string{"/usr/lib/isobar"},
		deb:  []string{"passwd"}, rpm: []string{"shadow-utils"},
	},
}

// make makes the packages of one part for one architecture.
func (o options) make(name, arch string) error {
	p, ok := parts[name]
	if !ok {
		return errors.New("there is no such package")
	}
	dir := o.binaries
	if dir == "" {
		temp, err := os.MkdirTemp("", "isobar-packages-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(temp)
		dir = temp
		for _, command := range p.binaries {
			if err := o.build(command, arch, filepath.Join(dir, command)); err != nil {
				return err
			}
		}
	}
	for format, depends := range map[string][]string{"deb": p.deb, "rpm": p.rpm} {
		info := o.info(name, arch, p)
		info.Depends = depends
		for to, command := range p.binaries {
			info.Contents = append(info.Contents, file(filepath.Join(dir, command), to, files.TypeFile, 0o755))
		}
		for at, to := range p.links {
			info.Contents = append(info.Contents, file(to, at, files.TypeSymlink, 0o777))
		}
		if err := o.write(format, info); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

func (o options) info(name, arch string, p part) *nfpm.Info {
	script := func(what string) string { return filepath.Join(o.root, "deploy/packages", p.scripts+"."+what) }
	info := &nfpm.Info{
		Name: name, Arch: arch, Platform: "linux", Version: o.version, Section: "net", Priority: "optional",
		Maintainer: "Isobar maintainers <maintainers@isobar.dev>", Description: p.description, Homepage: "https://isobar.dev", License: "Apache-2.0", MTime: o.at,
	}
	info.Scripts = nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm")}
	info.RPM.BuildHost, info.RPM.Summary = "isobar.dev", strings.SplitN(p.description, "\n", 2)[0]
	info.Contents = files.Contents{
		file(filepath.Join(o.root, "deploy/systemd", p.unit), "/usr/lib/systemd/system/"+p.unit, files.TypeFile, 0o644),
		file(filepath.Join(o.root, "deploy/packages", p.env), "/etc/isobar/"+p.env, files.TypeConfigNoReplace, 0o600),
		file(filepath.Join(o.root, "LICENSE"), "/usr/share/doc/"+name+"/copyright", files.TypeFile, 0o644),
	}
	// rpm leaves behind what no package has.
	for _, dir := range append([]string{"/etc/isobar", "/usr/share/doc/" + name}, p.dirs...) {
		info.Contents = append(info.Contents, file("", dir, files.TypeDir, 0o755))
	}
	return info
}

func file(from, to, kind string, mode os.FileMode) *files.Content {
	return &files.Content{Source: from, Destination: to, Type: kind, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode}}
}

// write writes one package, in one step.
func (o options) write(format string, info *nfpm.Info) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info = nfpm.WithDefaults(info)
	for _, c := range info.Contents {
		c.FileInfo.MTime = o.at
	}
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	name := filepath.Join(o.out, packager.ConventionalFileName(info))
	out, err := os.Create(name + ".tmp")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	if err := errors.Join(packager.Package(info, out), out.Close()); err != nil {
		return err
	}
	if err := os.Rename(out.Name(), name); err != nil {
		return err
	}
	fmt.Println(name)
	return nil
}

// build builds a static binary that has no path and no time of this machine in it.
func (o options) build(command, arch, to string) error {
	dir := o.root
	if command == "isobar-control-plane" {
		dir = filepath.Join(o.root, "embedded") // a module of its own
	}
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", to, "./cmd/"+command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off", "PWD="+dir)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build %s: %w", command, err)
	}
	return nil
}
