package names_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"isobar.dev/dataplane/names"
)

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// message packs an answer to a question of name: records are "owner ttl value", the value being an address, a
// hint as "hint=address", or else an alias.
func message(t testing.TB, name string, change func(*dnsmessage.Message), records ...string) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, Response: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	for _, r := range records {
		f := strings.Fields(r)
		var ttl uint32
		fmt.Sscan(f[1], &ttl)
		x := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName(f[0]), Class: dnsmessage.ClassINET, TTL: ttl}}
		hint, isHint := strings.CutPrefix(f[2], "hint=")
		a, err := netip.ParseAddr(strings.TrimPrefix(f[2], "hint="))
		switch {
		case isHint:
			key := dnsmessage.SVCParamIPv4Hint
			if a.Is6() {
				key = dnsmessage.SVCParamIPv6Hint
			}
			_ = hint
			x.Body = &dnsmessage.HTTPSResource{SVCBResource: dnsmessage.SVCBResource{Priority: 1, Target: dnsmessage.MustNewName("."), Params: []dnsmessage.SVCParam{{Key: key, Value: a.AsSlice()}}}}
		case err != nil:
			x.Body = &dnsmessage.CNAMEResource{CNAME: dnsmessage.MustNewName(f[2])}
		case a.Is4():
			x.Body = &dnsmessage.AResource{A: a.As4()}
		default:
			x.Body = &dnsmessage.AAAAResource{AAAA: a.As16()}
		}
		m.Answers = append(m.Answers, x)
	}
	if change != nil {
		change(&m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func show(a names.Answer) string {
	out := []string{a.Name}
	for _, f := range a.Addrs {
		out = append(out, fmt.Sprintf("%v/%v", f.Addr, f.TTL))
	}
	return strings.Join(out, " ")
}

// An answer is of the name that was asked for; only what that leads to counts, for as long as all of it does.
func TestParse(t *testing.T) {
	many := []string{}
	for i := range 70 {
		many = append(many, fmt.Sprintf("n%d.x. 9 n%d.x.", i, i+1))
	}
	for _, tt := range []struct {
		what, name string
		change     func(*dnsmessage.Message)
		records    []string
		want       string // "" for an error
	}{
		{"addresses", "DB.Example.", nil, []string{"db.example. 60 10.0.0.1", "dB.example. 30 10.0.0.2", "db.example. 9 fd00::1"}, "db.example 10.0.0.1/1m0s 10.0.0.2/30s fd00::1/9s"},
		{"mapped", "a.x.", nil, []string{"a.x. 9 ::ffff:10.0.0.1"}, "a.x 10.0.0.1/9s"},
		{"aliases", "a.x.", nil, []string{"a.x. 60 b.y.", "b.y. 5 c.z.", "c.z. 30 10.0.0.1"}, "a.x 10.0.0.1/5s"},
		{"aliases in any order", "a.x.", nil, []string{"c.z. 3 10.0.0.1", "B.y. 5 C.z.", "a.X. 60 b.Y."}, "a.x 10.0.0.1/3s"},
		{"aliases in a circle", "a.x.", nil, []string{"a.x. 60 b.x.", "b.x. 60 a.x.", "b.x. 6 10.0.0.1"}, "a.x 10.0.0.1/6s"},
		{"too many aliases", "n0.x.", nil, many, ""},
		{"of another name", "a.x.", nil, []string{"bank.example. 60 10.0.0.1", "a.x. 60 10.0.0.2"}, "a.x 10.0.0.2/1m0s"},
		{"hints", "a.x.", nil, []string{"a.x. 60 hint=10.0.0.1", "a.x. 60 hint=fd00::1"}, "a.x 10.0.0.1/1m0s fd00::1/1m0s"},
		{"a TTL that is none", "a.x.", nil, []string{"a.x. 4294967295 10.0.0.1"}, "a.x 10.0.0.1/0s"},
		{"no such name", "a.x.", func(m *dnsmessage.Message) { m.RCode = dnsmessage.RCodeNameError }, []string{"a.x. 60 10.0.0.1"}, "a.x"},
		{"nothing", "a.x.", nil, nil, "a.x"},
		{"truncated", "a.x.", func(m *dnsmessage.Message) { m.Truncated = true }, []string{"a.x. 60 10.0.0.1"}, "a.x 10.0.0.1/1m0s"},
		{"the root", ".", nil, nil, ""},
		{"a question", "a.x.", func(m *dnsmessage.Message) { m.Response = false }, nil, ""},
		{"two questions", "a.x.", func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }, nil, ""},
		{"no question, and refused", "a.x.", func(m *dnsmessage.Message) { m.Questions, m.RCode = nil, dnsmessage.RCodeFormatError }, nil, " "},
		{"no question, and answers", "a.x.", func(m *dnsmessage.Message) { m.Questions = nil }, []string{"a.x. 60 10.0.0.1"}, ""},
		{"of another class", "a.x.", func(m *dnsmessage.Message) { m.Answers[0].Header.Class = dnsmessage.ClassCHAOS }, []string{"a.x. 60 10.0.0.1"}, "a.x"},
		{"additional", "a.x.", func(m *dnsmessage.Message) { m.Additionals, m.Answers = m.Answers, nil }, []string{"a.x. 60 10.0.0.1"}, "a.x"},
	} {
		got, err := names.Parse(message(t, tt.name, tt.change, tt.records...))
		switch {
		case tt.what == "the root":
			if err != nil || got.Name != "" {
				t.Errorf("%s: %q, %v", tt.what, got.Name, err)
			}
		case tt.want == "":
			if err == nil {
				t.Errorf("%s: %q, no error", tt.what, show(got))
			}
		case err != nil || show(got) != strings.TrimSpace(tt.want):
			t.Errorf("%s: %q, %v; want %q", tt.what, show(got), err, tt.want)
		}
	}
	whole := message(t, "a.x.", func(m *dnsmessage.Message) { m.Authorities, m.Additionals = m.Answers[1:2], m.Answers[:1] }, "a.x. 60 b.y.", "b.y. 60 10.0.0.1", "a.x. 60 hint=10.0.0.1")
	for n := range whole {
		if got, err := names.Parse(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes: %q, no error", n, len(whole), show(got))
		}
	}
}

var server, client = netip.MustParseAddrPort("10.0.0.53:53"), netip.MustParseAddrPort("10.1.0.1:40000")

// packet is an IP packet from server to client.
func packet(from, to netip.AddrPort, protocol byte, data []byte) []byte {
	var b []byte
	if from.Addr().Is4() {
		b = binary.BigEndian.AppendUint16([]byte{0x45, 0}, uint16(20+len(data)))
		b = append(b, 0, 0, 0x40, 0, 64, protocol, 0, 0)
	} else {
		b = binary.BigEndian.AppendUint16([]byte{0x60, 0, 0, 0}, uint16(len(data)))
		b = append(b, protocol, 64)
	}
	b = append(append(b, from.Addr().AsSlice()...), to.Addr().AsSlice()...)
	return append(b, data...)
}

func udp(from, to netip.AddrPort, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from.Port()), to.Port())
	b = append(binary.BigEndian.AppendUint16(b, uint16(8+len(data))), 0, 0)
	return packet(from, to, 17, append(b, data...))
}

