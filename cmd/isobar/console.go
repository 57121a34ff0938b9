package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"isobar.dev/control/web"
)

type consoleFlags struct {
	onlineFlags
	files         []string
	ignoreUnknown bool
	addr          string
	noBrowser     bool
	readOnly      bool
}

func consoleCommand() *cobra.Command {
	var f consoleFlags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "See in a browser who reaches whom, and why",
		Long: `Serves the console on this machine, for its user alone, with the credentials of the kubeconfig, of whatever
kind they are. What the console shows is what these credentials may see. It opens a browser, which is
logged in by a file that nobody else can read; elsewhere, the code that is printed does it.

With -f the world is that of manifests, and there is no cluster. It is read again when the files change.`,
		Example: `  isobar console
  isobar console --context prod --read-only
  isobar console --no-browser --addr 127.0.0.1:8080
  isobar console -f world/`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := consoleRun{flags: f, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()}
			if hasDisplay() && !f.noBrowser {
				c.open = openInBrowser
			}
			return c.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "file or folder with manifests, in place of a cluster; may be repeated")
	flags.BoolVar(&f.ignoreUnknown, "ignore-unknown", false, "with -f: skip kinds that are not known, with a warning")
	flags.StringVar(&f.addr, "addr", "127.0.0.1:0", "loopback address and port to serve at")
	flags.BoolVar(&f.noBrowser, "no-browser", false, "open no browser")
	flags.BoolVar(&f.readOnly, "read-only", false, "nothing can be applied")
	f.onlineFlags.add(cmd)
	flags.Lookup("namespace").Usage = "with -f: namespace of manifests that do not say (default: default)"
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

// consoleRun is one run of `isobar console`.
type consoleRun struct {
	flags       consoleFlags
	in          io.Reader
	out, errOut io.Writer
	open        func(file string) error // in a browser; nil where there is none

	said sync.Mutex // of what is printed
}

func (c *consoleRun) say(format string, args ...any) {
	c.said.Lock()
	defer c.said.Unlock()
	fmt.Fprintf(c.out, format+"\n", args...)
}

func (c *consoleRun) run(ctx context.Context) error {
	if err := checkLoopback(c.flags.addr); err != nil {
		return err
	}
	o := web.Options{
		ReadOnly: c.flags.readOnly || len(c.flags.files) > 0, OnlyHere: true, Idle: consoleLife, Life: consoleLife,
		Log: slog.New(slog.NewTextHandler(c.errOut, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	l, err := net.Listen("tcp", c.flags.addr)
	if err != nil {
		return fmt.Errorf("--addr: %w", err)
	}
	defer l.Close()
	url := "http://" + l.Addr().String()
	isFirst := true
	newCodes := func() *web.Codes {
		return web.NewCodes(func(code string) {
			if isFirst {
				c.say("The console is at %s\nThe code to log in with: %s", url, code)
			} else {
				c.say("The next code to log in with: %s", code)
			}
			isFirst = false
		})
	}
	parts := background{failed: make(chan error, 1)}
	ctx, cancel := context.WithCancel(ctx)
	defer parts.parts.Wait()
	defer cancel()
	var access web.Access
	var codes *web.Codes
	if len(c.flags.files) > 0 {
		world, err := c.readWorld()
		if err != nil {
			return err
		}
		o.Cluster = strings.Join(c.flags.files, ", ")
		codes = newCodes()
		access = web.InProcess(world.handler(), "you", codes)
		parts.spawn(ctx, "manifests", world.follow)
	} else {
		config, name, err := c.cluster(ctx)
		if err != nil {
			return err
		}
		o.Cluster, codes = name, newCodes()
		if access, err = web.Fixed(config, codes); err != nil {
			return err
		}
	}
	server, err := web.New(access, o)
	if err != nil {
		return err
	}
	parts.spawn(ctx, "console", func(ctx context.Context) error { return server.Run(ctx, l) })
	if c.open != nil {
		parts.spawn(ctx, "browser", func(ctx context.Context) error {
			if err := c.showIn(ctx, url, codes.Link()); err != nil {
				c.say("No browser was opened (%v): open the address above, and type the code.", err)
			}
			<-ctx.Done()
			return nil
		})
	}
	c.say("Ctrl-C ends it.")
	select {
	case <-ctx.Done():
		return nil
	case err := <-parts.failed:
		return err
	}
}

// consoleLife is how long one is logged in. Only the user of this process is, and the process ends when it is told to.
const consoleLife = 12 * time.Hour

// checkLoopback refuses addresses that others than this machine reach: there is no TLS.
func checkLoopback(addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("--addr %q: want ADDRESS:PORT", addr)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--addr %q: want a loopback address, such as 127.0.0.1; isobar controller and isobar server serve others, by TLS", addr)
	}
	return nil
}

// cluster returns the API server of the kubeconfig, and what it is called there. It asks whether a console can be made of it.
func (c *consoleRun) cluster(ctx context.Context) (*rest.Config, string, error) {
	config, _, err := c.flags.load()
	if err != nil {
		return nil, "", err
	}
	raw, err := c.flags.loader().RawConfig()
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, "", fmt.Errorf("kubeconfig: %w", err)
	}
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, server.JoinPath("apis", "console.isobar.dev", "v1alpha1").String(), nil)
	if err != nil {
		return nil, "", err
	}
	got, err := client.Do(ask)
	if err != nil {
		return nil, "", fmt.Errorf("API server: %w", err)
	}
	got.Body.Close()
	switch got.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, "", fmt.Errorf("the API server at %s has no console.isobar.dev: no Isobar serves it there", config.Host)
	case http.StatusUnauthorized:
		return nil, "", fmt.Errorf("the API server at %s does not take the credentials of the kubeconfig", config.Host)
	default:
		return nil, "", fmt.Errorf("the API server at %s answers %s for console.isobar.dev: does the controller run there?", config.Host, got.Status)
	}
	return config, cmp.Or(c.flags.context, raw.CurrentContext, config.Host), nil
}

// hasDisplay says whether a browser has where to appear.
func hasDisplay() bool {
	return runtime.GOOS != "linux" || os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""
}

// openInBrowser opens a file as the desktop does.
func openInBrowser(file string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return errors.New("there is no " + program)
	}
	cmd := exec.Command(path, file)
	if err := cmd.Start(); err != nil {
		return err
	}
	go cmd.Wait() // it may be the browser itself, which lasts
	return nil
}

// loginPage is a page of a file, which sends the code by itself. In a URL, other users of the machine would see it among
// the arguments of processes, and it would stay in the browser's history.
var loginPage = template.Must(template.New("login").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<title>Isobar</title>
<form method="post" action="{{.URL}}/api/session">
<input type="hidden" name="code" value="{{.Code}}">
<button>Open the console</button>
</form>
<script>document.forms[0].submit()</script>
</html>
`))

// linkLife is how long the file is there, as long as its code is good.
const linkLife = time.Minute

// showIn opens a browser that logs itself in by a code, with a file that only this user can read.
func (c *consoleRun) showIn(ctx context.Context, url, code string) error {
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "isobar-console-") // mode 0700
	if err != nil {
		if dir, err = os.MkdirTemp("", "isobar-console-"); err != nil {
			return err
		}
	}
	file := filepath.Join(dir, "login.html")
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = errors.Join(loginPage.Execute(f, struct{ URL, Code string }{url, code}), f.Close())
	}
	if err == nil {
		err = c.open(file)
	}
	if err != nil {
		os.RemoveAll(dir)
		return err
	}
	defer os.RemoveAll(dir)
	t := time.NewTimer(linkLife)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return nil
}
