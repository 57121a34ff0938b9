package controller

import (
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
)

// maxText bounds what is written into a status, in bytes.
const maxText = 1024

// requestID is what clouds put into each error and never twice.
var requestID = regexp.MustCompile(`(?i)(,?\s*\brequest\s?id:\s*[0-9a-z-]*)`)

// errText returns what an error says without what differs each time it is said,
// on one line and bounded, so that equal failures have equal texts. It is ""
// for nil.
func errText(err error) string {
	if err == nil {
		return ""
	}
	text := requestID.ReplaceAllString(err.Error(), "")
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ") // as errors.Join joins
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}

// cleanText is errText of err without secrets. They are taken out first: of one
// that is cut at the bound, the rest would not be known for what it is.
func cleanText(scrub func(string) string, err error) string {
	if err == nil {
		return ""
	}
	return errText(errors.New(scrub(err.Error())))
}

// openNames are the keys of credentials whose values are no secrets, and help in errors.
var openNames = []string{"accessKeyId", "roleArn", "subscriptionId", "clientId", "tenantId"}

// scrubber returns a function that removes the secret values of a credentials
// document from a text. Drivers do not write them into errors; the services
// that they ask may.
func scrubber(document []byte) func(string) string {
	var values map[string]any
	if json.Unmarshal(document, &values) != nil {
		values = nil
	}
	var pairs []string
	for name, v := range values {
		if s, ok := v.(string); ok && len(s) >= 8 && !slices.Contains(openNames, name) {
			pairs = append(pairs, s, "[secret]")
		}
	}
	return strings.NewReplacer(pairs...).Replace
}
