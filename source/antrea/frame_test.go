package antrea_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/policy/policytest"
	"isobar.dev/source/antrea"
)

// stream returns what a watch of a resource sends of a state, to its BOOKMARK.
func stream(t testing.TB, in convert.ControlPlane, resource string, inJSON bool) []byte {
	var out []byte
	for _, e := range append(added(in, resource), rawEvent{kind: watch.Bookmark, object: empty(resource)}) {
		out = append(out, encoded(t, e, inJSON)...)
	}
	return out
}

func contentType(inJSON bool) string {
	if inJSON {
		return "application/json"
	}
	return "application/vnd.kubernetes.protobuf;stream=watch"
}

// Whatever parts the bytes come in, both encodings are read as what was sent.
func TestFrames(t *testing.T) {
	for seed := range policytest.Seeds(t, 40) {
		rnd := policytest.Rand(seed)
		now := sentTo(t, policytest.World(rnd, 2+rnd.IntN(10)), "node/node-1")
		for i, resource := range resources {
			for _, inJSON := range []bool{false, true} {
				text := stream(t, now, resource, inJSON)
				got, err := antrea.Frames(contentType(inJSON), iotest.OneByteReader(bytes.NewReader(text)), i)
				if !errors.Is(err, io.EOF) {
					t.Fatal(err)
				}
				if diff := gocmp.Diff(events(now, resource), events(got, resource), cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("seed %d: %s: -sent +read:\n%s", seed, resource, diff)
				}
				if cut := len(text) - 1; cut > 0 {
					if _, err := antrea.Frames(contentType(inJSON), bytes.NewReader(text[:cut]), i); errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
						t.Errorf("half an event is taken for an end: %v", err)
					}
				}
			}
		}
	}
}

// events returns the names of objects with what tells members apart.
func events(in convert.ControlPlane, resource string) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for name, o := range objects(in, resource) {
		keys := map[string]bool{}
		var members []controlplanev1beta2.GroupMember
		switch o := o.(type) {
		case *controlplanev1beta2.AppliedToGroup:
			members = o.GroupMembers
		case *controlplanev1beta2.AddressGroup:
			members = o.GroupMembers
		case *controlplanev1beta2.NetworkPolicy:
			b, _ := o.Marshal()
			keys[string(b)] = true
		}
		for i := range members {
			keys[members[i].Key()] = true
		}
		out[name] = keys
	}
	return out
}

// Fields that are not known are left out, where they stand; what is no watch is refused.
func TestForeignFrames(t *testing.T) {
	bookmark := `{"type":"BOOKMARK","object":{"kind":"NetworkPolicy","apiVersion":"controlplane.antrea.io/v1beta2","metadata":{"resourceVersion":"7"}}}`
	group := func(fields string) string {
		return `{"type":"ADDED","object":{"kind":"AddressGroup","apiVersion":"controlplane.antrea.io/v1beta2","metadata":{"name":"g"}` + fields + `}}`
	}
	for _, tt := range []struct {
		name, contentType, text string
		told                    string // of the error that is not the end
		groups                  int
	}{
		{"an unknown field", "application/json", group(`,"news":{"a":[1]},"groupMembers":[{"pod":{"name":"a","uid":"u"}}]`) + "\n" + bookmark, "", 1},
		{"a field in another case", "application/json", group(`,"GroupMembers":3`) + bookmark, "", 1},
		{"a field of another type", "application/json", group(`,"groupMembers":3`) + bookmark, "AddressGroup", 0},
		{"another version", "application/json", strings.Replace(group(""), "v1beta2", "v1beta3", 1), "v1beta3", 0},
		{"no kind", "application/json", `{"type":"ADDED","object":{}}`, "not known", 0},
		{"no object", "application/json", `{"type":"ADDED"}`, "", 0},
		{"null", "application/json", `null`, "unexpected end", 0},
		{"a list", "application/json", `[]`, "", 0},
		{"text", "application/json", `watch`, "invalid", 0},
		{"another type", "text/html", `<html>`, "text/html", 0},
		{"no type", "", ``, "content type", 0},
		{"a huge event", "application/json", `{"type":"` + strings.Repeat("A", 17<<20) + `"}`, "more than", 0},
	} {
		got, err := antrea.Frames(tt.contentType, strings.NewReader(tt.text), 2)
		if isEnd := errors.Is(err, io.EOF); tt.told == "" && tt.groups > 0 && !isEnd || tt.told != "" && !strings.Contains(err.Error(), tt.told) || err == nil {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.told)
		}
		if len(got.Addresses) != tt.groups {
			t.Errorf("%s: %d groups, want %d", tt.name, len(got.Addresses), tt.groups)
		}
	}
}

