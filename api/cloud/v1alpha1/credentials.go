package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// AWSCredentials is the document in the Secret of an AWS account. It is usable
// with a role, or with both halves of an access key. With a role and no key, the
// process's own default credentials assume the role.
type AWSCredentials struct {
	AccessKeyID     string `json:"accessKeyId,omitempty"`
	AccessKeySecret string `json:"accessKeySecret,omitempty"`
	SessionToken    string `json:"sessionToken,omitempty"`
	RoleARN         string `json:"roleArn,omitempty"`
	ExternalID      string `json:"externalId,omitempty"`
}

// AzureCredentials is the document in the Secret of an Azure subscription. The
// first three are required, and one of the others; sessionToken, a federated
// assertion, wins. With an identity, which the place where the controller runs gives
// it, subscriptionId alone is required, and no secret goes with it.
type AzureCredentials struct {
	SubscriptionID string `json:"subscriptionId,omitempty"`
	ClientID       string `json:"clientId,omitempty"`
	TenantID       string `json:"tenantId,omitempty"`
	ClientKey      string `json:"clientKey,omitempty"`
	SessionToken   string `json:"sessionToken,omitempty"`
	Identity       string `json:"identity,omitempty"` // WorkloadIdentity or ManagedIdentity
}

// The identities of AzureCredentials.
const (
	WorkloadIdentity = "WorkloadIdentity" // of the controller's service account
	ManagedIdentity  = "ManagedIdentity"  // of the VM that it runs on
)

// MaxCredentials is the most bytes that a document of credentials may have. A
// session token has some 2 KiB.
const MaxCredentials = 64 << 10

// ParseAWSCredentials parses the value of a Secret's key. The error never quotes
// the value.
func ParseAWSCredentials(data []byte) (AWSCredentials, error) {
	var c AWSCredentials
	if err := parseDocument(data, &c); err != nil {
		return AWSCredentials{}, err
	}
	if c.RoleARN == "" && (c.AccessKeyID == "" || c.AccessKeySecret == "") {
		return AWSCredentials{}, errors.New("set roleArn, or accessKeyId and accessKeySecret")
	}
	return c, nil
}

// ParseAzureCredentials parses the value of a Secret's key. The error never
// quotes the value.
func ParseAzureCredentials(data []byte) (AzureCredentials, error) {
	var c AzureCredentials
	if err := parseDocument(data, &c); err != nil {
		return AzureCredentials{}, err
	}
	required := []struct{ name, value string }{{"subscriptionId", c.SubscriptionID}, {"tenantId", c.TenantID}, {"clientId", c.ClientID}}
	if c.Identity != "" {
		required = required[:1]
	}
	for _, f := range required {
		if strings.TrimSpace(f.value) == "" {
			return AzureCredentials{}, fmt.Errorf("set %s", f.name)
		}
	}
	isSecret := strings.TrimSpace(c.ClientKey) != "" || strings.TrimSpace(c.SessionToken) != ""
	switch {
	case c.Identity == "" && !isSecret:
		return AzureCredentials{}, errors.New("set clientKey, sessionToken or identity")
	case c.Identity != "" && c.Identity != WorkloadIdentity && c.Identity != ManagedIdentity:
		return AzureCredentials{}, fmt.Errorf("identity is neither %s nor %s", WorkloadIdentity, ManagedIdentity)
	case c.Identity != "" && isSecret:
		return AzureCredentials{}, errors.New("identity goes with neither clientKey nor sessionToken")
	}
	return c, nil
}

// parseDocument decodes a JSON object. The errors of encoding/json would quote
// parts of it, so they are replaced.
func parseDocument(data []byte, out any) error {
	if len(data) > MaxCredentials {
		return fmt.Errorf("is %d bytes long, at most %d are read", len(data), MaxCredentials)
	}
	var typed *json.UnmarshalTypeError
	switch err := json.Unmarshal(data, out); {
	case errors.As(err, &typed) && typed.Field != "":
		return fmt.Errorf("%s is not a string", typed.Field)
	case err != nil:
		return errors.New("is not a JSON object")
	}
	return nil
}
