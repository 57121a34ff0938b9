package nft

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"isobar.dev/policy"
)

// Family is which addresses a chain or a set has to do with.
type Family uint8

// The families. The zero Family is both.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

var families = []Family{IPv4, IPv6}

// addrLen is how many bytes an address has.
func (f Family) addrLen() int {
	if f == IPv4 {
		return 4
	}
	return 16
}

// Field is a part of a packet, or what the kernel knows of it.
type Field uint8

// The fields. Their values are bytes as the packet has them.
const (
	FieldSource       Field = iota + 1 // address
	FieldDestination                   // address
	FieldProtocol                      // of the fourth layer, one byte
	FieldSourcePort                    // two bytes
	FieldPort                          // destination port, two bytes
	FieldType                          // of ICMP or IGMP, one byte
	FieldCode                          // of ICMP, one byte
	FieldIn                            // name of the interface, 16 bytes
	FieldOut                           // name of the interface, 16 bytes
	FieldOriginalAddr                  // destination before it was translated
	FieldOriginalPort                  // destination port before it was translated
	FieldState                         // of the connection: bits, in the order of the machine
	FieldMark                          // that its socket gave it, in the order of the machine
	FieldDirection                     // in the connection, one byte: 0 that of who began it, 1 of replies
)

// fieldNames are nft's words.
var fieldNames = map[Field]string{
	FieldSource: "saddr", FieldDestination: "daddr", FieldProtocol: "l4proto", FieldSourcePort: "sport", FieldPort: "dport",
	FieldType: "type", FieldCode: "code", FieldIn: "iifname", FieldOut: "oifname",
	FieldOriginalAddr: "ct original daddr", FieldOriginalPort: "ct original proto-dst", FieldState: "ct state", FieldMark: "mark",
	FieldDirection: "ct direction",
}

func (f Field) String() string { return fieldNames[f] }

// length is how many bytes a value has.
func (f Field) length(family Family) int {
	switch f {
	case FieldSource, FieldDestination, FieldOriginalAddr:
		return family.addrLen()
	case FieldSourcePort, FieldPort, FieldOriginalPort:
		return 2
	case FieldIn, FieldOut:
		return 16
	case FieldState, FieldMark:
		return 4
	}
	return 1
}

// Match is a condition on a packet: on one Field by value, or on one or more by a set.
type Match struct {
	Fields []Field
	// Value is what the one Field must be; where Last is not empty, the first of a
	// range, and where Mask is not, what its bits under the mask must be.
	Value, Last, Mask string
	Set               string // name of the set that must have the Fields
	Not               bool   // the set must not
}

// Verdict is what a rule does with a packet that it matches.
type Verdict uint8

// The verdicts. The zero Verdict goes on with the next rule.
const (
	Accept     Verdict = iota + 1 // ends the base chain
	Return                        // goes on in the chain that has jumped here
	Drop                          //
	Reset                         // rejects by a TCP reset
	Prohibit                      // rejects by ICMP: administratively prohibited
	Jump                          // to Rule.Chain, and comes back
	Goto                          // to Rule.Chain
	Map                           // does what Rule.Map says of Rule.MapKey, or goes on
	Wait                          // waits in Rule.Queue for what a process says; dropped where there is none
	WaitCompat                    // the same, by the target of xtables
)

// Rule is one rule of a chain.
type Rule struct {
	Family   Family // in a chain of both families: which packets it matches, 0 for all
	Matches  []Match
	LogRate  uint32 // most packets a second that are logged; others do not match
	Log      string // prefix of a message; empty for none
	LogGroup uint16 // nflog group of the message
	Counter  string // name of the counter
	Verdict  Verdict
	Chain    string
	Map      string
	MapKey   []Field
	Queue    uint16
	Comment  string
}

// Chain is a list of rules. One with a Hook is a base chain.
type Chain struct {
	Name   string
	Hook   Hook // 0 for none
	Family Family
	Rules  []Rule
	// Marks are a fingerprint of each rule, in order; those of a chain that was read are
	// what its rules carry.
	Marks []string
}

// Hook is where packets meet a base chain.
type Hook uint8

// The hooks, as the kernel numbers them.
const (
	Input   Hook = 1
	Forward Hook = 2
	Output  Hook = 3
)

func (h Hook) String() string {
	switch h {
	case Input:
		return "input"
	case Forward:
		return "forward"
	case Output:
		return "output"
	}
	return "none"
}

// Set is a set of values of one Field or of several together; a map leads from each to a
// chain, which it jumps to, or goes to.
type Set struct {
	Name     string
	Family   Family
	Fields   []Field
	Interval bool // its elements are ranges
	IsMap    bool
	IsGoto   bool
	// Patterns are those of the DNS names whose addresses the elements are; nil for
	// all other sets, and for one that was read.
	Patterns []string
	length   int       // of a key, of a set that was read
	Elements []Element // by Key, each once; ranges do not overlap
	// addrs are, in place of Elements, the addresses of a group's members, with how many members
	// have each: of two such sets it is known at once how they differ.
	addrs policy.Table[int]
}

