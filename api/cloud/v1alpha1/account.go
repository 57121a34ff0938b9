package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CloudProviderAccount is an AWS account or an Azure subscription.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=cloudprovideraccounts,shortName=cpa
// +kubebuilder:subresource:status
type CloudProviderAccount struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec CloudProviderAccountSpec `json:"spec,omitempty"`
	// +optional
	Status CloudProviderAccountStatus `json:"status,omitempty"`
}

// CloudProviderAccountList is a list of CloudProviderAccount.
//
// +kubebuilder:object:root=true
type CloudProviderAccountList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CloudProviderAccount `json:"items"`
}

// Bounds of spec.pollIntervalInSeconds.
const (
	DefaultPollIntervalSeconds = 60
	MinPollIntervalSeconds     = 30
)

// CloudProviderAccountSpec has exactly one of awsConfig and azureConfig.
//
// +kubebuilder:validation:XValidation:rule="has(self.awsConfig) != has(self.azureConfig)",message="set exactly one of awsConfig and azureConfig"
type CloudProviderAccountSpec struct {
	// PollIntervalInSeconds is the time between two listings of the inventory:
	// at least 30; absent means 60.
	// +optional
	// +kubebuilder:default=60
	// +kubebuilder:validation:Minimum=30
	PollIntervalInSeconds *int32 `json:"pollIntervalInSeconds,omitempty"`

	// +optional
	AWSConfig *AWSConfig `json:"awsConfig,omitempty"`

	// +optional
	AzureConfig *AzureConfig `json:"azureConfig,omitempty"`

	// DeletionPolicy is what happens to the cloud's objects when this account is
	// deleted here; empty means Restore.
	// +optional
	// +kubebuilder:default=Restore
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
}

// DeletionPolicy is what to do with the objects made in a cloud.
//
// +kubebuilder:validation:Enum=Restore;Orphan
type DeletionPolicy string

// The deletion policies. Empty means Restore.
const (
	// DeletionRestore gives every NIC its own groups back and deletes ours.
	DeletionRestore DeletionPolicy = "Restore"
	// DeletionOrphan leaves everything as it is in the cloud.
	DeletionOrphan DeletionPolicy = "Orphan"
)

// AWSConfig is how to reach an AWS account.
type AWSConfig struct {
	// SecretRef names the credentials. It is required at admission.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// Region lists the regions to govern, in any partition; at least one.
	// +optional
	Region []string `json:"region,omitempty"`

	// Endpoint overrides the URL of EC2 for every region.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// STSEndpoint overrides the URL of STS.
	// +optional
	STSEndpoint string `json:"stsEndpoint,omitempty"`

	// RDSEndpoint overrides the URL of RDS for every region.
	// +optional
	RDSEndpoint string `json:"rdsEndpoint,omitempty"`

	// ELBEndpoint overrides the URL of Elastic Load Balancing for every region.
	// +optional
	ELBEndpoint string `json:"elbEndpoint,omitempty"`

	// TakeOver replaces the security groups of a Nephe that enforced here before,
	// and runs no more. Absent, they are another's.
	// +optional
	TakeOver *NepheTakeOver `json:"takeOver,omitempty"`

	// Quotas are what the account may use of EC2's limits, in each region. What is
	// absent is EC2's default.
	// +optional
	Quotas *AWSQuotas `json:"quotas,omitempty"`
}

// AWSQuotas are limits of EC2 for one account and region. A limit that is higher
// than EC2's own lets EC2 refuse what is written.
//
// +kubebuilder:validation:XValidation:rule="(has(self.rulesPerSecurityGroup) ? self.rulesPerSecurityGroup : 60) * (has(self.securityGroupsPerInterface) ? self.securityGroupsPerInterface : 5) <= 1000",message="rulesPerSecurityGroup times securityGroupsPerInterface must not exceed 1000"
type AWSQuotas struct {
	// RulesPerSecurityGroup is how many rules a group may have, in each direction
	// and each IP family; absent means 60.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	RulesPerSecurityGroup *int32 `json:"rulesPerSecurityGroup,omitempty"`

	// SecurityGroupsPerInterface is how many groups an interface may have; absent
	// means 5.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	SecurityGroupsPerInterface *int32 `json:"securityGroupsPerInterface,omitempty"`

	// SecurityGroupsPerRegion is how many groups all VPCs of a region may have,
	// whoever made them; absent means 2500.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	SecurityGroupsPerRegion *int32 `json:"securityGroupsPerRegion,omitempty"`

	// PrefixListsPerRegion is how many managed prefix lists a region may have,
	// whoever made them; 0 means that none is made, absent means 100.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	PrefixListsPerRegion *int32 `json:"prefixListsPerRegion,omitempty"`

	// EntriesPerPrefixList is how many entries a list may have; absent means 1000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	EntriesPerPrefixList *int32 `json:"entriesPerPrefixList,omitempty"`
}

