package aws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// maxSecret bounds a Secret's value, in bytes. Session tokens are a few kilobytes.
const maxSecret = 64 << 10

// Credentials are how an account is reached: by static keys, by a role that is
// assumed with them or with the default chain, or, when all is empty, by the
// default chain. They do not print.
type Credentials struct {
	AccessKeyID     string
	AccessKeySecret string
	SessionToken    string
	RoleARN         string
	ExternalID      string
}

// String tells the role, and whether there are keys.
func (c Credentials) String() string {
	return fmt.Sprintf("{keys: %t, role: %q}", c.AccessKeyID != "", c.RoleARN)
}

// GoString, Format and LogValue tell what String does, so that no verb and no
// logger prints a secret.
func (c Credentials) GoString() string             { return c.String() }
func (c Credentials) Format(f fmt.State, _ rune)   { io.WriteString(f, c.String()) }
func (c Credentials) LogValue() slog.Value         { return slog.StringValue(c.String()) }
func (c Credentials) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// check says what is missing.
func (c Credentials) check() error {
	if (c.AccessKeyID == "") != (c.AccessKeySecret == "") {
		return errors.New("accessKeyId and accessKeySecret go together")
	}
	if c.SessionToken != "" && c.AccessKeyID == "" {
		return errors.New("a sessionToken needs accessKeyId and accessKeySecret")
	}
	if c.ExternalID != "" && c.RoleARN == "" {
		return errors.New("an externalId needs a roleArn")
	}
	return nil
}

// ParseSecret parses the JSON object of an account's Secret, at most 64 KiB: the
// string fields accessKeyId, accessKeySecret, sessionToken, roleArn and
// externalId, and of them roleArn or both of the first two. Other fields, a
// sessionToken without keys and an externalId without a role do not count, as
// they never did. What comes after the object is an error; no error tells what
// the secret is.
func ParseSecret(b []byte) (Credentials, error) {
	if len(b) > maxSecret {
		return Credentials{}, fmt.Errorf("parse secret: longer than %d bytes", maxSecret)
	}
	var c struct {
		AccessKeyID     *string `json:"accessKeyId"`
		AccessKeySecret *string `json:"accessKeySecret"`
		SessionToken    *string `json:"sessionToken"`
		RoleARN         *string `json:"roleArn"`
		ExternalID      *string `json:"externalId"`
	}
	d := json.NewDecoder(bytes.NewReader(b))
	// The decoder's own errors quote what they do not like.
	if err := d.Decode(&c); err != nil {
		return Credentials{}, errors.New("parse secret: want a JSON object with the strings accessKeyId, accessKeySecret, sessionToken, roleArn and externalId")
	}
	if _, err := d.Token(); err != io.EOF {
		return Credentials{}, errors.New("parse secret: there is more after the JSON object")
	}
	text := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	out := Credentials{text(c.AccessKeyID), text(c.AccessKeySecret), text(c.SessionToken), text(c.RoleARN), text(c.ExternalID)}
	if out.AccessKeyID == "" {
		out.SessionToken = ""
	}
	if out.RoleARN == "" {
		out.ExternalID = ""
	}
	if err := out.check(); err != nil {
		return Credentials{}, fmt.Errorf("parse secret: %w", err)
	}
	if out.AccessKeyID == "" && out.RoleARN == "" {
		return Credentials{}, errors.New("parse secret: want a roleArn, or accessKeyId and accessKeySecret")
	}
	return out, nil
}
