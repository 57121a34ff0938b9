package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"isobar.dev/control/plane/planetest"
	simlab "isobar.dev/sim/lab"
)

// The lab says by packets, over both families and through the tunnel, what the sample means.
func TestLab(t *testing.T) {
	if err := simlab.Missing(); err != nil {
		t.Skip(err)
	}
	temp := t.TempDir() // that of nobody else
	var out, progress bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "isobar", "lab", "--once", "--ipv6", "--nodes", "3", "--port", "TCP/5432,TCP/80,UDP/53,SCTP/7,ICMP")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	tables := strings.Split(out.String(), "\nWho reaches whom by ")[1:]
	if len(tables) != 10 {
		t.Fatalf("%d tables:\n%s", len(tables), out.String())
	}
	for _, table := range tables {
		db := "X" // but for who may
		if strings.HasPrefix(table, "TCP/5432") {
			db = "."
		}
		want := []string{"other/guest - R X .", "shop/api . - " + db + " .", "shop/db . . - .", "shop/web . . X -"}
		for i, line := range strings.Split(table, "\n")[2:6] {
			f := strings.Fields(line)
			if got := f[0] + " " + strings.Join(f[2:], " "); got != want[i] {
				t.Errorf("%q, want %q, of\n%s", got, want[i], table)
			}
		}
	}
	if !strings.Contains(out.String(), "(node-1)") || !strings.Contains(out.String(), "(node-2)") {
		t.Errorf("all Pods are on one Node:\n%s", out.String())
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "isobar-lab-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// A lab that is killed leaves nothing, whatever it was at.
func TestLabKilled(t *testing.T) {
	if err := simlab.Missing(); err != nil {
		t.Skip(err)
	}
	for _, when := range []string{"API server ready", "Nodes run"} {
		temp := t.TempDir()
		cmd := exec.Command("isobar", "lab")
		cmd.Env = append(os.Environ(), "TMPDIR="+temp)
		progress, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // an error means that it has ended
		lines := bufio.NewScanner(progress)
		var said []string
		for lines.Scan() && !strings.Contains(lines.Text(), when) {
			said = append(said, lines.Text())
		}
		if when == "Nodes run" {
			testLabConsole(t, strings.Join(said, "\n"))
		}
		if left, _ := filepath.Glob(filepath.Join(temp, labPrefix+"*")); len(left) != 1 {
			t.Errorf("%q: folders %q", when, left)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		planetest.Eventually(t, "nothing is left", func(context.Context) error {
			left, err := filepath.Glob(filepath.Join(temp, labPrefix+"*"))
			if len(left) > 0 {
				return fmt.Errorf("left: %q", left)
			}
			return err
		})
	}
}

// testLabConsole logs in to the console of which a lab has told, and looks at its Nodes.
func testLabConsole(t *testing.T, said string) {
	t.Helper()
	m := regexp.MustCompile(`console ready at (\S+); the token to log in with is in (\S+)`).FindStringSubmatch(said)
	if m == nil {
		t.Errorf("the lab tells of no console:\n%s", said)
		return
	}
	token, err := os.ReadFile(m[2])
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(m[2]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the token: %v, %v", info, err)
	}
	p := &page{t: t, url: m[1]}
	p.logIn("token", strings.TrimSpace(string(token)))
	planetest.Eventually(t, "the Nodes", func(context.Context) error { // views are served a moment after the controller runs
		if code, text := p.do("GET", "/api/views/workloads?kind=node", ""); code != http.StatusOK || !strings.Contains(text, `"total":2,`) {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
}