// An object that is packed otherwise than it can be read is refused, not read as empty.
func TestPackedObjects(t *testing.T) {
	group := sample().Addresses[0]
	raw, err := group.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ encoding, contentType, told string }{
		{"", "", ""}, {"", "application/vnd.kubernetes.protobuf", ""}, {"gzip", "", "encoding"}, {"", "application/yaml", "of the type"}, {"", "application/json", "AddressGroup"},
	} {
		envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "controlplane.antrea.io/v1beta2", Kind: "AddressGroup"}, Raw: raw, ContentEncoding: tt.encoding, ContentType: tt.contentType}
		body, _ := envelope.Marshal()
		event, _ := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), body...)}}).Marshal()
		text := append([]byte{0, 0, byte(len(event) >> 8), byte(len(event))}, event...)
		_, err := antrea.Frames(contentType(false), bytes.NewReader(text), 2)
		if isEnd := errors.Is(err, io.EOF); isEnd != (tt.told == "") || !isEnd && !strings.Contains(err.Error(), tt.told) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// Whatever bytes come, they are read without a panic, and what is held can be read.
func FuzzFrames(f *testing.F) {
	for seed := range uint64(10) {
		now := sentTo(f, policytest.World(policytest.Rand(seed), 6), "node/node-1")
		for i, resource := range resources {
			f.Add(stream(f, now, resource, false), uint8(i), false)
			f.Add(stream(f, now, resource, true), uint8(i), true)
		}
	}
	p := &controlplanev1beta2.AddressGroupPatch{ObjectMeta: metav1.ObjectMeta{Name: "web"}, RemovedGroupMembers: []controlplanev1beta2.GroupMember{member("w1", "10.0.0.1")}}
	f.Add(append(stream(f, sample(), "addressgroups", false), encoded(f, rawEvent{kind: watch.Modified, object: p}, false)...), uint8(2), false)
	f.Fuzz(func(t *testing.T, text []byte, resource uint8, inJSON bool) {
		if _, err := antrea.Frames(contentType(inJSON), bytes.NewReader(text), int(resource)%3); err == nil {
			t.Error("a stream without an end")
		}
	})
}

// Whatever is in a state file, it is read without a panic.
func FuzzState(f *testing.F) {
	dir := f.TempDir()
	if err := antrea.WriteState(dir, "n", sample(), controlplanev1beta2.Position{Cluster: "c"}); err != nil {
		f.Fatal(err)
	}
	good, at, err := antrea.ReadState(dir, "n")
	if err != nil || len(good.Policies) != 1 || at.Cluster != "c" {
		f.Fatal(err, at)
	}
	if _, _, err := antrea.ReadState(dir, "m"); err == nil || !strings.Contains(err.Error(), "another Node") {
		f.Errorf("a file of another Node: %v", err)
	}
	f.Add([]byte{0x0a, 1, 'n'})
	f.Add([]byte{0x12, 0})
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, _, err := antrea.ParseState(append(antrea.FileHeader(body), body...), "n"); err == nil && !bytes.Contains(body, []byte{0x0a, 1, 'n'}) {
			t.Error("a file without a Node was taken")
		}
	})
}