// List returns the elements by Key.
func (s *Set) List() []Element {
	if s.addrs.Len() == 0 {
		return s.Elements
	}
	out := make([]Element, 0, s.addrs.Len())
	for key := range s.addrs.All() {
		out = append(out, Element{Key: key})
	}
	return out
}

// Len returns the number of elements.
func (s *Set) Len() int { return len(s.Elements) + s.addrs.Len() }

// find returns the element with a Key or, of ranges, the one that it is in.
func (s *Set) find(key string) (Element, bool) {
	if s.addrs.Len() > 0 {
		_, ok := s.addrs.Get(key)
		return Element{Key: key}, ok
	}
	i, found := slices.BinarySearchFunc(s.Elements, key, func(e Element, k string) int { return strings.Compare(e.Key, k) })
	switch {
	case found:
		return s.Elements[i], true
	case s.Interval && i > 0 && key <= s.Elements[i-1].Last:
		return s.Elements[i-1], true
	}
	return Element{}, false
}

// since returns what s has and old has not, and the other way round.
func (s *Set) since(old *Set) (add, gone []Element) {
	if s.addrs.Len() == 0 || old.addrs.Len() == 0 {
		return difference(old.List(), s.List())
	}
	policy.Diff(old.addrs, s.addrs, func(key string, was, is *int) {
		switch {
		case was == nil:
			add = append(add, Element{Key: key})
		case is == nil:
			gone = append(gone, Element{Key: key})
		}
	})
	return add, gone
}

// equal says whether the sets have the same elements.
func (s *Set) equal(o *Set) bool {
	if s.Len() != o.Len() {
		return false
	}
	add, gone := s.since(o)
	return len(add)+len(gone) == 0
}

// Element is one of a Set. Of several Fields each value is padded to four bytes.
type Element struct {
	Key  string
	Last string // of a range, inclusive
	To   string // chain, of a map
}

// Counter counts the packets that a rule of a policy has decided on.
type Counter struct {
	Name string
	Rule string // Key of the TargetRule
}

// Object is a part of the table; exactly one field is set.
type Object struct {
	Table   *Table
	Chain   *Chain
	Set     *Set
	Counter *Counter
}

// Table is the table itself.
type Table struct {
	Name string
	// Spoiled is why a table that was read can only be replaced as a whole.
	Spoiled string
}

// Equal says whether an Object that was read is what is wanted.
func (o Object) Equal(want Object) bool {
	switch {
	case o == want:
		return true
	case o.Table != nil && want.Table != nil:
		return *o.Table == *want.Table
	case o.Chain != nil && want.Chain != nil:
		a, b := o.Chain, want.Chain
		return a.Name == b.Name && a.Hook == b.Hook && slices.Equal(a.Marks, b.Marks)
	case o.Set != nil && want.Set != nil:
		return o.Set == want.Set || o.Set.sameKind(want.Set) && o.Set.equal(want.Set)
	case o.Counter != nil && want.Counter != nil:
		return o.Counter.Name == want.Counter.Name
	}
	return false
}

// sameKind says whether the sets differ in nothing but their elements, and in what the
// kernel does not know of them.
func (s *Set) sameKind(o *Set) bool {
	return s.Name == o.Name && s.keyLen() == o.keyLen() && s.Interval == o.Interval && s.IsMap == o.IsMap &&
		(s.IsGoto == o.IsGoto || s.Len() == 0 || o.Len() == 0)
}

// verdict is what a map does.
func (s *Set) verdict() Verdict {
	if s.IsGoto {
		return Goto
	}
	return Jump
}

// keyLen is how many bytes a key has.
func (s *Set) keyLen() int {
	if len(s.Fields) == 0 {
		return s.length
	}
	if len(s.Fields) == 1 {
		return s.Fields[0].length(s.Family)
	}
	n := 0
	for _, f := range s.Fields {
		n += padded(f.length(s.Family))
	}
	return n
}

// Keys of the Objects.
func tableKey() string              { return "table" }
func chainKey(name string) string   { return "chain/" + name }
func setKey(name string) string     { return "set/" + name }
func counterKey(name string) string { return "counter/" + name }

// hash names content: 128 bits, so that nobody who writes policies can find two that
// have one name.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// encoding is part of each fingerprint. It changes when a rule becomes other expressions of
// the kernel than before, so that a new version writes anew what an old one has left.
const encoding = "1\n"

