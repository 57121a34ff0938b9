package v1beta2_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	controlplanev1beta2 "isobar.dev/api/controlplane/v1beta2"
)

type kindPosition = controlplanev1beta2.KindPosition

func positionOf(kinds ...kindPosition) controlplanev1beta2.Position {
	return controlplanev1beta2.Position{Cluster: "c-1", Kinds: kinds}
}

func TestParsePosition(t *testing.T) {
	for _, text := range []string{"c-1", "c-1 pod:a.3.2", "c-1 node:0.0.0 pod:zz.3.2.1", "c-1 pod:3w5e11264sgsf.0.0"} {
		p, err := controlplanev1beta2.ParsePosition(text)
		if err != nil || p.String() != text {
			t.Errorf("ParsePosition(%q) = %+v, %v", text, p, err)
		}
	}
	if got, want := positionOf(kindPosition{"pod", 1000, 990, 980, 7}).String(), "c-1 pod:rs.a.7.a"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, text := range []string{
		"", " ", " pod:1.0.0", "c-1 ", "c-1  pod:1.0.0", "c-1 pod", "c-1 pod:", "c-1 pod:1", "c-1 pod:1.0", "c-1 pod:1.0.0.0.0", "c-1 :1.0.0", "c-1 Pod:1.0.0",
		"c-1 pod:1.0.0.0", "c-1 pod:01.0.0", "c-1 pod:A.0.0", "c-1 pod:+1.0.0", "c-1 pod:-1.0.0", "c-1 pod:1.2.0", "c-1 pod:5.2.0.4", "c-1 pod:3w5e11264sgsg.0.0",
		"c-1 pod:1.0.0 node:1.0.0", "c-1 pod:1.0.0 pod:1.0.0", "c-1 pod:1.0.0 ", strings.Repeat("c", 65), "c-1 " + strings.Repeat("k", 17) + ":1.0.0",
		"c-1" + strings.Repeat(" pod:1.0.0", 500),
	} {
		if p, err := controlplanev1beta2.ParsePosition(text); err == nil {
			t.Errorf("ParsePosition(%q) = %+v, want an error", text, p)
		}
	}
}

func FuzzParsePosition(f *testing.F) {
	f.Add("c-1 node:1.0.0 pod:zz.3.2.1")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := controlplanev1beta2.ParsePosition(text)
		if err != nil {
			return
		}
		if p.String() != text {
			t.Errorf("%q became %q", text, p)
		}
		if lacks := p.Lacks(p); len(lacks) > 0 {
			t.Errorf("%q lacks %v of itself", text, lacks)
		}
	})
}

func TestLacks(t *testing.T) {
	for _, tt := range []struct {
		what string
		p, q controlplanev1beta2.Position
		want []string
	}{
		{"the same", positionOf(kindPosition{"pod", 10, 10, 10, 1}), positionOf(kindPosition{"pod", 10, 10, 10, 1}), nil},
		{"read as far as the last change", positionOf(kindPosition{"pod", 10, 2, 2, 1}), positionOf(kindPosition{"pod", 90, 10, 10, 1}), nil},
		{"to just there, with more to come", positionOf(kindPosition{"pod", 10, 10, 10, 2}), positionOf(kindPosition{"pod", 90, 10, 10, 1}), nil},
		{"not as far", positionOf(kindPosition{"pod", 9, 9, 9, 1}), positionOf(kindPosition{"pod", 90, 10, 10, 1}), []string{"pod"}},
		{"further in one alone", positionOf(kindPosition{"node", 9, 9, 9, 1}, kindPosition{"pod", 99, 99, 99, 1}), positionOf(kindPosition{"node", 10, 10, 10, 1}, kindPosition{"pod", 9, 9, 9, 1}), []string{"node"}},
		{"the same as a list", positionOf(kindPosition{"tier", 5, 5, 5, 3}), positionOf(kindPosition{"tier", 90, 90, 5, 3}), nil},
		{"one that the list lacks", positionOf(kindPosition{"tier", 5, 5, 5, 4}), positionOf(kindPosition{"tier", 90, 90, 5, 3}), []string{"tier"}},
		{"older than an object of the list", positionOf(kindPosition{"tier", 4, 4, 4, 3}), positionOf(kindPosition{"tier", 90, 90, 5, 3}), []string{"tier"}},
		{"none, as a list", positionOf(kindPosition{"tier", 4, 4, 4, 0}), positionOf(kindPosition{"tier", 90, 90, 90, 0}), nil},
		{"another cluster", controlplanev1beta2.Position{Cluster: "c-2", Kinds: []kindPosition{{"pod", 1, 1, 1, 1}}}, positionOf(kindPosition{"pod", 9, 9, 9, 1}), nil},
		{"a kind that is not read", positionOf(), positionOf(kindPosition{"pod", 9, 9, 9, 1}), nil},
	} {
		if got := tt.p.Lacks(tt.q); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v lacks %v of %v, want %v", tt.what, tt.p, got, tt.q, tt.want)
		}
	}
}

