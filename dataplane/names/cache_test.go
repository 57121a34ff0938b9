package names_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"isobar.dev/dataplane/names"
	"isobar.dev/policy"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func after(d time.Duration) time.Time { return start.Add(d) }

// answer is one of a name, with addresses, all for ttl.
func answer(name string, ttl time.Duration, addrs ...string) names.Answer {
	a := names.Answer{Name: name}
	for _, x := range addrs {
		a.Addrs = append(a.Addrs, names.Found{Addr: netip.MustParseAddr(x), TTL: ttl})
	}
	return a
}

func learn(t testing.TB, c *names.Cache, now time.Time, a names.Answer) []names.Change {
	t.Helper()
	changes, err := c.Learn(now, a)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

func text(addrs []netip.Addr) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

// Each address is known as long as its TTL says, whatever other names, answers and addresses say.
func TestExpiry(t *testing.T) {
	c := names.New(names.Options{})
	db, all := []string{"db.example"}, []string{"*.example"}
	c.Use([][]string{db, all})
	learn(t, c, after(0), answer("db.example", 10*time.Second, "10.0.0.1", "10.0.0.2"))
	learn(t, c, after(5*time.Second), answer("db.example", 10*time.Second, "10.0.0.2"))
	learn(t, c, after(5*time.Second), answer("api.example", 30*time.Second, "10.0.0.1"))
	learn(t, c, after(5*time.Second), answer("api.example", 8*time.Second, "10.0.0.1")) // what was told before still counts
	learn(t, c, after(5*time.Second), answer("zero.example", 0, "10.0.0.3"))
	learn(t, c, after(5*time.Second), answer("elsewhere.org", time.Hour, "10.0.0.4"))
	for _, tt := range []struct {
		at      time.Duration
		db, all string
	}{
		{9 * time.Second, "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2 10.0.0.3"},
		{10 * time.Second, "10.0.0.2", "10.0.0.1 10.0.0.2"}, // 10.0.0.3 is known for the least time, of 5 s
		{14 * time.Second, "10.0.0.2", "10.0.0.1 10.0.0.2"},
		{15 * time.Second, "", "10.0.0.1"},
		{34 * time.Second, "", "10.0.0.1"},
		{35 * time.Second, "", ""},
	} {
		c.Expire(after(tt.at))
		if got := text(c.Addrs(db)); got != tt.db {
			t.Errorf("%v: db.example: %q, want %q", tt.at, got, tt.db)
		}
		if got := text(c.Addrs(all)); got != tt.all {
			t.Errorf("%v: *.example: %q, want %q", tt.at, got, tt.all)
		}
	}
	if n := c.Counts(); n.Names != 0 || n.Addrs != 0 || n.Learned != 4 || n.Expired != 4 {
		t.Errorf("%+v", n)
	}
}

// Whatever an answer says, it does not count for more than a day.
func TestMostTTL(t *testing.T) {
	c := names.New(names.Options{})
	c.Use([][]string{{"*"}})
	learn(t, c, start, answer("a.x", 1<<31*time.Second, "10.0.0.1"))
	if _, next := c.Expire(start); !next.Equal(after(24 * time.Hour)) {
		t.Errorf("until %v", next)
	}
}

// What is told again is no change.
func TestRefresh(t *testing.T) {
	c := names.New(names.Options{})
	c.Use([][]string{{"db.example"}, {"*.example", "db.example"}})
	a := answer("db.example", time.Minute, "10.0.0.1")
	if got := learn(t, c, after(0), a); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := learn(t, c, after(time.Second), a); got != nil {
		t.Errorf("%v", got)
	}
	if got, next := c.Expire(after(time.Minute)); got != nil || !next.Equal(after(61*time.Second)) {
		t.Errorf("%v, %v", got, next)
	}
	if got, next := c.Expire(after(61 * time.Second)); len(got) != 2 || !next.IsZero() {
		t.Errorf("%v, %v", got, next)
	}
}

// At each bound it is what was learned longest ago that goes, and it is counted.
func TestBounds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		o       names.Options
		learn   []string // names with addresses
		want    string
		evicted [3]uint64
	}{
		{"names", names.Options{MaxNames: 2}, []string{"a.x 1.0.0.1", "b.y 1.0.0.2", "a.x 1.0.0.1", "c.x 1.0.0.3"}, "a.x 1.0.0.1, c.x 1.0.0.3", [3]uint64{0, 1, 0}},
		{"names of a pattern", names.Options{MaxWildcard: 2}, []string{"a.x 1.0.0.1", "b.y 1.0.0.2", "b.x 1.0.0.3", "c.x 1.0.0.4"}, "b.x 1.0.0.3, b.y 1.0.0.2, c.x 1.0.0.4", [3]uint64{1, 0, 0}},
		{"addresses of a name", names.Options{MaxAddrs: 2}, []string{"a.x 1.0.0.1", "a.x 1.0.0.2", "a.x 1.0.0.3"}, "a.x 1.0.0.2 1.0.0.3", [3]uint64{0, 0, 1}},
		{"addresses", names.Options{MaxTotal: 3}, []string{"a.x 1.0.0.1", "b.x 1.0.0.2", "c.y 1.0.0.3 1.0.0.4"}, "b.x 1.0.0.2, c.y 1.0.0.3 1.0.0.4", [3]uint64{0, 1, 0}},
	} {
		c := names.New(tt.o)
		c.Use([][]string{{"*.x"}, {"*.y"}})
		for i, l := range tt.learn {
			f := strings.Fields(l)
			learn(t, c, after(time.Duration(i)*time.Second), answer(f[0], time.Hour, f[1:]...))
		}
		var got []string
		for _, k := range c.List() {
			s := k.Name
			for _, a := range k.Addrs {
				s += " " + a.Addr.String()
			}
			got = append(got, s)
		}
		n := c.Counts()
		if s := strings.Join(got, ", "); s != tt.want || [3]uint64{n.EvictedByPattern, n.Evicted, n.EvictedAddrs} != tt.evicted {
			t.Errorf("%s: %q, %+v; want %q, %v", tt.name, s, n, tt.want, tt.evicted)
		}
	}
	// What an answer has just told stays, however short it is for.
	d := names.New(names.Options{MaxAddrs: 2})
	d.Use([][]string{{"a.x"}})
	learn(t, d, start, answer("a.x", time.Hour, "1.0.0.1", "1.0.0.2"))
	learn(t, d, start, answer("a.x", time.Minute, "1.0.0.3"))
	if got := text(d.Addrs([]string{"a.x"})); got != "1.0.0.2 1.0.0.3" {
		t.Errorf("%q", got)
	}
	c := names.New(names.Options{MaxAddrs: 2})
	c.Use([][]string{{"a.x"}})
	if got, err := c.Learn(start, answer("a.x", time.Hour, "1.0.0.1", "1.0.0.2", "1.0.0.3")); !errors.Is(err, names.ErrTooMany) || got != nil || c.Counts().Names != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

