package antrea_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
	"isobar.dev/api/convert"
	"isobar.dev/policy"
	"isobar.dev/source/antrea"
)

// insideProtobuf returns a message with a field that nobody knows in the message at path, which
// is the numbers of fields that lead there, the first of each.
func insideProtobuf(t *testing.T, b []byte, path ...protowire.Number) []byte {
	t.Helper()
	if len(path) == 0 {
		return protowire.AppendVarint(protowire.AppendTag(bytes.Clone(b), 99, protowire.VarintType), 1)
	}
	var out []byte
	for isDone := false; len(b) > 0; {
		num, typ, tag := protowire.ConsumeTag(b)
		n := protowire.ConsumeFieldValue(num, typ, b[max(0, tag):])
		if tag < 0 || n < 0 {
			t.Fatal("no protobuf")
		}
		if num == path[0] && !isDone {
			isDone = true
			inner, _ := protowire.ConsumeBytes(b[tag:])
			out = protowire.AppendBytes(protowire.AppendTag(out, num, typ), insideProtobuf(t, inner, path[1:]...))
		} else {
			out = append(out, b[:tag+n]...)
		}
		b = b[tag+n:]
	}
	return out
}

// insideJSON does the same with the names of fields, and indices.
func insideJSON(o any, path ...any) {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			o = o.(map[string]any)[step]
		case int:
			o = o.([]any)[step]
		}
	}
	o.(map[string]any)["new"] = map[string]any{"x": 1}
}

// A rule of which something is not known allows nothing, and what it denies it denies
// everyone; the other rules are what they were, where it is not the policy's.
func TestUnknownFields(t *testing.T) {
	p := policyOf("p", antreav1beta1.RuleActionAllow, "db", "web")
	tcp, port := controlplanev1beta2.ProtocolTCP, controlplanev1beta2.Service{}
	port.Protocol = &tcp
	p.Rules[0].Services = []controlplanev1beta2.Service{port}
	p.Rules[0].From.IPBlocks = []controlplanev1beta2.IPBlock{{CIDR: controlplanev1beta2.IPNet{IP: controlplanev1beta2.IPAddress{10, 1, 0, 0}, PrefixLength: 16}}}
	p.Rules = append(p.Rules, *p.Rules[0].DeepCopy(), *p.Rules[0].DeepCopy())
	p.Rules[1].Action, p.Rules[1].Priority = new(antreav1beta1.RuleActionDrop), 1
	p.Rules[2].Priority = 2
	raw, err := p.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	drops := *p.DeepCopy()
	drops.Rules[0].Action = new(antreav1beta1.RuleActionDrop)
	rawDrops, err := drops.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const first = "Drop [10.1.0.0/16] Allow [10.1.0.0/16]" // the first rule is an Allow, and is not there
	for _, tt := range []struct {
		name     string
		json     []any
		protobuf []protowire.Number
		drops    bool
		want     string
	}{
		{"of metadata", []any{"metadata"}, []protowire.Number{1}, false, "Allow [10.1.0.0/16] " + first},
		{"of the reference", []any{"sourceRef"}, []protowire.Number{6}, false, "Allow [10.1.0.0/16] " + first},
		{"of an Allow", []any{"rules", 0}, []protowire.Number{2}, false, first},
		{"of an Allow's peer", []any{"rules", 0, "from"}, []protowire.Number{2, 2}, false, first},
		{"of an Allow's block", []any{"rules", 0, "from", "ipBlocks", 0}, []protowire.Number{2, 2, 2}, false, first},
		{"of an Allow's prefix", []any{"rules", 0, "from", "ipBlocks", 0, "cidr"}, []protowire.Number{2, 2, 2, 1}, false, first},
		{"of an Allow's traffic", []any{"rules", 0, "services", 0}, []protowire.Number{2, 4}, false, first},
		{"of a Drop", []any{"rules", 0}, []protowire.Number{2}, true, "Drop all " + first},
		{"of a Drop's peer", []any{"rules", 0, "from"}, []protowire.Number{2, 2}, true, "Drop all " + first},
		{"of the policy", nil, nil, false, "Drop all"},
	} {
		from, bytesOf := p, raw
		if tt.drops {
			from, bytesOf = drops, rawDrops
		}
		text, err := json.Marshal(&from)
		if err != nil {
			t.Fatal(err)
		}
		var o map[string]any
		if err := json.Unmarshal(text, &o); err != nil {
			t.Fatal(err)
		}
		o["apiVersion"], o["kind"] = controlplanev1beta2.GroupVersion.String(), "NetworkPolicy"
		insideJSON(o, tt.json...)
		line, err := json.Marshal(map[string]any{"type": watch.Modified, "object": o})
		if err != nil {
			t.Fatal(err)
		}
		object := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: controlplanev1beta2.GroupVersion.String(), Kind: "NetworkPolicy"}, Raw: insideProtobuf(t, bytesOf, tt.protobuf...)}
		body, err := object.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		event := metav1.WatchEvent{Type: string(watch.Modified), Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), body...)}}
		frame, err := event.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		frame = append([]byte{0, 0, byte(len(frame) >> 8), byte(len(frame))}, frame...)
		for _, sent := range [][]byte{line, frame} {
			what := with(sample(), func(in *convert.ControlPlane) { in.Policies[0] = from })
			inBubble(t, antrea.Options{}, func(c *controller) { c.have, c.inJSON = what, &sent[0] == &line[0] }, func(t *testing.T, c *controller, s *antrea.Source) {
				pass(time.Minute)
				c.send("networkpolicies", rawEvent{bytes: sent})
				pass(time.Minute)
				if got := rulesText(s.State().Ruleset); got != tt.want {
					t.Errorf("%s, in JSON %t: %s, want %s; %+v", tt.name, &sent[0] == &line[0], got, tt.want, s.Status())
				}
			})
		}
	}
}

// rulesText is the actions of rules, and their peers.
func rulesText(rs policy.Ruleset) string {
	var out []string
	for _, r := range rs.Rules {
		peers := "all"
		if !r.AllPeers {
			peers = fmt.Sprint(r.Blocks)
		}
		out = append(out, fmt.Sprint(r.Action, " ", peers))
	}
	return fmt.Sprint(out)[1 : len(fmt.Sprint(out))-1]
}
