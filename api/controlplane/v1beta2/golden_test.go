package v1beta2_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	kjson "sigs.k8s.io/json"

	"isobar.dev/api/controlplane/v1beta2"
)

// TestGolden reads and writes objects as upstream has written them. Its bytes are
// canonical: every field that Go holds by value, in the order of numbers, so ours
// are the same, by themselves and in the envelope; and so is the JSON, by value.
func TestGolden(t *testing.T) {
	scheme := newScheme(t)
	envelope := protobuf.NewSerializer(scheme, scheme)
	seen := map[string]bool{}
	for _, v := range vectors(t) {
		seen[v.Kind] = true
		obj, err := scheme.New(v1beta2.GroupVersion.WithKind(v.Kind))
		if err != nil {
			t.Error(err)
			continue
		}
		fromJSON := obj.(message)
		if unknown, err := kjson.UnmarshalStrict(v.JSON, fromJSON); err != nil || len(unknown) > 0 {
			t.Errorf("%s: %v %v", v.Kind, err, unknown)
			continue
		}
		if b := encode(t, fromJSON); hex.EncodeToString(b) != v.Message {
			t.Errorf("%s: written as\n%x, want\n%s", v.Kind, b, v.Message)
		}
		wrapped, err := hex.DecodeString(v.Envelope)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := envelope.Decode(wrapped, nil, nil)
		if err != nil || !equality.Semantic.DeepEqual(got, runtime.Object(fromJSON)) {
			t.Errorf("%s: the envelope has %+v (%v), want %+v", v.Kind, got, err, fromJSON)
			continue
		}
		var again bytes.Buffer
		if err := envelope.Encode(got, &again); err != nil || hex.EncodeToString(again.Bytes()) != v.Envelope {
			t.Errorf("%s: in its envelope\n%x (%v), want\n%s", v.Kind, again.Bytes(), err, v.Envelope)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := errors.Join(json.Unmarshal(text, &a), json.Unmarshal(v.JSON, &b)); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("%s: as JSON\n%s (%v), want\n%s", v.Kind, text, err, v.JSON)
		}
	}
	for _, kind := range []string{"NetworkPolicy", "NetworkPolicyList", "AddressGroup", "AddressGroupPatch", "AppliedToGroup", "AppliedToGroupPatch",
		"NetworkPolicyStatus", "NodeStatsSummary", "NetworkPolicyEvaluation"} {
		if !seen[kind] {
			t.Errorf("no vector of %s", kind)
		}
	}
}

type vector struct {
	Kind, Message, Envelope string
	JSON                    json.RawMessage
}

// vectors reads the file of public data, which may not be here.
func vectors(t *testing.T) []vector {
	t.Helper()
	dir := os.Getenv("ISOBAR_SHARED")
	if dir == "" {
		var err error
		if dir, err = filepath.Abs("../../../../shared"); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(filepath.Join(dir, "conformance", "controlplane-v1beta2.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("missing: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []vector
	for s := bufio.NewScanner(f); s.Scan(); {
		var v vector
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		t.Fatal("no vectors")
	}
	return out
}
