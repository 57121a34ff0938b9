package azure

import (
	"fmt"
	"regexp"
	"strings"
)

// maxID bounds the text of a resource id, in bytes.
const maxID = 2048

// resourceID is an id of Resource Manager in parts, written as the writer wrote it. Azure compares ids
// without case.
type resourceID struct {
	subscription string
	group        string
	provider     string   // as Microsoft.Network; empty for a subscription or a resource group
	types        []string // as virtualNetworks, subnets
	names        []string // as many
}

var (
	guidRE  = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	groupRE = regexp.MustCompile(`^[-\w._()]{0,89}[-\w_()]$`)
	nameRE  = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,78}[a-zA-Z0-9_])?$`) // of networks
	wordRE  = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9.]{0,63}$`)                     // of providers and types
)

// fold is what ids and names are compared by.
func fold(s string) string { return strings.ToLower(s) }

// parseID reads the id of a resource: /subscriptions/…/resourceGroups/…/providers/… with as many names
// as types.
func parseID(s string) (resourceID, error) {
	if len(s) > maxID {
		return resourceID{}, fmt.Errorf("an id of more than %d bytes", maxID)
	}
	rest, ok := strings.CutPrefix(s, "/")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 8 || len(parts)%2 != 0 || fold(parts[0]) != "subscriptions" || fold(parts[2]) != "resourcegroups" || fold(parts[4]) != "providers" {
		return resourceID{}, fmt.Errorf("%q is not the id of a resource", s)
	}
	id := resourceID{subscription: parts[1], group: parts[3], provider: parts[5]}
	for i := 6; i < len(parts); i += 2 {
		id.types, id.names = append(id.types, parts[i]), append(id.names, parts[i+1])
	}
	if err := id.check(); err != nil {
		return resourceID{}, fmt.Errorf("%q: %w", s, err)
	}
	return id, nil
}

func (id resourceID) check() error {
	if !guidRE.MatchString(id.subscription) {
		return fmt.Errorf("%q is not the id of a subscription", id.subscription)
	}
	if !groupRE.MatchString(id.group) || !wordRE.MatchString(id.provider) {
		return fmt.Errorf("resource group %q or provider %q is malformed", id.group, id.provider)
	}
	for i, t := range id.types {
		if !wordRE.MatchString(t) || id.names[i] == "" || len(id.names[i]) > 260 || strings.ContainsAny(id.names[i], "<>%&\\?/#\x00") {
			return fmt.Errorf("type %q or name %q is malformed", t, id.names[i])
		}
	}
	return nil
}

func (id resourceID) String() string {
	var b strings.Builder
	b.WriteString("/subscriptions/" + id.subscription + "/resourceGroups/" + id.group)
	if id.provider != "" {
		b.WriteString("/providers/" + id.provider)
	}
	for i, t := range id.types {
		b.WriteString("/" + t + "/" + id.names[i])
	}
	return b.String()
}

// key is equal for ids of one resource.
func (id resourceID) key() string { return fold(id.String()) }

// typeName is as Microsoft.Network/virtualNetworks/subnets.
func (id resourceID) typeName() string { return id.provider + "/" + strings.Join(id.types, "/") }

func (id resourceID) nameText() string { return strings.Join(id.names, "/") }

func (id resourceID) name() string { return id.names[len(id.names)-1] }

// child names what is in the resource.
func (id resourceID) child(kind, name string) resourceID {
	c := id
	c.types = append(append([]string(nil), id.types...), kind)
	c.names = append(append([]string(nil), id.names...), name)
	return c
}

// parent names what the resource is in.
func (id resourceID) parent() resourceID {
	p := id
	p.types, p.names = id.types[:len(id.types)-1], id.names[:len(id.names)-1]
	return p
}

// keyOf is the key of an id that has been checked, or of anything else: then it is equal to no other.
func keyOf(s string) string { return fold(s) }
