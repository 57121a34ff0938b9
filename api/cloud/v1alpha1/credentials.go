package v1alpha1

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
// assertion, wins.
type AzureCredentials struct {
	SubscriptionID string `json:"subscriptionId,omitempty"`
	ClientID       string `json:"clientId,omitempty"`
	TenantID       string `json:"tenantId,omitempty"`
	ClientKey      string `json:"clientKey,omitempty"`
	SessionToken   string `json:"sessionToken,omitempty"`
}
