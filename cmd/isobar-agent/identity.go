package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"isobar.dev/cmd/isobar-agent/node"
	"isobar.dev/cmd/isobar-agent/vm"
	"isobar.dev/control/enroll"
)

// identityDir is where a machine keeps its identity.
var identityDir = filepath.Join(vm.DefaultStateDir, "identity")

// identity is that of the machine, which may join, or join anew, while the agent runs: what was kept is enforced
// without it.
type identity struct {
	dir string
	log *slog.Logger

	mu   sync.Mutex
	ctx  context.Context // of renewals
	now  *enroll.Identity
	read time.Time // when its file was written
	end  context.CancelFunc
}

// get returns the identity of now.
func (i *identity) get() (*enroll.Identity, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.now != nil {
		if s := i.now.Status(); !s.Refused && !s.Expired {
			return i.now, nil
		}
	}
	info, err := os.Stat(filepath.Join(i.dir, "identity.json"))
	var written time.Time
	if err == nil {
		written = info.ModTime()
	}
	if i.now != nil && (err != nil || written.Equal(i.read)) {
		return i.now, nil // nobody has joined since
	}
	next, err := enroll.Open(i.dir, enroll.Options{Dial: node.Dial, Log: i.log})
	if err != nil {
		if i.now != nil {
			return i.now, nil
		}
		return nil, err
	}
	if i.now != nil && i.now.Of() != next.Of() {
		return nil, fmt.Errorf("this machine has joined as %s, and its agent is that of %s: restart it", next.Of(), i.now.Of())
	}
	if i.end != nil {
		i.end()
	}
	i.now, i.read = next, written
	ctx, end := context.WithCancel(i.ctx)
	i.end = end
	go func() { _ = next.Run(ctx) }()
	return next, nil
}

// endpoint leads to the servers by the identity of then.
func (i *identity) endpoint(context.Context) (*rest.Config, error) {
	id, err := i.get()
	if err != nil {
		return nil, err
	}
	return id.Config(), nil
}

// expires is when the certificate does.
func (i *identity) expires() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.now == nil {
		return time.Time{}
	}
	// It is reckoned from two clocks, and must not be another one each time.
	return i.now.Status().Expires.Round(time.Minute)
}

// nameFile is in the state directory, and has the name of whom its rules are of.
const nameFile = "name"

// await returns the name of the machine: of its identity, or, without one, of the rules that were kept. Where there is neither it
// waits for the machine to join, and calls idle first: there is nothing to enforce.
func (i *identity) await(ctx context.Context, state string, idle func()) (string, error) {
	const every = 2 * time.Second
	told := ""
	for {
		id, err := i.get()
		if err == nil {
			name := id.Of().String()
			if err := keepName(state, name); err != nil {
				i.log.Warn("the name of this machine is not kept", "error", err)
			}
			return name, nil
		}
		if text, other := os.ReadFile(filepath.Join(state, nameFile)); other == nil {
			i.log.Warn("there is no identity; what was kept is enforced", "error", err)
			return strings.TrimSpace(string(text)), nil
		} else if !errors.Is(other, fs.ErrNotExist) {
			return "", other
		}
		if err.Error() != told {
			told = err.Error()
			i.log.Info("waiting for this machine to join", "why", told)
		}
		idle()
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(every):
		}
	}
}

func keepName(state, name string) error {
	if have, err := os.ReadFile(filepath.Join(state, nameFile)); err == nil && string(have) == name {
		return nil
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return err
	}
	return replace(filepath.Join(state, nameFile), []byte(name), 0o600)
}
