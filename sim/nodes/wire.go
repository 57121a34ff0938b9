package nodes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

// Resources are what an agent watches.
var Resources = []string{"networkpolicies", "appliedtogroups", "addressgroups"}

// maxFrame bounds one event, as clients of Kubernetes do.
const maxFrame = 16 << 20

// frames lends out room for one event: between two, which may be hours apart, an agent has none.
var frames = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// readFrame reads one event behind its length in four bytes. Its error is io.EOF where the server has
// ended the watch between two of them.
func readFrame(r io.Reader) (metav1.WatchEvent, error) {
	var out metav1.WatchEvent
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return out, err
	}
	n := int64(binary.BigEndian.Uint32(size[:]))
	if n > maxFrame {
		return out, fmt.Errorf("an event of %d bytes", n)
	}
	b := frames.Get().(*bytes.Buffer)
	defer func() {
		if b.Reset(); b.Cap() <= 64<<10 {
			frames.Put(b)
		}
	}()
	if _, err := io.CopyN(b, r, n); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return out, err
	}
	return out, out.Unmarshal(b.Bytes())
}

// envelopeMark stands before each object.
var envelopeMark = []byte("k8s\x00")

// told is what one event says.
type told struct {
	event          watch.EventType
	kind           string
	name           string
	generation     int64
	added, removed []controlplanev1beta2.GroupMember // of a group the first alone
	sum            sum                               // of what is added less what is removed, or of the policy
}

// readObject reads what an event other than a BOOKMARK is about.
func readObject(in metav1.WatchEvent) (told, error) {
	out := told{event: watch.EventType(in.Type)}
	body, ok := bytes.CutPrefix(in.Object.Raw, envelopeMark)
	var envelope runtime.Unknown
	if !ok {
		return out, errors.New("an object that is not in Kubernetes' envelope")
	}
	if err := envelope.Unmarshal(body); err != nil {
		return out, fmt.Errorf("envelope: %w", err)
	}
	if out.event == watch.Error {
		var status metav1.Status
		if err := status.Unmarshal(envelope.Raw); err != nil {
			return out, fmt.Errorf("an error that cannot be read: %w", err)
		}
		return out, fmt.Errorf("the server ends the watch: %d %s: %s", status.Code, status.Reason, status.Message)
	}
	if v := controlplanev1beta2.GroupVersion.String(); envelope.APIVersion != v {
		return out, fmt.Errorf("%s %s, want %s", envelope.APIVersion, envelope.Kind, v)
	}
	out.kind = envelope.Kind
	return out, out.read(envelope.Raw)
}

func (t *told) read(raw []byte) (err error) {
	switch t.kind {
	case "NetworkPolicy":
		var p controlplanev1beta2.NetworkPolicy
		err = p.Unmarshal(raw)
		t.name, t.generation = p.Name, p.Generation
		t.sum = sum{1, maphash.Bytes(seed, raw)}
	case "AppliedToGroup":
		var g controlplanev1beta2.AppliedToGroup
		err = g.Unmarshal(raw)
		t.name, t.added = g.Name, g.GroupMembers
	case "AddressGroup":
		var g controlplanev1beta2.AddressGroup
		err = g.Unmarshal(raw)
		t.name, t.added = g.Name, g.GroupMembers
	case "AppliedToGroupPatch":
		var g controlplanev1beta2.AppliedToGroupPatch
		err = g.Unmarshal(raw)
		t.name, t.added, t.removed = g.Name, g.AddedGroupMembers, g.RemovedGroupMembers
	case "AddressGroupPatch":
		var g controlplanev1beta2.AddressGroupPatch
		err = g.Unmarshal(raw)
		t.name, t.added, t.removed = g.Name, g.AddedGroupMembers, g.RemovedGroupMembers
	default:
		return fmt.Errorf("a %s", t.kind)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.kind, err)
	}
	if t.name == "" {
		return fmt.Errorf("a %s without a name", t.kind)
	}
	return t.addMembers()
}

func (t *told) addMembers() error {
	for i := range t.added {
		h, err := hashOf(&t.added[i])
		if err != nil {
			return err
		}
		t.sum = t.sum.plus(sum{1, h})
	}
	for i := range t.removed {
		h, err := hashOf(&t.removed[i])
		if err != nil {
			return err
		}
		t.sum = t.sum.less(sum{1, h})
	}
	return nil
}

// seed is of this process: sums are compared within it alone.
var seed = maphash.MakeSeed()

func hashOf(m *controlplanev1beta2.GroupMember) (uint64, error) {
	raw, err := m.Marshal()
	return maphash.Bytes(seed, raw), err
}

// sum is what is kept of an object: the number of its members, and the sum of their hashes. Of a policy, 1
// and its hash.
type sum struct {
	n    int
	hash uint64
}

func (s sum) plus(t sum) sum { return sum{s.n + t.n, s.hash + t.hash} }
func (s sum) less(t sum) sum { return sum{s.n - t.n, s.hash - t.hash} }
