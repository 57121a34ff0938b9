package names

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// maxAliases bounds the CNAME records of a message that are followed.
const maxAliases = 64

// Parse returns what a DNS message answers. An Answer without addresses is one of which there is
// nothing to learn, such as that there is no such name. The error is that the message is
// not an answer to one question, or cannot be read to its end.
func Parse(message []byte) (Answer, error) {
	var p dnsmessage.Parser
	h, err := p.Start(message)
	if err != nil {
		return Answer{}, fmt.Errorf("dns message: %w", err)
	}
	if !h.Response {
		return Answer{}, errors.New("dns message: a question where an answer should be")
	}
	questions, err := p.AllQuestions()
	if err != nil {
		return Answer{}, fmt.Errorf("dns message: %w", err)
	}
	x := &parsing{}
	if err := x.answers(&p); err != nil {
		return Answer{}, fmt.Errorf("dns message: %w", err)
	}
	if err := errors.Join(p.SkipAllAuthorities(), p.SkipAllAdditionals()); err != nil {
		return Answer{}, fmt.Errorf("dns message: %w", err)
	}
	if len(questions) != 1 {
		if x.records > 0 || len(questions) > 1 {
			return Answer{}, fmt.Errorf("dns message: %d questions, want 1", len(questions))
		}
		return Answer{}, nil // as some servers refuse
	}
	out := Answer{Name: Normal(questions[0].Name.String())}
	if h.RCode != dnsmessage.RCodeSuccess || questions[0].Class != dnsmessage.ClassINET {
		return out, nil
	}
	x.follow(out.Name, &out)
	return out, nil
}

// parsing is what the answers of a message say, by the name that they are of.
type parsing struct {
	records int
	aliases int
	to      map[string][]alias
	addrs   map[string][]Found
}

type alias struct {
	name string
	ttl  time.Duration
}

func (x *parsing) answers(p *dnsmessage.Parser) error {
	x.to, x.addrs = map[string][]alias{}, map[string][]Found{}
	for {
		h, err := p.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			return nil
		}
		if err != nil {
			return err
		}
		x.records++
		if h.Class != dnsmessage.ClassINET {
			if err := p.SkipAnswer(); err != nil {
				return err
			}
			continue
		}
		if err := x.answer(p, h); err != nil {
			return err
		}
	}
}

func (x *parsing) answer(p *dnsmessage.Parser, h dnsmessage.ResourceHeader) error {
	owner, ttl := Normal(h.Name.String()), ttlOf(h.TTL)
	found := func(a netip.Addr) { x.addrs[owner] = append(x.addrs[owner], Found{a.Unmap(), ttl}) }
	switch h.Type {
	case dnsmessage.TypeA:
		r, err := p.AResource()
		if err != nil {
			return err
		}
		found(netip.AddrFrom4(r.A))
	case dnsmessage.TypeAAAA:
		r, err := p.AAAAResource()
		if err != nil {
			return err
		}
		found(netip.AddrFrom16(r.AAAA))
	case dnsmessage.TypeCNAME:
		r, err := p.CNAMEResource()
		if err != nil {
			return err
		}
		if x.aliases++; x.aliases > maxAliases {
			return fmt.Errorf("more than %d CNAME records", maxAliases)
		}
		x.to[owner] = append(x.to[owner], alias{Normal(r.CNAME.String()), ttl})
	case dnsmessage.TypeHTTPS:
		r, err := p.HTTPSResource()
		if err != nil {
			return err
		}
		return hints(r.SVCBResource, found)
	case dnsmessage.TypeSVCB:
		r, err := p.SVCBResource()
		if err != nil {
			return err
		}
		return hints(r, found)
	default:
		return p.SkipAnswer()
	}
	return nil
}

// hints calls found with the addresses to which clients may connect without asking for them.
func hints(r dnsmessage.SVCBResource, found func(netip.Addr)) error {
	for _, h := range []struct {
		key dnsmessage.SVCParamKey
		n   int
	}{{dnsmessage.SVCParamIPv4Hint, 4}, {dnsmessage.SVCParamIPv6Hint, 16}} {
		v, _ := r.GetParam(h.key)
		if len(v)%h.n != 0 {
			return fmt.Errorf("%v of %d bytes", h.key, len(v))
		}
		for ; len(v) > 0; v = v[h.n:] {
			a, _ := netip.AddrFromSlice(v[:h.n])
			found(a)
		}
	}
	return nil
}

// ttlOf is a TTL; one of 2³¹ or more is 0 (RFC 2181, section 8).
func ttlOf(n uint32) time.Duration {
	if n > 1<<31-1 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// follow adds the addresses of name, and of all that it leads to. An address is known for as
// long as all that has led to it.
func (x *parsing) follow(name string, out *Answer) {
	ttls := map[string]time.Duration{name: 1 << 62}
	for queue := []string{name}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for _, f := range x.addrs[at] {
			out.Addrs = append(out.Addrs, Found{f.Addr, min(f.TTL, ttls[at])})
		}
		for _, a := range x.to[at] {
			if _, seen := ttls[a.name]; !seen {
				ttls[a.name] = min(ttls[at], a.ttl)
				queue = append(queue, a.name)
			}
		}
	}
}

// Show returns a name as text, whatever bytes it has; Hidden undoes it.
func Show(name string) string {
	s := strconv.QuoteToASCII(name)
	return s[1 : len(s)-1]
}

// Hidden returns the name that Show has shown.
func Hidden(text string) (string, error) {
	s, err := strconv.Unquote(`"` + text + `"`)
	if err != nil {
		return "", fmt.Errorf("name %q: %w", text, err)
	}
	return s, nil
}
