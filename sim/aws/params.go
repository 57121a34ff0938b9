package aws

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Bounds of a request.
const (
	maxBody   = 1 << 20 // bytes
	maxParams = 20000   // name=value pairs
	maxDepth  = 8       // dots in a name
	maxIndex  = 1 << 20 // number of a list item; gaps are allowed and cost nothing
	maxList   = 1000    // items in a list
)

// params is one level of the query protocol's names: "IpPermissions.1.IpRanges.2.CidrIp" is a path
// through four of them.
type params struct {
	value string
	set   bool
	kids  map[string]*params
	bad   *apiError // the first value that did not parse, on the root only
	root  *params
}

// parseParams reads a form body. Every error is the client's.
func parseParams(body string) (*params, *apiError) {
	root := &params{}
	root.root = root
	if body == "" {
		return root, nil
	}
	if strings.Count(body, "&") >= maxParams {
		return nil, errf("MalformedQueryString", "more than %d parameters", maxParams)
	}
	for pair := range strings.SplitSeq(body, "&") {
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err == nil {
			value, err = url.QueryUnescape(value)
		}
		if err != nil || name == "" {
			return nil, errf("MalformedQueryString", "The query string contains a syntax error")
		}
		if err := root.put(name, value); err != nil {
			return nil, err
		}
	}
	return root, nil
}

func (p *params) put(name, value string) *apiError {
	if strings.Count(name, ".") > maxDepth {
		return errf("MalformedQueryString", "The parameter name is nested too deeply")
	}
	at := p
	for part := range strings.SplitSeq(name, ".") {
		if part == "" {
			return errf("MalformedQueryString", "The parameter name %s is malformed", name)
		}
		kid := at.kids[part]
		if kid == nil {
			if at.kids == nil {
				at.kids = map[string]*params{}
			}
			kid = &params{root: p}
			at.kids[part] = kid
		}
		at = kid
	}
	if at.set {
		return errf("MalformedQueryString", "The parameter %s appears more than once", name)
	}
	at.value, at.set = value, true
	return nil
}

// fail remembers the first bad value of the request.
func (p *params) fail(e *apiError) {
	if p.root.bad == nil {
		p.root.bad = e
	}
}

// has says whether the request brings the parameter, or a list or structure of that name.
func (p *params) has(name string) bool { return p.kids[name] != nil }

func (p *params) str(name string) string {
	if k := p.kids[name]; k != nil {
		if k.kids != nil {
			p.fail(invalid("The parameter %s is not a structure", name))
		}
		return k.value
	}
	return ""
}

// num returns a whole number and whether it was given.
func (p *params) num(name string) (int, bool) {
	if !p.has(name) {
		return 0, false
	}
	n, err := strconv.ParseInt(p.str(name), 10, 32)
	if err != nil {
		p.fail(invalid("Invalid value '%s' for %s. It must be a whole number", p.str(name), name))
	}
	return int(n), true
}

func (p *params) flag(name string) bool {
	switch v := p.str(name); v {
	case "", "false":
		return false
	case "true":
		return true
	default:
		p.fail(invalid("Invalid value '%s' for %s. It must be true or false", v, name))
		return false
	}
}

// structs returns the items of a list in the order of their numbers.
func (p *params) structs(name string) []*params {
	list := p.kids[name]
	if list == nil {
		return nil
	}
	if list.set {
		p.fail(invalid("The parameter %s is a list", name))
	}
	if len(list.kids) > maxList {
		p.fail(errf("InvalidParameterValue", "The list %s has more than %d items", name, maxList))
		return nil
	}
	var order []int
	for k := range list.kids {
		n, err := strconv.Atoi(k)
		if err != nil || n < 0 || n > maxIndex || strconv.Itoa(n) != k {
			p.fail(invalid("%s.%s is not an item of a list", name, k))
			continue
		}
		order = append(order, n)
	}
	slices.Sort(order)
	out := make([]*params, 0, len(order))
	for _, n := range order {
		out = append(out, list.kids[strconv.Itoa(n)])
	}
	return out
}

// list returns the values of a list of strings.
func (p *params) list(name string) []string {
	var out []string
	for _, it := range p.structs(name) {
		if it.kids != nil {
			p.fail(invalid("%s is a list of values", name))
		}
		out = append(out, it.value)
	}
	return out
}

// allow refuses names outside the given ones: a parameter that is not understood must not be ignored.
func (p *params) allow(names ...string) {
	for _, k := range sortedKeys(p.kids) {
		if !slices.Contains(names, k) {
			p.fail(errf("UnknownParameter", "The parameter %s is not recognized", k))
		}
	}
}

// flat writes the parameters as name and value, for the log.
func (p *params) flat() map[string]string {
	out := map[string]string{}
	var walk func(prefix string, p *params)
	walk = func(prefix string, p *params) {
		if p.set {
			out[prefix] = p.value
		}
		for k, kid := range p.kids {
			if prefix != "" {
				k = fmt.Sprintf("%s.%s", prefix, k)
			}
			walk(k, kid)
		}
	}
	walk("", p)
	return out
}
