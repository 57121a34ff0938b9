package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	simaws "isobar.dev/sim/aws"
	simazure "isobar.dev/sim/azure"
)

// startAWS serves the simulated AWS, at the address of the last start if it is free.
func (u *up) startAWS(ctx context.Context) error {
	listen, estate := u.listenOf("aws", u.flags.awsListen), u.file("aws-start.json")
	if err := awsEstate(u.flags.empty).Save(estate); err != nil {
		return err
	}
	ready := make(chan string, 1)
	u.spawn(ctx, "simulated AWS", func(ctx context.Context) error {
		return simaws.Serve(ctx, simaws.ServeOptions{
			Listen: listen, EstateFile: estate, StateFile: u.file("aws.json"), Log: u.log,
			Ready: func(endpoint string, c *simaws.Cloud) {
				u.aws = c
				ready <- endpoint
			},
		})
	})
	var err error
	if u.awsURL, err = waitReady(ctx, u, ready); err != nil {
		return err
	}
	return u.keepListen("aws", u.awsURL)
}

// startAzure serves the simulated Azure likewise. Its certificate authority is another one in each start.
func (u *up) startAzure(ctx context.Context) error {
	listen, estate := u.listenOf("azure", u.flags.azureListen), u.file("azure-start.json")
	if err := azureEstate(u.flags.empty).Save(estate); err != nil {
		return err
	}
	ready := make(chan simazure.Endpoints, 1)
	u.spawn(ctx, "simulated Azure", func(ctx context.Context) error {
		return simazure.Serve(ctx, simazure.ServeOptions{
			Listen: listen, EstateFile: estate, StateFile: u.file("azure.json"), CAFile: u.azureCA(), Log: u.log,
			Cloud: simazure.Options{Settle: -1}, // a demonstration does not wait for what takes seconds there
			Ready: func(e simazure.Endpoints, c *simazure.Cloud) {
				u.azure = c
				ready <- e
			},
		})
	})
	var err error
	if u.azureAt, err = waitReady(ctx, u, ready); err != nil {
		return err
	}
	return u.keepListen("azure", u.azureAt.HTTPS)
}

// azureCA is the file with the authority that clients of the simulated Azure must trust.
func (u *up) azureCA() string { return u.file("azure-ca.pem") }

// file is a file in the data directory.
func (u *up) file(name string) string { return filepath.Join(u.flags.dataDir, name) }

