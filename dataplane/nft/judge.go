package nft

import (
	"fmt"
	"net/netip"

	"isobar.dev/policy"
)

// Packet is what Objects are asked about: the first of a connection.
type Packet struct {
	Hook             Hook
	In, Out          string // interfaces
	From, To         netip.Addr
	Protocol         byte
	SourcePort, Port uint16
	Type, Code       byte   // of ICMP, and of IGMP
	State            uint32 // of the connection: bits of conntrack, 0 for a new one
	// OriginalTo and OriginalPort are where it was sent before it was translated; where
	// they are not set it was not.
	OriginalTo   netip.Addr
	OriginalPort uint16
	Reply        bool // goes to who has begun the connection
}

// PacketOf returns the packet that begins a flow, whose ends have addresses.
func PacketOf(h Hook, f policy.Flow) Packet {
	p := Packet{Hook: h, From: f.From.Addr.Unmap(), To: f.To.Addr.Unmap(), SourcePort: f.SourcePort, Port: f.Port, Type: f.ICMPType, Code: f.ICMPCode}
	p.Protocol = 253 // for experiments: one that no policy names
	if f.Protocol != policy.OtherProtocol {
		p.Protocol = number(f.Protocol, familyOf(p.To))
	}
	return p
}

// Judgement is what Objects do with a packet.
type Judgement struct {
	Action policy.Action // Allow, Drop or Reject
	// Rules are the Keys of the TargetRules that have counted it, in order.
	Rules []string
	// Ended: the base chain ended before its last rule.
	Ended bool
	// Waits: it passes when a process says so.
	Waits bool
	// Trail are the chains that it went through, for people.
	Trail []string
}

// Judge returns what Objects do with a packet. It knows what [Lower] makes; the error is
// about Objects that are not whole.
func Judge(objects map[string]Object, p Packet) (Judgement, error) {
	j := judge{objects: objects, packet: p, family: familyOf(p.To)}
	name := p.Hook.String()
	if _, ok := objects[chainKey(name)]; !ok {
		return Judgement{Action: policy.Allow}, nil
	}
	switch end, err := j.chain(name, 0); {
	case err != nil:
		return Judgement{}, err
	case end == ended && j.out.Action != 0:
		j.out.Ended = true
	default:
		j.out.Action = policy.Allow
	}
	return j.out, nil
}

type judge struct {
	objects map[string]Object
	packet  Packet
	family  Family
	out     Judgement
}

// maxDepth is how deep the kernel lets chains jump.
const maxDepth = 16

// end is how a chain ends.
type end uint8

const (
	returned end = iota
	ended        // with an action
)

func (j *judge) chain(name string, depth int) (end, error) {
	c := j.objects[chainKey(name)].Chain
	if c == nil {
		return 0, fmt.Errorf("chain %s: not there", name)
	}
	if depth >= maxDepth {
		return 0, fmt.Errorf("chain %s: jumps too deep", name)
	}
	j.out.Trail = append(j.out.Trail, name)
	for i := range c.Rules {
		r := &c.Rules[i]
		matches, err := j.matches(r)
		if err != nil {
			return 0, fmt.Errorf("chain %s: %w", name, err)
		}
		if !matches {
			continue
		}
		if r.Counter != "" {
			j.out.Rules = append(j.out.Rules, j.objects[counterKey(r.Counter)].Counter.Rule)
		}
		to, goes, jumps := r.Chain, r.Verdict == Goto, r.Verdict == Jump
		switch r.Verdict {
		case Accept:
			j.out.Action = policy.Allow
			return ended, nil
		case Drop:
			j.out.Action = policy.Drop
			return ended, nil
		case Reset, Prohibit:
			j.out.Action = policy.Reject
			return ended, nil
		case Wait, WaitCompat:
			j.out.Action, j.out.Waits = policy.Allow, true
			return ended, nil
		case Return:
			return returned, nil
		case Map:
			e, ok, err := j.lookup(r.Map, r.MapKey)
			if err != nil {
				return 0, err
			}
			isGoto := j.objects[setKey(r.Map)].Set.IsGoto
			to, goes, jumps = e.To, ok && isGoto, ok && !isGoto
		}
		if !goes && !jumps {
			continue
		}
		end, err := j.chain(to, depth+1)
		if err != nil || end == ended || goes {
			return end, err
		}
	}
	return returned, nil
}

func (j *judge) matches(r *Rule) (bool, error) {
	if r.Family != 0 && r.Family != j.family {
		return false, nil
	}
	for _, m := range r.Matches {
		if m.Set != "" {
			_, has, err := j.lookup(m.Set, m.Fields)
			if err != nil {
				return false, err
			}
			if has == m.Not {
				return false, nil
			}
			continue
		}
		v, ok := j.value(m.Fields[0])
		if !ok {
			return false, nil
		}
		is := v == m.Value
		switch {
		case m.Last != "":
			is = m.Value <= v && v <= m.Last
		case m.Mask != "":
			b := []byte(v)
			for i := range b {
				b[i] &= m.Mask[i]
			}
			is = string(b) == m.Value
		}
		if is == m.Not {
			return false, nil
		}
	}
	return true, nil
}

// lookup returns the element of a set that has the packet's fields.
func (j *judge) lookup(name string, fields []Field) (Element, bool, error) {
	s := j.objects[setKey(name)].Set
	if s == nil {
		return Element{}, false, fmt.Errorf("set %s: not there", name)
	}
	var values []string
	for _, f := range fields {
		v, ok := j.value(f)
		if !ok {
			return Element{}, false, nil
		}
		values = append(values, v)
	}
	key := values[0]
	if len(values) > 1 {
		key = concat(values...)
	}
	e, found := s.find(key)
	return e, found, nil
}

// value returns a field of the packet, if it has it.
func (j *judge) value(f Field) (string, bool) {
	p := j.packet
	switch f {
	case FieldSource:
		return addrValue(p.From), true
	case FieldDestination:
		return addrValue(p.To), true
	case FieldOriginalAddr:
		if p.OriginalTo.IsValid() {
			return addrValue(p.OriginalTo), true
		}
		return addrValue(p.To), p.State&stateUntracked == 0
	case FieldOriginalPort:
		if p.OriginalTo.IsValid() {
			return portValue(p.OriginalPort), true
		}
		return portValue(p.Port), p.State&stateUntracked == 0
	case FieldProtocol:
		return byteValue(p.Protocol), true
	case FieldSourcePort:
		return portValue(p.SourcePort), true
	case FieldPort:
		return portValue(p.Port), true
	case FieldType:
		return byteValue(p.Type), true
	case FieldCode:
		return byteValue(p.Code), true
	case FieldIn:
		return nameValue(p.In), true
	case FieldOut:
		return nameValue(p.Out), true
	case FieldMark:
		return stateValue(0), true
	case FieldState:
		return stateValue(p.State), true
	case FieldDirection:
		if p.Reply {
			return byteValue(1), true
		}
		return byteValue(0), p.State&stateUntracked == 0
	}
	return "", false
}