func tcp(seq uint32, flags byte, data []byte) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, server.Port()), client.Port())
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, seq), 0)
	b = append(b, 5<<4, flags, 0, 0, 0, 0, 0, 0)
	return packet(server, client, 6, append(b, data...))
}

// keep returns what appends answers to list.
func keep(list *[]string) func(names.Answer) error {
	return func(a names.Answer) error {
		*list = append(*list, show(a))
		return nil
	}
}

func TestPackets(t *testing.T) {
	m := message(t, "a.x.", nil, "a.x. 9 10.0.0.1")
	six := func(p netip.AddrPort) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr("fd00::1"), p.Port())
	}
	v6 := udp(six(server), six(client), m)
	extended := slices.Concat(v6[:40], []byte{17, 0, 1, 4, 0, 0, 0, 0}, v6[40:])
	extended[6] = 60
	binary.BigEndian.PutUint16(extended[4:], uint16(len(extended)-40))
	fragment := udp(server, client, m)
	fragment[6] = 0x20
	for _, tt := range []struct {
		name   string
		packet []byte
		ok     bool
	}{
		{"IPv4", udp(server, client, m), true},
		{"IPv6", v6, true},
		{"IPv6 with options", extended, true},
		{"with bytes behind it", append(udp(server, client, m), 0, 0, 0), true},
		{"a fragment", fragment, false},
		{"cut", udp(server, client, m)[:40], false},
		{"empty", nil, false},
		{"of version 5", []byte{0x50}, false},
		{"no UDP nor TCP", packet(server, client, 1, m), false},
	} {
		var got []string
		err := names.NewReader().Read(start, tt.packet, keep(&got))
		if (err == nil) != tt.ok || tt.ok && !slices.Equal(got, []string{"a.x 10.0.0.1/9s"}) || !tt.ok && got != nil {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
	}
	fail := errors.New("no")
	if err := names.NewReader().Read(start, udp(server, client, m), func(names.Answer) error { return fail }); !errors.Is(err, fail) {
		t.Errorf("%v", err)
	}
}