// waitReady waits until a part is ready, and has said where.
func waitReady[T any](ctx context.Context, u *up, ready <-chan T) (T, error) {
	var none T
	select {
	case at := <-ready:
		return at, nil
	case err := <-u.failed:
		return none, err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

// listenOf is where a cloud is to listen: as asked, else where it did at the last start if that is free.
func (u *up) listenOf(cloud, asked string) string {
	if asked != "" {
		return asked
	}
	last, err := os.ReadFile(u.file(cloud + "-listen"))
	if err != nil || !isFree(string(last)) {
		return ""
	}
	return string(last)
}

// keepListen remembers for the next start where a cloud listens.
func (u *up) keepListen(cloud, url string) error {
	_, address, _ := strings.Cut(url, "://")
	return os.WriteFile(u.file(cloud+"-listen"), []byte(address), 0o600)
}

// isFree says whether the loopback address can be listened on.
func isFree(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// What the estates have in common: the two clouds are joined by a private way, as by a VPN, which also
// leads to the cluster's Pods.
var (
	awsNetworks   = []netip.Prefix{netip.MustParsePrefix("10.10.0.0/16"), netip.MustParsePrefix("10.20.0.0/16")}
	azureNetworks = []netip.Prefix{netip.MustParsePrefix("10.40.0.0/16")}
	podNetworks   = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
)

// awsEstate is the simulator's sample, joined to the Azure one, or its account without anything in it.
func awsEstate(empty bool) simaws.Estate {
	e := simaws.Sample()
	for i := range e.Accounts {
		for j, r := range e.Accounts[i].Regions {
			if empty {
				e.Accounts[i].Regions[j] = &simaws.Region{Name: r.Name}
				continue
			}
			for _, v := range r.VPCs {
				if len(v.OnPremises) > 0 { // the one in the other region has no private way
					v.OnPremises = append(v.OnPremises, azureNetworks...)
				}
			}
		}
	}
	if empty {
		e.Peerings = nil
	}
	return e
}

// azureEstate is the simulator's subscription with a network of VMs for analytics, or with nothing.
func azureEstate(empty bool) simazure.Estate {
	e := simazure.Sample()
	s := e.Subscriptions[0]
	s.Groups, s.Resources, s.Uplinks = []*simazure.ResourceGroup{{Name: "analytics", Location: simazure.SampleLocation}}, nil, nil
	if empty {
		return e
	}
	const subscription = simazure.SampleSubscription
	p := simazure.Place{Subscription: subscription, Group: "analytics", Location: simazure.SampleLocation}
	network := simazure.ID(subscription, p.Group, "Microsoft.Network/virtualNetworks", "analytics")
	group := simazure.ID(subscription, p.Group, "Microsoft.Network/networkSecurityGroups", "analytics-default")
	s.Uplinks = []simazure.Uplink{{VirtualNetwork: network, NAT: netip.MustParseAddr("198.51.100.240"), OnPremises: append(awsNetworks[:len(awsNetworks):len(awsNetworks)], podNetworks...)}}
	s.Resources = []simazure.Document{
		p.Network("analytics", []string{azureNetworks[0].String()},
			simazure.SubnetSpec{Name: "public", Prefixes: []string{"10.40.1.0/24"}}, simazure.SubnetSpec{Name: "private", Prefixes: []string{"10.40.2.0/24"}}),
		p.SecurityGroup("analytics-default",
			simazure.RuleSpec{Name: "inside", Priority: 1000, Inbound: true, Allow: true, From: []string{"10.0.0.0/8"}},
			simazure.RuleSpec{Name: "ssh", Priority: 1010, Inbound: true, Allow: true, Protocol: "Tcp", Ports: []string{"22"}}),
	}
	for _, vm := range []struct{ name, role, subnet, private, public string }{
		{"bi-1", "bi", "public", "10.40.1.11", "198.51.100.41"},
		{"bi-2", "bi", "public", "10.40.1.12", "198.51.100.42"},
		{"warehouse-1", "warehouse", "private", "10.40.2.11", ""},
	} {
		nic := simazure.InterfaceSpec{Subnet: network + "/subnets/" + vm.subnet, Addresses: []string{vm.private}, SecurityGroup: group}
		if vm.public != "" {
			nic.PublicAddress = simazure.ID(subscription, p.Group, "Microsoft.Network/publicIPAddresses", vm.name+"-ip")
			s.Resources = append(s.Resources, p.PublicAddress(vm.name+"-ip", vm.public))
		}
		s.Resources = append(s.Resources, p.Interface(vm.name+"-nic", nic), p.Machine(vm.name, map[string]string{"Role": vm.role, "Env": "prod"},
			simazure.ID(subscription, p.Group, "Microsoft.Network/networkInterfaces", vm.name+"-nic")))
	}
	return e
}

// hasMachines says whether both clouds have any.
func (u *up) hasMachines() bool {
	var aws, azure bool
	for _, a := range u.aws.Estate().Accounts {
		for _, r := range a.Regions {
			aws = aws || len(r.Instances) > 0
		}
	}
	for _, s := range u.azure.Estate().Subscriptions {
		azure = azure || len(s.Resources) > 0
	}
	return aws && azure
}

// accounts are the CloudProviderAccounts of the simulated clouds and their Secrets.
// The endpoints may differ from start to start.
func (u *up) accounts() ([]*unstructured.Unstructured, error) {
	aws, err := accountOf("shop", "aws", map[string]string{"accessKeyId": simaws.SampleKeyID, "accessKeySecret": simaws.SampleKeySecret}, map[string]any{
		"region":   []any{"us-east-1", "eu-west-1"},
		"endpoint": u.awsURL, "stsEndpoint": u.awsURL, "rdsEndpoint": u.awsURL, "elbEndpoint": u.awsURL,
	})
	if err != nil {
		return nil, err
	}
	azure, err := accountOf("analytics", "azure", map[string]string{
		"subscriptionId": simazure.SampleSubscription, "tenantId": simazure.SampleTenant, "clientId": simazure.SampleClientID, "clientKey": simazure.SampleSecret,
	}, map[string]any{
		"region":   []any{simazure.SampleLocation},
		"endpoint": u.azureAt.HTTPS, "authorityEndpoint": u.azureAt.HTTPS, "caBundle": base64.StdEncoding.EncodeToString(u.azureAt.CA),
	})
	if err != nil {
		return nil, err
	}
	shop := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}}
	return append(append([]*unstructured.Unstructured{shop}, aws...), azure...), nil
}

// accountOf is an account of a cloud with its Secret, which is called as the cloud.
func accountOf(name, cloud string, credentials map[string]string, config map[string]any) ([]*unstructured.Unstructured, error) {
	secret, err := json.Marshal(credentials)
	if err != nil {
		return nil, err
	}
	config["secretRef"] = map[string]any{"namespace": "shop", "name": cloud, "key": "credentials"}
	return []*unstructured.Unstructured{
		{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "shop", "name": cloud},
			"stringData": map[string]any{"credentials": string(secret)},
		}},
		{Object: map[string]any{
			"apiVersion": "crd.cloud.antrea.io/v1alpha1", "kind": "CloudProviderAccount", "metadata": map[string]any{"namespace": "shop", "name": name},
			"spec": map[string]any{"pollIntervalInSeconds": int64(30), cloud + "Config": config},
		}},
	}, nil
}
