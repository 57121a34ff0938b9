package cni

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"isobar.dev/dataplane/cni/rpc"
)

// Whatever a runtime sends, the answer is a command or an error with a code.
func FuzzReadCall(f *testing.F) {
	f.Add("a", "eth0", "K8S_POD_NAME=a", []byte(`{"cniVersion": "1.1.0", "name": "pods", "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}]}`))
	f.Add("a", "eth0", "", []byte(`{"cniVersion": "1.0.0", "name": "pods", "prevResult": {"cniVersion": "1.0.0", "interfaces": [{"name": "x"}], "ips": [{"address": "10.1.2.3/24"}]}}`))
	f.Add("a", "eth0", "", []byte(`{"cniVersion": "1.0.0", "name": "pods", "prevResult": {"cniVersion": "1.0.0", "interfaces": [null], "ips": [null]}}`))
	f.Add("a", "eth0", "", []byte(`{"cniVersion": "0.3.1", "name": "pods", "prevResult": {"ips": [{"address": "10.1.2.3/24", "version": "4"}]}}`))
	f.Fuzz(func(t *testing.T, id, ifname, args string, config []byte) {
		c, err := readCall(&rpc.Call{ContainerId: id, Ifname: ifname, Args: args, Config: config}, true)
		if err != nil {
			if err.Code == 0 || c != nil {
				t.Errorf("%v with code %d and %v", err, err.Code, c)
			}
			return
		}
		a := &Attachment{ContainerID: c.id, Interface: c.ifname, Netns: "/x", Addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}}
		if c.previous != nil {
			a.Addrs = nil
			if a.chain(c) != nil {
				return
			}
		}
		result, _ := a.result(c)
		if result != nil && !json.Valid(result) {
			t.Errorf("answer %q", result)
		}
	})
}

// A record is what was written, or it is damaged.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"network":"pods","containerID":"a","interface":"eth0","netns":"/x","hostInterface":"isopod1","addrs":["10.0.0.1","fd00::1"]}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"addrs":[""]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := records{t.TempDir()}
		if err := os.WriteFile(filepath.Join(r.dir, keyOf("a", "eth0")+recordSuffix), text, 0o600); err != nil {
			t.Fatal(err)
		}
		all, damaged, err := r.load()
		if err != nil || len(all)+len(damaged) != 1 {
			t.Fatalf("%v, %q, %v", all, damaged, err)
		}
		for key, a := range all {
			if err := r.save(a); err != nil || key != a.key() {
				t.Errorf("%s, %v", key, err)
			}
		}
	})
}

func TestAddresses(t *testing.T) {
	for _, tt := range []struct {
		ranges string
		count  int // 0 when it is refused
		first  string
	}{
		{"10.0.0.0/29", 6, "10.0.0.1"},
		{"10.0.0.0/30", 2, "10.0.0.1"},
		{"10.0.0.0/31", 0, ""},
		{"10.0.0.1/29", 0, ""},
		{"fd00::/125", 7, "fd00::1"},
		{"255.255.255.248/29", 6, "255.255.255.249"},
		{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff8/125", 7, "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff9"},
	} {
		t.Run(tt.ranges, func(t *testing.T) {
			a, err := newAddresses(t.TempDir(), "x", []netip.Prefix{netip.MustParsePrefix(tt.ranges)})
			if (err != nil) != (tt.count == 0) {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			seen := map[netip.Addr]bool{}
			for i := range tt.count {
				got, err := a.take(string(rune('a'+i)), "eth0")
				if err != nil || seen[got[0]] || !a.ranges[0].Contains(got[0]) || i == 0 && got[0].String() != tt.first {
					t.Fatalf("%v, %v after %v", got, err, seen)
				}
				seen[got[0]] = true
			}
			if got, err := a.take("z", "eth0"); err == nil {
				t.Errorf("%v is left", got)
			}
			first := netip.MustParseAddr(tt.first)
			if err := a.release([]netip.Addr{first}, "b", "eth0"); err == nil {
				t.Error("somebody else's address was given back")
			}
			if err := a.release([]netip.Addr{first}, "a", "eth0"); err != nil {
				t.Error(err)
			}
			if got, err := a.take("z", "eth0"); err != nil || got[0] != first {
				t.Errorf("%v, %v, want %v", got, err, first)
			}
		})
	}
}