// However a stream is cut, sent again and lost, each answer is learned before the packet passes without which
// nobody can read it.
func TestStreams(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var stream []byte
		var want []string
		var ends []int // of the messages
		for i := range 1 + rnd.IntN(4) {
			m := message(t, fmt.Sprintf("n%d.x.", i), nil, fmt.Sprintf("n%d.x. 9 10.0.0.%d", i, i))
			stream = append(binary.BigEndian.AppendUint16(stream, uint16(len(m))), m...)
			want = append(want, fmt.Sprintf("n%d.x 10.0.0.%d/9s", i, i))
			ends = append(ends, len(stream))
		}
		first := rnd.Uint32()
		if seed%2 == 0 {
			first = -uint32(rnd.IntN(len(stream))) // numbers begin anew
		}
		r := names.NewReader()
		var got []string
		refuse := false
		read := func(from, to int) bool {
			err := r.Read(start, tcp(first+1+uint32(from), 0x18, stream[from:to]), func(a names.Answer) error {
				if refuse {
					return errors.New("not now")
				}
				return keep(&got)(a)
			})
			return err == nil
		}
		if err := r.Read(start, tcp(first, 0x12, nil), keep(&got)); err != nil {
			t.Fatal(err)
		}
		has := make([]bool, len(stream)) // what the client has
		passed := 0
		for tries := 0; passed < len(stream); tries++ {
			if tries > 10000 {
				t.Fatalf("seed %d: never whole", seed)
			}
			from := max(0, passed-rnd.IntN(20))
			if rnd.IntN(5) == 0 {
				from = min(len(stream)-1, passed+rnd.IntN(20))
			}
			to := min(len(stream), from+1+rnd.IntN(60))
			if refuse = rnd.IntN(5) == 0; !read(from, to) {
				continue
			}
			for i := from; i < to; i++ {
				has[i] = true
			}
			for passed < len(stream) && has[passed] {
				passed++
			}
			for i, end := range ends {
				if passed >= end && len(got) <= i {
					t.Fatalf("seed %d: message %d has passed and is not learned", seed, i)
				}
			}
		}
		// One of several in a packet that was refused may be learned twice.
		if got = slices.Compact(got); !slices.Equal(slices.Compact(slices.Sorted(slices.Values(got))), want) {
			t.Fatalf("seed %d: %q, want %q", seed, got, want)
		}
	}
}