// seal gives c the fingerprints of its rules, each of which is of the whole chain and of
// its place there, and, with a prefix, a name by its content.
func (c *Chain) seal(prefix string) {
	var b strings.Builder
	b.WriteString(encoding)
	for i := range c.Rules {
		c.Rules[i].write(&b, c.Family)
		b.WriteByte('\n')
	}
	h := hash(b.String())
	if prefix != "" {
		c.Name = prefix + h
	}
	c.Marks = make([]string, len(c.Rules))
	for i := range c.Rules {
		c.Marks[i] = h[:16] + "." + strconv.Itoa(i+1) + "/" + strconv.Itoa(len(c.Rules))
	}
}

// String returns the chain as people read it.
func (c *Chain) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "chain %s", c.Name)
	if c.Hook != 0 {
		fmt.Fprintf(&b, " hook %v", c.Hook)
	}
	b.WriteByte('\n')
	for _, r := range c.Rules {
		b.WriteString("  ")
		r.write(&b, c.Family)
		b.WriteByte('\n')
	}
	return b.String()
}

// write writes r in words much like nft's; equal text means equal rules.
func (r *Rule) write(b *strings.Builder, family Family) {
	if r.Family != 0 {
		family = r.Family
		fmt.Fprintf(b, "ipv%d ", family)
	}
	for _, m := range r.Matches {
		m.write(b, family)
		b.WriteByte(' ')
	}
	if r.LogRate > 0 {
		fmt.Fprintf(b, "limit rate %d/second ", r.LogRate)
	}
	if r.Log != "" {
		fmt.Fprintf(b, "log prefix %q group %d ", r.Log, r.LogGroup)
	}
	if r.Counter != "" {
		b.WriteString("counter " + r.Counter + " ")
	}
	switch r.Verdict {
	case Accept:
		b.WriteString("accept")
	case Return:
		b.WriteString("return")
	case Drop:
		b.WriteString("drop")
	case Reset:
		b.WriteString("reject with tcp reset")
	case Prohibit:
		b.WriteString("reject with icmpx admin-prohibited")
	case Jump:
		b.WriteString("jump " + r.Chain)
	case Goto:
		b.WriteString("goto " + r.Chain)
	case Wait:
		fmt.Fprintf(b, "queue num %d", r.Queue)
	case WaitCompat:
		fmt.Fprintf(b, "xt target NFQUEUE num %d", r.Queue)
	case Map:
		writeFields(b, r.MapKey)
		b.WriteString(" vmap @" + r.Map)
	default:
		b.WriteString("continue")
	}
	if r.Comment != "" {
		fmt.Fprintf(b, " comment %q", r.Comment)
	}
}

func writeFields(b *strings.Builder, fields []Field) {
	for i, f := range fields {
		if i > 0 {
			b.WriteString(" . ")
		}
		b.WriteString(f.String())
	}
}

func (m *Match) write(b *strings.Builder, family Family) {
	writeFields(b, m.Fields)
	switch {
	case m.Set != "" && m.Not:
		b.WriteString(" != @" + m.Set)
	case m.Set != "":
		b.WriteString(" @" + m.Set)
	case m.Last != "":
		b.WriteString(" " + text(m.Fields[0], family, m.Value) + "-" + text(m.Fields[0], family, m.Last))
	case m.Mask != "":
		b.WriteString(" & " + text(m.Fields[0], family, m.Mask) + " == " + text(m.Fields[0], family, m.Value))
	default:
		b.WriteString(" " + text(m.Fields[0], family, m.Value))
	}
}

// String returns the set as people read it.
func (s *Set) String() string {
	var b strings.Builder
	b.WriteString("set " + s.Name + " ")
	writeFields(&b, s.Fields)
	if s.IsGoto {
		b.WriteString(" goto")
	}
	b.WriteByte('\n')
	for _, e := range s.List() {
		b.WriteString("  " + s.text(e.Key))
		if e.Last != "" {
			b.WriteString(" - " + s.text(e.Last))
		}
		if e.To != "" {
			b.WriteString(" : " + e.To)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// text returns an element's key as people read it.
func (s *Set) text(key string) string {
	if len(s.Fields) == 1 {
		return text(s.Fields[0], s.Family, key)
	}
	var parts []string
	for _, f := range s.Fields {
		n := f.length(s.Family)
		parts = append(parts, text(f, s.Family, key[:n]))
		key = key[padded(n):]
	}
	return strings.Join(parts, " . ")
}

// padded is how many bytes of a key of several Fields one of n bytes takes.
func padded(n int) int { return (n + 3) &^ 3 }

// text returns a value as people read it.
func text(f Field, family Family, v string) string {
	switch f {
	case FieldSource, FieldDestination, FieldOriginalAddr:
		return addrOf(v).String()
	case FieldIn, FieldOut:
		return string(bytes.TrimRight([]byte(v), "\x00"))
	}
	n := 0
	for i := range len(v) {
		n = n<<8 | int(v[i])
	}
	if f == FieldState || f == FieldMark {
		return fmt.Sprintf("%#x", v)
	}
	return fmt.Sprint(n)
}