// model is what a Cache without bounds must know: until when each address of each name counts.
type model map[string]map[netip.Addr]time.Time

func (m model) addrs(patterns []string, now time.Time) []netip.Addr {
	var out []netip.Addr
	for n, addrs := range m {
		if slices.ContainsFunc(patterns, func(p string) bool { return policy.MatchesName(p, n) }) {
			for a, until := range addrs {
				if until.After(now) {
					out = append(out, a)
				}
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// A Cache knows what a model without any index knows, and who follows its changes knows it too; with
// bounds it has no more than they say.
func TestWalk(t *testing.T) {
	patterns := [][]string{{"a.x"}, {"*.x"}, {"*"}, {"a.x", "b.y"}, {"*.y", "*a*", "b.x"}}
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := names.Options{MinTTL: time.Second}
		bounded := seed%2 == 1
		if bounded {
			o.MaxNames, o.MaxWildcard, o.MaxAddrs, o.MaxTotal = 5, 3, 3, 9
		}
		c, m := names.New(o), model{}
		mirror := map[string]map[netip.Addr]bool{}
		var used [][]string
		now := start
		follow := func(changes []names.Change) {
			for _, x := range changes {
				for _, a := range x.Addrs {
					set := mirror[fmt.Sprint(x.Patterns)]
					if is := c.Has(x.Patterns, a); is == set[a] {
						t.Fatalf("seed %d: %v, %v is told to change and does not", seed, x.Patterns, a)
					} else if is {
						set[a] = true
					} else {
						delete(set, a)
					}
				}
			}
		}
		for range 300 {
			switch n := rnd.IntN(20); {
			case n == 0 || used == nil:
				used = nil
				for _, p := range patterns {
					if rnd.IntN(2) == 0 {
						used = append(used, p)
					}
				}
				c.Use(used)
				for n := range m {
					if !slices.ContainsFunc(used, func(p []string) bool {
						return slices.ContainsFunc(p, func(p string) bool { return policy.MatchesName(p, n) })
					}) {
						delete(m, n)
					}
				}
				for _, p := range used {
					mirror[fmt.Sprint(p)] = map[netip.Addr]bool{}
					for _, a := range c.Addrs(p) {
						mirror[fmt.Sprint(p)][a] = true
					}
				}
			case n < 6:
				now = now.Add(time.Duration(rnd.IntN(4000)) * time.Millisecond)
				changes, _ := c.Expire(now)
				follow(changes)
			default:
				name := []string{"a.x", "b.x", "c.x", "a.y", "b.y", "c.z", "d.x", "d.y"}[rnd.IntN(8)]
				a := names.Answer{Name: name}
				for range 1 + rnd.IntN(3) {
					a.Addrs = append(a.Addrs, names.Found{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(rnd.IntN(6))}), TTL: time.Duration(rnd.IntN(9)) * time.Second})
				}
				follow(learn(t, c, now, a))
				if slices.ContainsFunc(used, func(p []string) bool {
					return slices.ContainsFunc(p, func(p string) bool { return policy.MatchesName(p, name) })
				}) {
					if m[name] == nil {
						m[name] = map[netip.Addr]time.Time{}
					}
					for _, f := range a.Addrs {
						if until := now.Add(max(f.TTL, time.Second)); m[name][f.Addr].Before(until) {
							m[name][f.Addr] = until
						}
					}
				}
				changes, _ := c.Expire(now)
				follow(changes)
			}
			for _, p := range used {
				got, want := c.Addrs(p), m.addrs(p, now)
				if !bounded && !slices.Equal(got, want) {
					t.Fatalf("seed %d: %v: %v, want %v", seed, p, got, want)
				}
				for _, a := range got {
					if bounded && !slices.Contains(want, a) {
						t.Fatalf("seed %d: %v: %v, which nobody has told", seed, p, a)
					}
				}
				if len(mirror[fmt.Sprint(p)]) != len(got) || slices.ContainsFunc(got, func(a netip.Addr) bool { return !mirror[fmt.Sprint(p)][a] }) {
					t.Fatalf("seed %d: %v: %v, by its changes %v", seed, p, got, mirror[fmt.Sprint(p)])
				}
			}
			list, n := c.List(), c.Counts()
			total := 0
			for _, k := range list {
				total += len(k.Addrs)
				if bounded && len(k.Addrs) > 3 {
					t.Fatalf("seed %d: %+v", seed, k)
				}
			}
			if n.Names != len(list) || n.Addrs != total || bounded && (n.Names > 5 || n.Addrs > 9) {
				t.Fatalf("seed %d: counts %+v of %+v", seed, n, list)
			}
			for _, p := range []string{"*.x", "*"} {
				of := 0
				for _, k := range list {
					if policy.MatchesName(p, k.Name) {
						of++
					}
				}
				if bounded && of > 3 && slices.ContainsFunc(used, func(l []string) bool { return slices.Contains(l, p) }) {
					t.Fatalf("seed %d: %d names of %s", seed, of, p)
				}
			}
		}
	}
}

// What is known survives, but for what has come to its end; what cannot be read is an error.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "names.json")
	c := names.New(names.Options{})
	c.Use([][]string{{"*"}})
	learn(t, c, after(0), answer("old.example", time.Minute, "10.0.0.1"))
	learn(t, c, after(0), answer("odd \"\x00\xff.example", time.Hour, "10.0.0.2", "fd00::2"))
	learn(t, c, after(0), answer("other.org", 1000*time.Hour, "10.0.0.3"))
	version, err := c.Save(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if again, err := c.Save(path, version); err != nil || again != version {
		t.Errorf("%d, %v; want %d", again, err, version)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("written although nothing is other")
	}
	if _, err := c.Save(path, version-1); err != nil {
		t.Fatal(err)
	}
	if i, err := os.Stat(path); err != nil || i.Mode() != 0o600 {
		t.Errorf("%v, %v", i.Mode(), err)
	}
	d := names.New(names.Options{})
	if err := d.Load(path, after(2*time.Minute)); err != nil {
		t.Fatal(err)
	}
	d.Use([][]string{{"*.example"}})
	if got := text(d.Addrs([]string{"*.example"})); got != "10.0.0.2 fd00::2" {
		t.Errorf("%q", got)
	}
	if n := d.Counts(); n.Names != 1 || n.Addrs != 2 {
		t.Errorf("%+v", n)
	}
	if changes, next := d.Expire(after(30 * time.Minute)); changes != nil || !next.Equal(after(time.Hour)) {
		t.Errorf("%v, %v", changes, next)
	}
	if err := names.New(names.Options{}).Load(filepath.Join(t.TempDir(), "none"), start); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", "{", `{"version":2,"names":[]}`, `{"version":1,"names":[],"more":1}`, `{"version":1,"names":[]}{}`,
		`{"version":1,"names":[{"name":"UPPER","addresses":[]}]}`, `{"version":1,"names":[{"name":"a\"","addresses":[]}]}`,
		`{"version":1,"names":[{"name":"a","addresses":[{"address":"::ffff:1.2.3.4","until":"2027-01-01T00:00:00Z"}]}]}`} {
		if err := os.WriteFile(path, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := names.New(names.Options{}).Load(path, start); err == nil {
			t.Errorf("%s: no error", bad)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"names":[{"name":"a.example","addresses":[{"address":"1.2.3.4","until":"2027-01-01T00:00:00Z"}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := names.Decode(b)
		for _, k := range list {
			if back, err2 := names.Hidden(names.Show(k.Name)); err == nil && (err2 != nil || back != k.Name) {
				t.Errorf("%q became %q, %v", k.Name, back, err2)
			}
		}
	})
}

// BenchmarkLearn has answers for names that are known, and for those that are not, of many patterns.
func BenchmarkLearn(b *testing.B) {
	for _, patterns := range []int{10, 1000} {
		var use [][]string
		for i := range patterns {
			use = append(use, []string{fmt.Sprintf("*.host%d.example", i), fmt.Sprintf("host%d.example", i)})
		}
		for _, fresh := range []bool{false, true} {
			b.Run(fmt.Sprintf("patterns=%d/new=%t", patterns, fresh), func(b *testing.B) {
				c := names.New(names.Options{})
				c.Use(use)
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if fresh {
						i++
					}
					a := answer(fmt.Sprintf("n%d.host%d.example", i, i%patterns), time.Minute, "10.0.0.1", "10.0.0.2")
					_, _ = c.Learn(start, a)
				}
			})
		}
	}
}

// BenchmarkMemory says what a name takes.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		c := names.New(names.Options{MaxWildcard: 10000})
		c.Use([][]string{{"*.example"}})
		before := heap()
		for i := range 10000 {
			_, _ = c.Learn(start, names.Answer{Name: fmt.Sprintf("some-host-%d.region.service.example", i), Addrs: []names.Found{
				{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), TTL: time.Minute}, {Addr: netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), TTL: time.Minute}}})
		}
		b.ReportMetric(float64(heap()-before)/10000, "B/name")
		if c.Counts().Names != cmp.Or(10000, 0) {
			b.Fatal(c.Counts())
		}
	}
}
