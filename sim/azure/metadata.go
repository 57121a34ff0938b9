package azure

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// metadata is the Instance Metadata Service as far as managed identities need it. On Azure it answers on
// a link-local address to the machine alone; here it answers loopback peers.
func (c *Cloud) metadata(w http.ResponseWriter, r *http.Request) {
	fail := func(kind, text string) {
		reply(w, http.StatusBadRequest, Document{"error": kind, "error_description": text})
	}
	q := r.URL.Query()
	switch {
	case !strings.EqualFold(r.Header.Get("Metadata"), "true"):
		fail("invalid_request", "Required metadata header not specified")
		return
	case r.Header.Get("X-Forwarded-For") != "":
		fail("invalid_request", "X-Forwarded-For header is not allowed")
		return
	case q.Get("api-version") < "2018-02-01":
		fail("invalid_request", "Required query variable 'api-version' is missing or too old")
		return
	case !slices.Contains(audiences, q.Get("resource")):
		fail("invalid_resource", "AADSTS500011: The resource principal named "+clip(q.Get("resource"))+" was not found in the tenant.")
		return
	}
	c.mu.Lock()
	who, ok := c.w.managed(q.Get("client_id"), q.Get("object_id"))
	token, now := "", c.opts.Now()
	if ok {
		token = c.issue(who, q.Get("resource"))
	}
	c.mu.Unlock()
	if !ok {
		fail("invalid_request", "Identity not found")
		return
	}
	reply(w, http.StatusOK, Document{
		"access_token": token, "client_id": who.app.ClientID, "resource": q.Get("resource"), "token_type": "Bearer",
		"expires_in": strconv.Itoa(int(c.opts.TokenLife.Seconds())), "expires_on": strconv.FormatInt(now.Add(c.opts.TokenLife).Unix(), 10), "not_before": strconv.FormatInt(now.Unix(), 10),
	})
}

// managed finds a managed identity; the first one when none is named.
func (w *world) managed(client, object string) (principal, bool) {
	for _, k := range sortedKeys(w.tenants) {
		t := w.tenants[k]
		for _, a := range t.Applications {
			if a.Managed && (client == "" || strings.EqualFold(a.ClientID, client)) && (object == "" || strings.EqualFold(a.ObjectID, object)) {
				return principal{t, a}, true
			}
		}
	}
	return principal{}, false
}
