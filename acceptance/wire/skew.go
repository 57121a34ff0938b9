package wire

import (
	"bytes"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/watch"

	antreav1beta1 "isobar.dev/api/antrea/v1beta1"
	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

// News are what a controller of another version says.
type News int32

// The news. Those of rules are in the rules of one policy.
const (
	NoNews        News = iota
	NewMetadata        // beside what counts
	NewConditions      // a field of each rule that nobody knows
	NewActions
	NewProtocols
	NewDirections
	NoMoments // an older one, that knows of none
)

// Skew has the controller of a [Meddler] be of another version.
type Skew struct {
	t    testing.TB
	mu   sync.Mutex
	now  News
	uid  string
	told int
}

// NewSkew returns a Skew without news.
func NewSkew(t testing.TB) *Skew { return &Skew{t: t} }

// Turn has the controller have news from now on, about the policy with that UID. Whether it tells of moments,
// watches that begin later hear.
func (s *Skew) Turn(to News, uid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.uid, s.told = to, uid, 0
}

// Told is how many events have had the news.
func (s *Skew) Told() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

// Each is that of a [Meddler].
func (s *Skew) Each(string) func(Frame) []Frame {
	isBegun := false
	return func(e Frame) []Frame {
		s.mu.Lock()
		defer s.mu.Unlock()
		first := !isBegun
		isBegun = isBegun || e.Type == watch.Bookmark
		out := newer(s.t, s.now, s.uid, e, first)
		if len(out) != 1 || !bytes.Equal(out[0].Object.Raw, e.Object.Raw) {
			s.told++
		}
		return out
	}
}

// newer returns what is sent in place of an event by a controller with news about a policy.
func newer(t testing.TB, now News, uid string, e Frame, first bool) []Frame {
	unknown := protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "new")
	switch {
	case now == NoMoments && e.Type == watch.Bookmark:
		if !first {
			return nil
		}
		e.Object.Raw = nil
	case now == NewMetadata && e.Type == watch.Added && e.Object.Kind != "NetworkPolicy":
		e.Object.Raw = append(bytes.Clone(e.Object.Raw), unknown...)
	case now >= NewConditions && now <= NewDirections && e.Object.Kind == "NetworkPolicy" && e.Type != watch.Deleted:
		var p controlplanev1beta2.NetworkPolicy
		if err := p.Unmarshal(e.Object.Raw); err != nil {
			t.Error(err)
		}
		if p.Name != uid {
			break
		}
		rules := p.Rules
		p.Rules = nil
		raw, err := p.Marshal()
		if err != nil {
			t.Error(err)
		}
		for _, r := range rules {
			switch now {
			case NewActions:
				r.Action = new(antreav1beta1.RuleAction("Permit"))
			case NewProtocols:
				r.Services = []controlplanev1beta2.Service{{Protocol: new(controlplanev1beta2.Protocol("QUIC"))}}
			case NewDirections:
				r.Direction = "Sideways"
			}
			text, err := r.Marshal()
			if err != nil {
				t.Error(err)
			}
			if now == NewConditions {
				text = append(text, unknown...)
			}
			raw = protowire.AppendBytes(protowire.AppendTag(raw, 2, protowire.BytesType), text)
		}
		e.Object.Raw = raw
	}
	return []Frame{e}
}