// What cannot be followed does not pass; what carries nothing does.
func TestBrokenStreams(t *testing.T) {
	m := message(t, "a.x.", nil, "a.x. 9 10.0.0.1")
	whole := append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
	bad := append(binary.BigEndian.AppendUint16(nil, 20), make([]byte, 20)...)
	var got []string
	r := names.NewReader()
	for _, tt := range []struct {
		name string
		at   time.Duration
		b    []byte
		ok   bool
	}{
		{"data of nobody", 0, tcp(5, 0x18, whole), false},
		{"an acknowledgement of nobody", 0, tcp(5, 0x10, nil), true},
		{"a reset of nobody", 0, tcp(5, 0x14, nil), true},
		{"the end of nobody", 0, tcp(5, 0x11, nil), true},
		{"a beginning", 0, tcp(100, 0x12, nil), true},
		{"what comes later", 0, tcp(102, 0x18, whole[1:]), false},
		{"what is no message", 0, tcp(101, 0x18, bad), false},
		{"a message behind that", 0, tcp(123, 0x18, whole), false},
		{"the same as good", 0, tcp(101, 0x18, whole), false},
		{"a new beginning", 0, tcp(200, 0x12, nil), true},
		{"a message", 0, tcp(201, 0x18, whole), true},
		{"again", 0, tcp(201, 0x18, whole), true},
		{"a reset", 0, tcp(201+uint32(len(whole)), 0x14, nil), true},
		{"a message behind that", 0, tcp(201+uint32(len(whole)), 0x18, whole), false},
		{"a header that is too short", 0, packet(server, client, 6, make([]byte, 19)), false},
	} {
		if err := r.Read(start.Add(tt.at), tt.b, keep(&got)); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if len(got) != 1 {
		t.Errorf("%q", got)
	}
}

// A Reader holds no more than its bounds say, whoever sends.
func TestReaderBounds(t *testing.T) {
	r := names.NewReader()
	part := append([]byte{0xff, 0xff}, make([]byte, 60000)...)
	nothing := func(names.Answer) error { return nil }
	refused := 0
	send := func(i int, seq uint32, flags byte, data []byte) {
		b := tcp(seq, flags, data)
		binary.BigEndian.PutUint32(b[12:], uint32(i)) // source
		if r.Read(start, b, nothing) != nil {
			refused++
		}
	}
	for i := range 5000 {
		send(i, 0, 0x12, nil)
		send(i, 1, 0x18, part)
	}
	if n := r.Held(); n > 16<<20 {
		t.Errorf("%d bytes are held", n)
	}
	if refused != 0 {
		t.Errorf("%d were refused", refused)
	}
	send(0, 60003, 0x18, []byte{1})
	if refused != 1 {
		t.Error("a stream that was forgotten goes on")
	}
}

func FuzzRead(f *testing.F) {
	m := message(f, "a.x.", nil, "a.x. 9 b.y.", "b.y. 9 10.0.0.1", "a.x. 60 hint=10.0.0.1")
	whole := append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...)
	f.Add(udp(server, client, m), []byte{})
	f.Add(tcp(0, 0x12, nil), tcp(1, 0x18, whole))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		r := names.NewReader()
		c := names.New(names.Options{MaxNames: 3, MaxAddrs: 3})
		c.Use([][]string{{"*"}})
		for _, p := range [][]byte{a, b, b} {
			_ = r.Read(start, p, func(x names.Answer) error {
				if back, err := names.Hidden(names.Show(x.Name)); err != nil || back != x.Name {
					t.Errorf("%q became %q, %v", x.Name, back, err)
				}
				if x.Name != names.Normal(x.Name) {
					t.Errorf("%q is not normal", x.Name)
				}
				_, err := c.Learn(start, x)
				return err
			})
		}
		if n := c.Counts(); n.Names > 3 || n.Addrs > 9 {
			t.Errorf("%+v", n)
		}
	})
}

// BenchmarkRead reads one answer of four addresses behind an alias.
func BenchmarkRead(b *testing.B) {
	m := message(b, "db.example.", nil, "db.example. 60 lb.cdn.example.", "lb.cdn.example. 60 10.0.0.1", "lb.cdn.example. 60 10.0.0.2", "lb.cdn.example. 60 10.0.0.3", "lb.cdn.example. 60 10.0.0.4")
	p := udp(server, client, m)
	r := names.NewReader()
	b.ReportAllocs()
	for b.Loop() {
		if err := r.Read(start, p, func(names.Answer) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
