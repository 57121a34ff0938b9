package azure_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v9"

	"isobar.dev/sim/azure"
)

// sim is a simulator with clients of the SDK.
type sim struct {
	t       *testing.T
	cloud   *azure.Cloud
	srv     *httptest.Server
	cred    azcore.TokenCredential
	network *armnetwork.ClientFactory
	compute *armcompute.ClientFactory
}

// atOnce is for tests that do not care how long operations last.
var atOnce = azure.Options{Settle: -1}

func newSim(t *testing.T, e azure.Estate, o azure.Options) *sim {
	t.Helper()
	c, err := azure.New(e, o)
	if err != nil {
		t.Fatal(err)
	}
	s := &sim{t: t, cloud: c, srv: httptest.NewTLSServer(c.Handler())}
	t.Cleanup(s.srv.Close)
	s.cred, err = azidentity.NewClientSecretCredential(azure.SampleTenant, azure.SampleClientID, azure.SampleSecret,
		&azidentity.ClientSecretCredentialOptions{ClientOptions: s.options(), DisableInstanceDiscovery: true})
	if err != nil {
		t.Fatal(err)
	}
	s.use(azure.SampleSubscription, s.cred)
	return s
}

func (s *sim) use(subscription string, cred azcore.TokenCredential) {
	s.t.Helper()
	o := &arm.ClientOptions{ClientOptions: s.options(), DisableRPRegistration: true}
	var err, err2 error
	s.network, err = armnetwork.NewClientFactory(subscription, cred, o)
	s.compute, err2 = armcompute.NewClientFactory(subscription, cred, o)
	if err := errors.Join(err, err2); err != nil {
		s.t.Fatal(err)
	}
}

// options lead a client to the simulator. It makes no second attempt unless a test wants to see one.
func (s *sim) options() policy.ClientOptions {
	return policy.ClientOptions{
		Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: s.srv.URL + "/", Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: s.srv.URL, Audience: "https://management.core.windows.net/"},
		}},
		Transport: s.srv.Client(), Retry: policy.RetryOptions{MaxRetries: -1},
	}
}

// wait polls an operation to its end.
func wait[T any](t *testing.T, p *runtime.Poller[T], err error) (T, error) {
	t.Helper()
	if err != nil {
		var none T
		return none, err
	}
	return p.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Second})
}

