package convert

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"isobar.dev/policy"
)

// selector converts a label selector. One that cannot be read, and an absent
// one, match nothing.
func (ps *problems) selector(path string, s *metav1.LabelSelector) policy.Selector {
	if s == nil || !ps.selectorSyntax(path, s) {
		return policy.NoLabels
	}
	out := policy.Selector{}
	for k, v := range s.MatchLabels {
		out = append(out, policy.Requirement{Key: k, Op: policy.In, Values: []string{v}})
	}
	// A canonical order: equal selectors become equal values.
	slices.SortFunc(out, func(a, b policy.Requirement) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	for i, e := range s.MatchExpressions {
		at := fmt.Sprintf("%s.matchExpressions[%d]", path, i)
		r := policy.Requirement{Key: e.Key, Values: slices.Sorted(slices.Values(e.Values))}
		switch e.Operator {
		case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
			r.Op = policy.In
			if e.Operator == metav1.LabelSelectorOpNotIn {
				r.Op = policy.NotIn
			}
			if len(e.Values) == 0 {
				ps.add(at+".values", "%s needs at least one value", e.Operator)
				return policy.NoLabels
			}
		case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
			r.Op = policy.Exists
			if e.Operator == metav1.LabelSelectorOpDoesNotExist {
				r.Op = policy.DoesNotExist
			}
			if len(e.Values) > 0 {
				ps.add(at+".values", "%s takes no values", e.Operator)
				return policy.NoLabels
			}
		default:
			ps.add(at+".operator", "%q: want In, NotIn, Exists or DoesNotExist", e.Operator)
			return policy.NoLabels
		}
		out = append(out, r)
	}
	return out
}

// selectorSyntax says whether s has keys and values that a label can have. With
// others NotIn and DoesNotExist would be met by everything.
func (ps *problems) selectorSyntax(path string, s *metav1.LabelSelector) bool {
	if isPlain(s) {
		return true
	}
	before := len(*ps)
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		ps.labelKey(path+".matchLabels", k)
		ps.labelValue(fmt.Sprintf("%s.matchLabels[%s]", path, k), s.MatchLabels[k])
	}
	for i, e := range s.MatchExpressions {
		ps.labelKey(fmt.Sprintf("%s.matchExpressions[%d].key", path, i), e.Key)
		for j, v := range e.Values {
			ps.labelValue(fmt.Sprintf("%s.matchExpressions[%d].values[%d]", path, i, j), v)
		}
	}
	return len(*ps) == before
}

// isPlain says whether s has keys and values as most are, which a label can have. It costs a small
// part of what it costs to say what is wrong.
func isPlain(s *metav1.LabelSelector) bool {
	for k, v := range s.MatchLabels {
		if !isPlainKey(k) || !isPlainName(v) {
			return false
		}
	}
	for i := range s.MatchExpressions {
		if e := &s.MatchExpressions[i]; !isPlainKey(e.Key) || slices.ContainsFunc(e.Values, func(v string) bool { return !isPlainName(v) }) {
			return false
		}
	}
	return true
}

// isPlainName says whether s is at most 63 letters, digits and - _ . between: then it is both the key and
// the value of a label.
func isPlainName(s string) bool {
	if s == "" || len(s) > 63 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case (c == '-' || c == '_' || c == '.') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return true
}

// isPlainKey says whether s is such a name, or one after a DNS name and /: then it is the key of a label.
func isPlainKey(s string) bool {
	i := strings.IndexByte(s, '/')
	if i < 0 {
		return isPlainName(s)
	}
	if i == 0 || i > 253 {
		return false
	}
	letter := false
	for _, c := range []byte(s[:i]) {
		was := letter
		letter = 'a' <= c && c <= 'z' || '0' <= c && c <= '9'
		if !letter && (!was || c != '-' && c != '.') {
			return false
		}
	}
	return letter && isPlainName(s[i+1:])
}

func (ps *problems) labelKey(path, key string) {
	if len(validation.IsQualifiedName(key)) > 0 {
		ps.add(path, "%q is not the key of a label: want letters, digits, - _ and . between, after a DNS name and / if need be", key)
	}
}

func (ps *problems) labelValue(path, value string) {
	if len(validation.IsValidLabelValue(value)) > 0 {
		ps.add(path, "%q is not the value of a label: want at most 63 letters, digits, - _ and . between", value)
	}
}

