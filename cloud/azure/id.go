package azure

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// resourceID is where a resource is in Azure, which tells such IDs in any case.
type resourceID struct {
	subscription, group string
	provider            string   // Microsoft.Network
	types, names        []string // virtualNetworks, subnets; as many of each, at least one
}

// maxID bounds an ID, in bytes.
const maxID = 2048

var (
	guidRE = regexp.MustCompile(`^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$`)
	wordRE = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9.]{0,99}$`)
	// nameRE has what names are made of, those of resource groups included, which
	// may have letters of any script.
	nameRE = regexp.MustCompile(`^[\pL\pN_().-]{1,260}$`)
)

// parseID parses the ID of a resource in a resource group. Its names lead nowhere
// else when they are put into a URL.
func parseID(s string) (resourceID, error) {
	if len(s) > maxID {
		return resourceID{}, fmt.Errorf("resource ID: longer than %d bytes", maxID)
	}
	parts := strings.Split(s, "/")
	if len(parts) < 9 || len(parts)%2 == 0 || parts[0] != "" ||
		!strings.EqualFold(parts[1], "subscriptions") || !strings.EqualFold(parts[3], "resourceGroups") || !strings.EqualFold(parts[5], "providers") {
		return resourceID{}, fmt.Errorf("resource ID %q: want /subscriptions/…/resourceGroups/…/providers/…", s)
	}
	id := resourceID{subscription: parts[2], group: parts[4], provider: parts[6]}
	for i := 7; i < len(parts); i += 2 {
		id.types, id.names = append(id.types, parts[i]), append(id.names, parts[i+1])
	}
	if err := id.check(); err != nil {
		return resourceID{}, fmt.Errorf("resource ID %q: %w", s, err)
	}
	return id, nil
}

func (id resourceID) check() error {
	isName := func(s string) bool { return nameRE.MatchString(s) && s != "." && s != ".." }
	switch {
	case !guidRE.MatchString(id.subscription):
		return errors.New("not in a subscription")
	case !isName(id.group):
		return errors.New("not in a resource group")
	case !wordRE.MatchString(id.provider):
		return errors.New("of no provider")
	}
	for i := range id.types {
		if !wordRE.MatchString(id.types[i]) || !isName(id.names[i]) {
			return errors.New("not the name of a resource")
		}
	}
	return nil
}

// String returns the ID as Azure writes it.
func (id resourceID) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "/subscriptions/%s/resourceGroups/%s/providers/%s", id.subscription, id.group, id.provider)
	for i := range id.types {
		b.WriteString("/" + id.types[i] + "/" + id.names[i])
	}
	return b.String()
}

// key is the same for every way to write the ID; it is what we know a resource by.
func (id resourceID) key() string { return strings.ToLower(id.String()) }

// ref is the key of a VNet in a form for people, "group:name/subscription". What precedes
// the last slash of a Target's name is what it shares with those whose groups it can
// name: see policy.Realm. VNets share none.
func (id resourceID) ref() string {
	return strings.ToLower(id.group + ":" + id.name() + "/" + id.subscription)
}

// path is the ID as the path of a URL.
func (id resourceID) path() string { return (&url.URL{Path: id.String()}).EscapedPath() }

// name returns the last of the names.
func (id resourceID) name() string { return id.names[len(id.names)-1] }

// is says whether it is of a type, such as Microsoft.Network/networkInterfaces.
func (id resourceID) is(kind string) bool {
	return strings.EqualFold(id.provider+"/"+strings.Join(id.types, "/"), kind)
}

// parent returns the ID of what the resource is a part of; of what is none, its own.
func (id resourceID) parent() resourceID {
	if n := len(id.types) - 1; n > 0 {
		id.types, id.names = id.types[:n], id.names[:n]
	}
	return id
}

// networkID returns the ID of a resource of Microsoft.Network.
func networkID(subscription, group, kind, name string) resourceID {
	return resourceID{subscription, group, "Microsoft.Network", []string{kind}, []string{name}}
}
