package apiserver

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	statsv1alpha1 "isobar.dev/api/stats/v1alpha1"
)

// wrapped is a message in Kubernetes' envelope.
func wrapped(t testing.TB, raw []byte) []byte {
	t.Helper()
	b, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "controlplane.antrea.io/v1beta2", Kind: "NodeStatsSummary"}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), b...)
}

// made counts what a summary has that takes room, whether it was read to its end or not.
func made(s *controlplanev1beta2.NodeStatsSummary) int {
	n := len(s.Multicast)
	for _, m := range s.Multicast {
		n += len(m.Pods)
	}
	for _, list := range [][]controlplanev1beta2.NetworkPolicyStats{s.NetworkPolicies, s.AntreaNetworkPolicies, s.AntreaClusterNetworkPolicies} {
		n += len(list)
		for _, x := range list {
			n += len(x.RuleTrafficStats)
		}
	}
	return n
}

func TestElements(t *testing.T) {
	var node []byte // of a summary's name
	node = protowire.AppendBytes(protowire.AppendTag(node, 1, protowire.BytesType), []byte("\x0a\x02n1"))
	many := bytes.Repeat([]byte{0x12, 0}, 1000)
	nested := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), bytes.Repeat([]byte{0x1a, 0}, 1000))
	for _, tt := range []struct {
		name, contentType string
		body              []byte
		least             int
		ok                bool
	}{
		{"empty elements", runtime.ContentTypeProtobuf, wrapped(t, append(node, many...)), 1000, true},
		{"elements of an element", runtime.ContentTypeProtobuf, wrapped(t, nested), 1001, true},
		{"elements before what is wrong", runtime.ContentTypeProtobuf, wrapped(t, append(bytes.Clone(many), 0xff)), 1000, true},
		{"elements of an element that is wrong", runtime.ContentTypeProtobuf, wrapped(t, protowire.AppendBytes([]byte{0x12}, append(bytes.Repeat([]byte{0x1a, 0}, 1000), 7))), 1000, true},
		{"no envelope", runtime.ContentTypeProtobuf, many, 1000, true},
		{"JSON", runtime.ContentTypeJSON, []byte(`{"nodes":[{},{},{}]}`), 4, true},
		{"JSON with parameters", "application/json; charset=utf-8", []byte(`{"nodes":[{},{},{}]}`), 4, true},
		{"no type", "", []byte(`{"nodes":[{},{},{}]}`), 4, true},
		{"YAML", runtime.ContentTypeYAML, []byte("nodes:\n-\n-\n"), 0, false},
		{"no media type", ";", nil, 0, false},
	} {
		if n, ok := elements(tt.contentType, tt.body); n < tt.least || ok != tt.ok {
			t.Errorf("elements of %s = %d, %t; want %d or more, %t", tt.name, n, ok, tt.least, tt.ok)
		}
	}
}

// What agents report is far below the limit, at the most policies that a report is for.
func TestElementsOfALargeReport(t *testing.T) {
	name := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz0123456789-"[rand.N(37)]
		}
		return string(b)
	}
	var s controlplanev1beta2.NodeStatsSummary
	counts := statsv1alpha1.TrafficStats{Packets: 1 << 20, Bytes: 1 << 30, Sessions: 1 << 10}
	for range 5000 {
		x := controlplanev1beta2.NetworkPolicyStats{TrafficStats: counts}
		x.NetworkPolicy.Type, x.NetworkPolicy.Namespace, x.NetworkPolicy.Name = controlplanev1beta2.AntreaNetworkPolicy, name(8), name(12)
		for range 2 {
			x.RuleTrafficStats = append(x.RuleTrafficStats, statsv1alpha1.RuleTrafficStats{Name: name(10), TrafficStats: counts})
		}
		s.AntreaNetworkPolicies = append(s.AntreaNetworkPolicies, x)
	}
	raw, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := elements(runtime.ContentTypeProtobuf, wrapped(t, raw)); n > maxElements*3/4 || len(raw) > maxReport {
		t.Errorf("5,000 policies are %d elements in %d bytes, of %d and %d", n, len(raw), maxElements, maxReport)
	}
}

// Nothing that is read has more elements than were counted, whether it can be read to its end or not.
func TestNoElementIsMissed(t *testing.T) {
	parts := [][]byte{{0x12, 0}, {0x1a, 0}, {0x22, 2, 0x1a, 0}, {0x12, 4, 0x1a, 0, 0x1a, 0}, {0x1a, 3, 0x1a, 0, 0xff}, {0x2a, 4, 0x12, 0, 0x12, 0}, {0x0a, 2, 0x0a, 0}, {8, 1}, {0x13}, {0x12, 9}, {0x80}}
	most := 0
	for range 50_000 {
		var raw []byte
		for range rand.N(12) {
			raw = append(raw, parts[rand.N(len(parts))]...)
		}
		var s controlplanev1beta2.NodeStatsSummary
		_ = s.Unmarshal(raw)
		if n, _ := elements(runtime.ContentTypeProtobuf, wrapped(t, raw)); n < made(&s) {
			t.Fatalf("of % x %d elements are counted, and %d are read", raw, n, made(&s))
		}
		most = max(most, made(&s))
	}
	if most < 10 {
		t.Errorf("no message had more than %d elements", most)
	}
}
