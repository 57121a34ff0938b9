package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"isobar.dev/plan"
)

// listAdminRules is what Azure calls the listing of the admin rules of a VNet.
const listAdminRules = "listNetworkManagerEffectiveSecurityAdminRules"

// adminRule is a security admin rule of Azure Virtual Network Manager.
type adminRule struct {
	ID         string `json:"id"`
	Properties struct {
		Access    string `json:"access"` // Allow, AlwaysAllow or Deny
		Direction string `json:"direction"`
		Priority  int32  `json:"priority"`
	} `json:"properties"`
}

// adminRules lists the admin rules that are in force in a VNet.
func (c *client) adminRules(ctx context.Context, vnet resourceID) ([]adminRule, error) {
	var out []adminRule
	seen := map[string]bool{}
	for token := ""; ; {
		req, err := runtime.NewRequest(ctx, http.MethodPost, c.endpoint+vnet.path()+"/"+listAdminRules+"?api-version="+networkVersion)
		if err != nil {
			return nil, err
		}
		body := map[string]string{}
		if token != "" {
			body["skipToken"] = token
		}
		if err := runtime.MarshalAsJSON(req, body); err != nil {
			return nil, err
		}
		answer, _, err := c.do(req, http.StatusOK)
		if err != nil {
			return nil, err
		}
		var page struct {
			Value     *[]adminRule `json:"value"`
			SkipToken string       `json:"skipToken"`
		}
		if err := json.Unmarshal(answer, &page); err != nil || page.Value == nil {
			return nil, errors.New("the answer is not a list")
		}
		out = append(out, *page.Value...)
		switch token = page.SkipToken; {
		case token == "":
			return out, nil
		case seen[token]:
			return nil, errors.New("a page leads back to itself")
		case len(seen) > maxPages || len(out) > maxItems:
			return nil, errors.New("a listing without an end")
		}
		seen[token] = true
	}
}

// maxAdminNotes bounds what is told of admin rules one by one.
const maxAdminNotes = 20

// adminNotes tells the admin rules of the VNet that decide before any NSG. Nothing that
// is enforced depends on them: where they cannot be read, that is told.
func (d *Driver) adminNotes(ctx context.Context) []plan.Note {
	rules, err := d.region.adminRules(ctx, d.vnet)
	key := "vnet/" + d.vnet.name()
	if err != nil {
		return []plan.Note{{Key: key, Text: fmt.Sprintf("the admin rules of Virtual Network Manager could not be read (%s): they may deny what policies allow, or allow what they deny", resultOf(err))}}
	}
	var out []plan.Note
	more := 0
	for _, r := range rules {
		what := ""
		switch access := r.Properties.Access; {
		case strings.EqualFold(access, "Deny"):
			what = "denies what it matches, whatever policies allow"
		case strings.EqualFold(access, "AlwaysAllow"):
			what = "always allows what it matches, whatever policies deny"
		case strings.EqualFold(access, "Allow"):
			continue // NSGs decide then
		default:
			what = "has the access \"" + access + "\", which is not known"
		}
		if len(out) == maxAdminNotes {
			more++
			continue
		}
		out = append(out, plan.Note{Key: key, Text: fmt.Sprintf("the admin rule %q of Virtual Network Manager, %s, priority %d, %s", lastName(r.ID), strings.ToLower(r.Properties.Direction), r.Properties.Priority, what)})
	}
	if more > 0 {
		out = append(out, plan.Note{Key: key, Text: fmt.Sprintf("%d more admin rules of Virtual Network Manager deny or always allow", more)})
	}
	return out
}