// history is what has happened to the objects of one kind.
type history []map[int]uint64 // by resourceVersion: each object, and where it last changed

// reader reads a history as a replica does: all at once, and then change by change.
type reader struct {
	h    history
	at   uint64
	has  map[int]uint64
	told kindPosition
}

func (r *reader) list(at uint64) {
	r.at, r.has = at, r.h[at]
	r.told = kindPosition{Kind: "k", Read: at, Changed: at, Count: uint64(len(r.has))}
	if len(r.has) == 0 {
		r.told.Newest = at
	}
	for _, v := range r.has {
		r.told.Newest = max(r.told.Newest, v)
	}
}

func (r *reader) watch(to uint64, hasBookmarks bool) {
	for r.at < to {
		r.at++
		r.has = r.h[r.at]
		if !equal(r.h[r.at], r.h[r.at-1]) {
			r.told = kindPosition{Kind: "k", Read: r.at, Changed: r.at, Newest: r.at, Count: uint64(len(r.has))}
		} else if hasBookmarks {
			r.told.Read = r.at
		}
	}
}

// On random histories nobody who is behind is taken for one who is not, and who has all is
// never held up.
func TestLacksOfHistories(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	same, behind := 0, 0
	for range 20_000 {
		h := history{{}}
		for v := uint64(1); v < 12; v++ {
			next := map[int]uint64{}
			for o, at := range h[v-1] {
				next[o] = at
			}
			switch o := rnd.IntN(3); rnd.IntN(4) {
			case 0: // a change of another kind
			case 1:
				delete(next, o)
			default:
				next[o] = v
			}
			h = append(h, next)
		}
		a, b := &reader{h: h}, &reader{h: h}
		for _, r := range []*reader{a, b} {
			from := rnd.Uint64N(12)
			r.list(from)
			r.watch(from+rnd.Uint64N(12-from), rnd.IntN(2) == 0)
		}
		lacks := len(positionOf(b.told).Lacks(positionOf(a.told))) > 0
		isBehind := false // b lacks a change that is in a
		for v := b.at + 1; v <= a.at; v++ {
			isBehind = isBehind || !equal(h[v], h[v-1])
		}
		if isBehind && !lacks && !equal(a.has, b.has) {
			t.Fatalf("%+v at %d is taken to have all of %+v at %d", b.told, b.at, a.told, a.at)
		}
		if !isBehind && lacks {
			t.Fatalf("%+v at %d has all of %+v at %d, and is held up", b.told, b.at, a.told, a.at)
		}
		if lacks {
			behind++
		} else {
			same++
		}
	}
	if same < 1000 || behind < 1000 {
		t.Errorf("%d were taken, %d held up", same, behind)
	}
}

func equal(a, b map[int]uint64) bool {
	if len(a) != len(b) {
		return false
	}
	for o, v := range a {
		if b[o] != v {
			return false
		}
	}
	return true
}

// What an agent does with the position of a bookmark.
func BenchmarkPosition(b *testing.B) {
	p := controlplanev1beta2.Position{Cluster: "0b5ec0a8-6f4f-4a5e-9a53-6a2fe1d0a001"}
	for i := range uint64(14) {
		p.Kinds = append(p.Kinds, kindPosition{string(rune('a' + i)), 123_456_789 + i, 123_456_000 + i, 123_456_000 + i, 7 * i})
	}
	text := p.String()
	b.ReportAllocs()
	for b.Loop() {
		q, err := controlplanev1beta2.ParsePosition(text)
		if err != nil || len(q.Lacks(p)) > 0 {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(text)), "bytes")
}