// block converts a CIDR and its exceptions. ok is false when any part cannot
// be read: a block without its exceptions is wider than what was written.
func (ps *problems) block(path, cidr string, except []string) (b policy.Block, ok bool) {
	b.Prefix, ok = ps.prefix(path+".cidr", cidr)
	whole := b.Prefix.IsValid()
	for i, e := range except {
		p, good := ps.prefix(fmt.Sprintf("%s.except[%d]", path, i), e)
		if good && whole && (p.Addr().Is4() != b.Prefix.Addr().Is4() || p.Bits() <= b.Prefix.Bits() || !b.Prefix.Contains(p.Addr())) {
			ps.add(fmt.Sprintf("%s.except[%d]", path, i), "%s is not a part of %s", e, cidr)
			good = false
		}
		ok = ok && good
		b.Except = append(b.Except, p)
	}
	return b, ok
}

// prefix parses a CIDR. Bits after the prefix are dropped, as upstream does.
func (ps *problems) prefix(path, s string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		ps.add(path, "%q is not a CIDR such as 10.0.0.0/8 or fd00::/64", s)
		return netip.Prefix{}, false
	}
	if p.Addr().Is4In6() {
		ps.add(path, "%q is an IPv4 address in IPv6 form: write it as IPv4", s)
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// portRange checks a range of ports whose end may be absent.
func (ps *problems) portRange(path string, first int32, last *int32) (policy.Ports, bool) {
	end := first
	if last != nil {
		end = *last
	}
	if first < 1 || first > 65535 || end < 1 || end > 65535 {
		text := fmt.Sprint(first)
		if last != nil {
			text += fmt.Sprintf("-%d", end)
		}
		ps.add(path, "%s: ports are from 1 to 65535", text)
		return policy.Ports{}, false
	}
	if end < first {
		ps.add(path, "%d-%d: the end is below the start", first, end)
		return policy.Ports{}, false
	}
	return policy.Ports{First: uint16(first), Last: uint16(end)}, true
}

// port converts the port, which may be a number, a name or absent, and endPort
// of Kubernetes and Antrea policies.
func (ps *problems) port(path string, protocol *corev1.Protocol, port *intstr.IntOrString, endPort *int32) (policy.Traffic, bool) {
	t := policy.Traffic{Protocol: policy.TCP}
	if protocol != nil {
		var ok bool
		if t.Protocol, ok = ps.protocol(path+".protocol", *protocol); !ok {
			return t, false
		}
	}
	switch {
	case port == nil:
		if endPort != nil {
			ps.add(path+".endPort", "needs port")
			return t, false
		}
		return t, true
	case port.Type == intstr.String:
		if endPort != nil {
			ps.add(path+".endPort", "needs a port number, not the name %q", port.StrVal)
			return t, false
		}
		if !ps.portName(path+".port", port.StrVal) {
			return t, false
		}
		t.PortName = port.StrVal
		return t, true
	}
	var ok bool
	t.Ports, ok = ps.portRange(path+".port", port.IntVal, endPort)
	return t, ok
}

// portName says whether a port can have that name.
func (ps *problems) portName(path, name string) bool {
	if strings.ContainsFunc(name, func(c rune) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }) {
		return true
	}
	ps.add(path, "%q is not the name of a port, which has a letter; write a number without quotes", name)
	return false
}

// protocol converts a protocol with ports, written as Kubernetes writes it.
func (ps *problems) protocol(path string, in corev1.Protocol) (policy.Protocol, bool) {
	for _, p := range []policy.Protocol{policy.TCP, policy.UDP, policy.SCTP} {
		if string(in) == p.String() {
			return p, true
		}
	}
	ps.add(path, "%q: want TCP, UDP or SCTP", in)
	return 0, false
}

// addr parses an address; ok is false when it cannot be read.
func (ps *problems) addr(path, s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		ps.add(path, "%q is not an IP address", s)
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// sortAddrs sorts and removes duplicates, IPv4 first.
func sortAddrs(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

// disarm leaves of p what it denies: for a policy whose place in the order cannot
// be read. Its rules keep their indexes; those that allow or pass match nothing.
func disarm(p *policy.Policy) {
	for _, rules := range [][]policy.Rule{p.Ingress, p.Egress} {
		for i := range rules {
			if rules[i].Action == policy.Allow || rules[i].Action == policy.Pass {
				rules[i].Peers = policy.Peers{}
			}
		}
	}
}

// failClosed sets what rule r matches when a part of its peers or its traffic
// could not be read: an Allow keeps what could be read, a denial denies all, and
// a Pass denies all too where the dialect says so.
func failClosed(r *policy.Rule, unreadPeers, unreadTraffic, passDenies bool) {
	if r.Action == policy.Allow || r.Action == policy.Pass && !passDenies {
		return
	}
	if !unreadPeers && !unreadTraffic {
		return
	}
	if r.Action == policy.Pass {
		r.Action = policy.Drop
	}
	if unreadPeers {
		r.Peers = policy.Peers{All: true}
	}
	if unreadTraffic {
		r.Traffic = policy.AllTraffic
	}
}
