package cni

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// Attachment is a Pod's interface.
type Attachment struct {
	Network     string `json:"network"` // the name in the network's configuration
	ContainerID string `json:"containerID"`
	Interface   string `json:"interface"` // its name in the Pod
	Netns       string `json:"netns"`     // path of the Pod's network namespace

	PodNamespace string `json:"podNamespace,omitempty"` // as the runtime says; empty where it does not
	PodName      string `json:"podName,omitempty"`
	PodUID       string `json:"podUID,omitempty"`

	HostInterface string       `json:"hostInterface"` // its other end, on the Node
	MAC           string       `json:"mac,omitempty"`
	MTU           int          `json:"mtu,omitempty"`
	Addrs         []netip.Addr `json:"addrs,omitempty"` // at most one of a family, unless chained
	Chained       bool         `json:"chained,omitempty"`

	// Unrecorded: there is no record that can be read, so that nobody knows which Pod it is;
	// what is known is what the interface on the Node says.
	Unrecorded bool `json:"-"`
	// Begun says that nobody knows how far it was plugged in.
	Begun bool `json:"begun,omitempty"`
	// Known says that the Pod's policies have been known since it was attached.
	Known bool `json:"known,omitempty"`
}

// keyOf names an attachment in files and interfaces.
func keyOf(id, ifname string) string {
	sum := sha256.Sum256([]byte(id + "/" + ifname))
	return hex.EncodeToString(sum[:16])
}

func (a *Attachment) key() string { return keyOf(a.ContainerID, a.Interface) }

// alias is the mark on its interface of the Node.
func (a *Attachment) alias() string { return aliasPrefix + a.ContainerID + "/" + a.Interface }

const aliasPrefix = "isobar "

// records are the files of attachments.
type records struct{ dir string }

const (
	recordSuffix = ".json"
	recordMost   = 1 << 16 // bytes of one
)

// load reads all records. One that cannot be read is in damaged, by file name:
// it is some attachment, of which nothing is known.
func (r records) load() (all map[string]*Attachment, damaged []string, err error) {
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return nil, nil, err
	}
	files, err := os.ReadDir(r.dir)
	if err != nil {
		return nil, nil, err
	}
	all = map[string]*Attachment{}
	for _, f := range files {
		path := filepath.Join(r.dir, f.Name())
		key, ok := strings.CutSuffix(f.Name(), recordSuffix)
		if !ok {
			_ = os.Remove(path) // what was being written
			continue
		}
		a, err := readRecord(path)
		if err != nil || a.key() != key {
			damaged = append(damaged, f.Name())
			continue
		}
		all[key] = a
	}
	return all, damaged, nil
}

func readRecord(path string) (*Attachment, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > recordMost {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), recordMost)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var a Attachment
	if err := d.Decode(&a); err != nil {
		return nil, err
	}
	return &a, nil
}

// save writes a record so that after a crash there is the old one or the new one.
func (r records) save(a *Attachment) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(r.dir, "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), r.path(a.key()))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return r.sync()
}

func (r records) remove(key string) error {
	if err := os.Remove(r.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return r.sync()
}

func (r records) path(key string) string { return filepath.Join(r.dir, key+recordSuffix) }

func (r records) sync() error {
	d, err := os.Open(r.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func compareAttachments(a, b *Attachment) int {
	return cmp.Or(strings.Compare(a.ContainerID, b.ContainerID), strings.Compare(a.Interface, b.Interface))
}
