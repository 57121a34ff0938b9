package azure

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"isobar.dev/cloud"
)

// maxSecret bounds a Secret's value, in bytes. Federated tokens are a few kilobytes.
const maxSecret = 64 << 10

// Identity is who we are to Azure when no secret of ours says so. The zero Identity is
// an application with a key or a federated token.
type Identity string

// The identities that the place where we run gives us.
const (
	WorkloadIdentity Identity = "WorkloadIdentity" // a Pod's, by its service account's token
	ManagedIdentity  Identity = "ManagedIdentity"  // a VM's
)

// Credentials are how a subscription is reached. They do not print.
type Credentials struct {
	SubscriptionID     string
	ClientID, TenantID string // both may be empty with an Identity, which then has its own
	ClientKey          string
	SessionToken       string // a federated token; it wins over a key
	Identity           Identity
}

// String tells the subscription, and what is there to reach it with.
func (c Credentials) String() string {
	return fmt.Sprintf("{subscription: %q, client: %q, key: %t, token: %t, identity: %q}", c.SubscriptionID, c.ClientID, c.ClientKey != "", c.SessionToken != "", string(c.Identity))
}

// GoString, Format, LogValue and MarshalText tell what String does, so that no verb
// and no logger prints a secret.
func (c Credentials) GoString() string             { return c.String() }
func (c Credentials) Format(f fmt.State, _ rune)   { io.WriteString(f, c.String()) }
func (c Credentials) LogValue() slog.Value         { return slog.StringValue(c.String()) }
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// check says what is missing.
func (c Credentials) check() error {
	switch {
	case !guidRE.MatchString(c.SubscriptionID):
		return errors.New("subscriptionId: want the ID of a subscription")
	case c.Identity == "" && (c.ClientID == "" || c.TenantID == ""):
		return errors.New("set tenantId and clientId")
	case c.Identity == "" && c.ClientKey == "" && c.SessionToken == "":
		return errors.New("set clientKey, sessionToken or identity")
	case c.Identity != "" && c.Identity != WorkloadIdentity && c.Identity != ManagedIdentity:
		return fmt.Errorf("identity: want %s or %s", WorkloadIdentity, ManagedIdentity)
	case c.Identity != "" && (c.ClientKey != "" || c.SessionToken != ""):
		return errors.New("an identity goes with neither clientKey nor sessionToken")
	}
	return nil
}

// ParseSecret parses the JSON object of an account's Secret, at most 64 KiB: the
// string fields subscriptionId, tenantId, clientId, and of clientKey, sessionToken
// and identity one. A sessionToken wins over a clientKey. Other fields do not count.
// What comes after the object is an error; no error tells what the secret is.
func ParseSecret(b []byte) (Credentials, error) {
	if len(b) > maxSecret {
		return Credentials{}, fmt.Errorf("parse secret: longer than %d bytes", maxSecret)
	}
	var c struct {
		SubscriptionID string `json:"subscriptionId"`
		ClientID       string `json:"clientId"`
		TenantID       string `json:"tenantId"`
		ClientKey      string `json:"clientKey"`
		SessionToken   string `json:"sessionToken"`
		Identity       string `json:"identity"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	// The decoder's own errors quote what they do not like.
	if err := d.Decode(&c); err != nil {
		return Credentials{}, errors.New("parse secret: want a JSON object with the strings subscriptionId, tenantId, clientId, clientKey, sessionToken and identity")
	}
	if _, err := d.Token(); err != io.EOF {
		return Credentials{}, errors.New("parse secret: there is more after the JSON object")
	}
	out := Credentials{
		SubscriptionID: strings.TrimSpace(c.SubscriptionID), ClientID: strings.TrimSpace(c.ClientID), TenantID: strings.TrimSpace(c.TenantID),
		ClientKey: strings.TrimSpace(c.ClientKey), SessionToken: strings.TrimSpace(c.SessionToken), Identity: Identity(c.Identity),
	}
	if err := out.check(); err != nil {
		return Credentials{}, fmt.Errorf("parse secret: %w", err)
	}
	if out.SessionToken != "" {
		out.ClientKey = ""
	}
	return out, nil
}

// scrub takes what is secret out of an error's text.
func scrub(c Credentials, err error) error { return cloud.Scrub(err, c.ClientKey, c.SessionToken) }