// code is the error code of an answer of Resource Manager.
func code(err error) string {
	var e *azcore.ResponseError
	if errors.As(err, &e) {
		return e.ErrorCode
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func with(ctx context.Context, name, value string) context.Context {
	return policy.WithHTTPHeader(ctx, http.Header{name: {value}})
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ptr[T any](v T) *T { return &v }

// all walks the pages of a list.
func all[P, T any](t *testing.T, p *runtime.Pager[P], items func(P) []T) (out []T, pages int) {
	t.Helper()
	for p.More() {
		page, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		out, pages = append(out, items(page)...), pages+1
	}
	return out, pages
}

func TestSDKLists(t *testing.T) {
	s := newSim(t, azure.Sample(), azure.Options{PageSize: 4})
	nics, pages := all(t, s.network.NewInterfacesClient().NewListAllPager(nil), func(p armnetwork.InterfacesClientListAllResponse) []*armnetwork.Interface { return p.Value })
	if len(nics) != 10 || pages != 3 {
		t.Errorf("%d interfaces in %d pages, want 10 in 3", len(nics), pages)
	}
	in, _ := all(t, s.network.NewInterfacesClient().NewListPager("REPORTS", nil), func(p armnetwork.InterfacesClientListResponse) []*armnetwork.Interface { return p.Value })
	if len(in) != 1 || *in[0].Properties.Primary != true || in[0].Properties.VirtualMachine == nil {
		t.Errorf("interfaces of a resource group: %v", in)
	}
	vms, _ := all(t, s.compute.NewVirtualMachinesClient().NewListAllPager(&armcompute.VirtualMachinesClientListAllOptions{StatusOnly: ptr("true")}),
		func(p armcompute.VirtualMachinesClientListAllResponse) []*armcompute.VirtualMachine { return p.Value })
	if len(vms) != 10 || *vms[0].Properties.InstanceView.Statuses[1].Code != "PowerState/running" {
		t.Errorf("%d machines with status %v", len(vms), vms[0].Properties.InstanceView)
	}
	vnets, _ := all(t, s.network.NewVirtualNetworksClient().NewListAllPager(nil), func(p armnetwork.VirtualNetworksClientListAllResponse) []*armnetwork.VirtualNetwork { return p.Value })
	if len(vnets) != 3 || *vnets[1].Properties.VirtualNetworkPeerings[0].Properties.PeeringState != "Connected" && *vnets[0].Properties.VirtualNetworkPeerings[0].Properties.PeeringState != "Connected" {
		t.Errorf("networks: %v", vnets)
	}
}

func TestSDKSecurityGroup(t *testing.T) {
	s := newSim(t, azure.Sample(), atOnce)
	nsgs := s.network.NewSecurityGroupsClient()
	rule := func(name string, priority int32) *armnetwork.SecurityRule {
		return &armnetwork.SecurityRule{Name: &name, Properties: &armnetwork.SecurityRulePropertiesFormat{
			Priority: &priority, Access: ptr(armnetwork.SecurityRuleAccessAllow), Direction: ptr(armnetwork.SecurityRuleDirectionInbound), Protocol: ptr(armnetwork.SecurityRuleProtocolTCP),
			SourceAddressPrefix: ptr("10.0.0.0/8"), SourcePortRange: ptr("*"), DestinationAddressPrefix: ptr("*"), DestinationPortRange: ptr("443"),
		}}
	}
	put := func(ctx context.Context, rules ...*armnetwork.SecurityRule) (armnetwork.SecurityGroupsClientCreateOrUpdateResponse, error) {
		p, err := nsgs.BeginCreateOrUpdate(ctx, "shop", "new", armnetwork.SecurityGroup{
			Location: ptr("West Europe"), Tags: map[string]*string{"a": ptr("b")}, Properties: &armnetwork.SecurityGroupPropertiesFormat{SecurityRules: rules},
		}, nil)
		return wait(t, p, err)
	}
	made := must[armnetwork.SecurityGroupsClientCreateOrUpdateResponse](t)(put(t.Context(), rule("one", 100)))
	if len(made.Properties.DefaultSecurityRules) != 6 || *made.Properties.ProvisioningState != "Succeeded" || *made.Location != "westeurope" || *made.ID == "" {
		t.Errorf("made %+v", made.SecurityGroup.Properties)
	}
	if _, err := put(t.Context(), rule("one", 100), rule("two", 100)); code(err) != "SecurityRuleConflict" {
		t.Errorf("one priority twice: %v", err)
	}
	if _, err := put(with(t.Context(), "If-Match", `W/"00000000-0000-0000-0000-000000000000"`), rule("one", 100)); code(err) != "PreconditionFailed" {
		t.Errorf("an old etag: %v", err)
	}
	again, err := put(with(t.Context(), "If-Match", *made.Etag), rule("two", 200))
	if err != nil || *again.Etag == *made.Etag || len(again.Properties.SecurityRules) != 1 {
		t.Errorf("replaced: %v, %v", again.SecurityGroup, err)
	}
	p, err := s.network.NewSecurityRulesClient().BeginCreateOrUpdate(t.Context(), "shop", "new", "three", *rule("three", 300), nil)
	if r, err := wait(t, p, err); err != nil || *r.Name != "three" {
		t.Errorf("a rule by itself: %v", err)
	}
	if got, err := nsgs.Get(t.Context(), "shop", "NEW", nil); err != nil || len(got.Properties.SecurityRules) != 2 || *got.Tags["a"] != "b" {
		t.Errorf("got %+v, %v", got.Properties, err)
	}
	d, err := nsgs.BeginDelete(t.Context(), "shop", "shop-web", nil)
	if _, err := wait(t, d, err); code(err) != "InUseNetworkSecurityGroupCannotBeDeleted" {
		t.Errorf("deleted in use: %v", err)
	}
	d, err = nsgs.BeginDelete(t.Context(), "shop", "new", nil)
	if _, err := wait(t, d, err); err != nil {
		t.Errorf("deleted: %v", err)
	}
	if _, err := nsgs.Get(t.Context(), "shop", "new", nil); code(err) != "ResourceNotFound" {
		t.Errorf("after its deletion: %v", err)
	}
}
