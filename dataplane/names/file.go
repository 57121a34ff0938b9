package names

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// maxFile bounds a file of names, in bytes.
const maxFile = 32 << 20

// file is what Save writes.
type file struct {
	Version int     `json:"version"`
	Names   []Known `json:"names"` // that which was learned last is last
}

// Save writes what is known to a file that is there whole or as it was before, unless nothing is other
// than at the version that is given. It returns the version that the file has.
func (c *Cache) Save(path string, version uint64) (uint64, error) {
	c.mu.Lock()
	now, known := c.version, []Known(nil)
	if now != version {
		known = c.list(nil)
	}
	c.mu.Unlock()
	if now == version {
		return now, nil
	}
	for i, j := 0, len(known)-1; i < j; i, j = i+1, j-1 {
		known[i], known[j] = known[j], known[i]
	}
	text, err := json.Marshal(file{Version: 1, Names: known})
	if err != nil {
		return version, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return version, fmt.Errorf("names: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return version, fmt.Errorf("names: %w", err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return version, fmt.Errorf("names: %w", errors.Join(err, os.Remove(f.Name())))
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return version, fmt.Errorf("names: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return now, nil
}

// Load makes known what a file has of names that had not come to their end by now; without a file there
// are none. The error is that it cannot be read, and nothing of it is known. Load comes before Use.
func (c *Cache) Load(path string, now time.Time) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("names: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return fmt.Errorf("names: %w", err)
	}
	list, err := decode(text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range list {
		c.restore(k, now)
	}
	return nil
}

// decode reads a file strictly. Names are returned as Normal has them.
func decode(text []byte) ([]Known, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("more than %d bytes", maxFile)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var in file
	if err := d.Decode(&in); err != nil {
		return nil, err
	}
	if in.Version != 1 || d.More() {
		return nil, fmt.Errorf("version %d: want 1, and nothing after it", in.Version)
	}
	for i := range in.Names {
		k := &in.Names[i]
		name, err := Hidden(k.Name)
		if err != nil {
			return nil, err
		}
		if len(name) > 255 || Normal(name) != name {
			return nil, fmt.Errorf("name %q: not as names are kept", k.Name)
		}
		k.Name = name
		for _, a := range k.Addrs {
			if !a.Addr.IsValid() || a.Addr != a.Addr.Unmap() || a.Addr.Zone() != "" {
				return nil, fmt.Errorf("name %q: address %q: not as addresses are kept", Show(name), a.Addr)
			}
		}
	}
	return in.Names, nil
}

// restore keeps a name that nothing selects yet.
func (c *Cache) restore(k Known, now time.Time) {
	if c.names[k.Name] != nil || len(c.names) >= c.o.MaxNames {
		return
	}
	n := &name{text: k.Name, addrs: map[netip.Addr]time.Time{}, index: -1}
	for _, a := range k.Addrs {
		until := a.Until
		if last := now.Add(c.o.MaxTTL); until.After(last) {
			until = last
		}
		if until.After(now) && len(n.addrs) < c.o.MaxAddrs && c.counts.Addrs < c.o.MaxTotal {
			if _, twice := n.addrs[a.Addr]; !twice {
				c.add(n, a.Addr, until, nil)
				c.counts.Learned--
			}
		}
	}
	if len(n.addrs) == 0 {
		return
	}
	c.names[k.Name] = n
	n.places = []place{{&c.all, c.all.order.PushFront(n)}}
}