// EC2's own limits, which stand for what AWSQuotas leaves out.
const (
	DefaultRulesPerSecurityGroup      = 60
	DefaultSecurityGroupsPerInterface = 5
	// MaxRulesPerInterface bounds the rules of a group times the groups of an interface.
	MaxRulesPerInterface = 1000
)

// NepheTakeOver names what a Nephe has made in a cloud.
type NepheTakeOver struct {
	// CloudResourcePrefix is that of the Nephe's configuration: letters, digits and
	// single hyphens between them; empty means "nephe".
	// +optional
	// +kubebuilder:default=nephe
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`
	CloudResourcePrefix string `json:"cloudResourcePrefix,omitempty"`
}

// DefaultNephePrefix is what the names of Nephe's cloud resources begin with.
const DefaultNephePrefix = "nephe"

// AzureConfig is how to reach an Azure subscription.
type AzureConfig struct {
	// SecretRef names the credentials. It is required at admission.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`

	// Region lists the regions to govern, as "westus2" or "West US 2"; at least one.
	// +optional
	Region []string `json:"region,omitempty"`

	// Cloud is the cloud that the subscription is in; empty means AzurePublic.
	// +optional
	Cloud AzureCloud `json:"cloud,omitempty"`

	// Endpoint overrides the URL of Azure Resource Manager: https, or http on a
	// loopback address.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// AuthorityEndpoint overrides the URL of the authority that gives tokens: https.
	// +optional
	AuthorityEndpoint string `json:"authorityEndpoint,omitempty"`

	// CABundle has certificates that both are trusted by besides the system's, as PEM.
	// +optional
	CABundle []byte `json:"caBundle,omitempty"`

	// Quotas are what the subscription may use of Azure's limits, in each region. What
	// is absent is Azure's default.
	// +optional
	Quotas *AzureQuotas `json:"quotas,omitempty"`
}

// AzureQuotas are limits of Azure for one subscription and region.
type AzureQuotas struct {
	// RulesPerNetworkSecurityGroup is how many rules a group may have, in both
	// directions together; absent means 1000.
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=1000
	RulesPerNetworkSecurityGroup *int32 `json:"rulesPerNetworkSecurityGroup,omitempty"`

	// AddressesPerNetworkSecurityGroup is how many addresses and ranges the rules of a
	// group may have together as sources, and how many as destinations; absent means 4000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4000
	AddressesPerNetworkSecurityGroup *int32 `json:"addressesPerNetworkSecurityGroup,omitempty"`

	// NetworkSecurityGroupsPerRegion is how many groups a region may have, whoever made
	// them; absent means 5000.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	NetworkSecurityGroupsPerRegion *int32 `json:"networkSecurityGroupsPerRegion,omitempty"`
}

// AzureCloud is one of Azure's clouds.
//
// +kubebuilder:validation:Enum=AzurePublic;AzureGovernment;AzureChina
type AzureCloud string

// Azure's clouds. Empty means AzurePublic.
const (
	AzurePublic     AzureCloud = "AzurePublic"
	AzureGovernment AzureCloud = "AzureGovernment"
	AzureChina      AzureCloud = "AzureChina"
)

// SecretReference names one key of a Secret. Its value is a JSON document:
// [AWSCredentials] or [AzureCredentials].
type SecretReference struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Key       string `json:"key"`
}

// CloudProviderAccountStatus says how the account fares.
type CloudProviderAccountStatus struct {
	// Error is the last error of reaching the account or of listing its
	// inventory; empty after a success.
	// +optional
	Error string `json:"error,omitempty"`

	// Regions are those where something may be enforced. One that spec no longer
	// names is there until that is undone.
	// +optional
	// +listType=set
	Regions []string `json:"regions,omitempty"`

	// LeftBehind are the networks, as region/ID, where what was done could not be
	// undone when the Secret became that of another account of the cloud. One is there
	// until it is undone, or is listed again.
	// +optional
	// +listType=set
	LeftBehind []string `json:"leftBehind,omitempty"`

	// ObservedGeneration is the metadata.generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions say the same in the standard form.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
