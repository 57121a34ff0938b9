package cni

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"isobar.dev/dataplane/cni/rpc"
)

// Versions are those of the specification that are spoken.
var Versions = version.PluginSupports("0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

// call is a command, read.
type call struct {
	id, ifname, netns     string
	podNamespace, podName string
	podUID                string
	network, version      string
	previous              *types100.Result // nil unless the plugin is chained
	valid                 []types.GCAttachment
	hasValid              bool
}

// readCall checks a command. isOfOne says that it is about an attachment.
func readCall(c *rpc.Call, isOfOne bool) (*call, *types.Error) {
	var conf struct {
		types.PluginConf
		MTU   json.RawMessage       `json:"mtu"`
		Valid *[]types.GCAttachment `json:"cni.dev/valid-attachments"`
	}
	if err := json.Unmarshal(c.Config, &conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "the network configuration cannot be read", err.Error())
	}
	out := &call{id: c.ContainerId, ifname: c.Ifname, netns: c.Netns, network: conf.Name, version: conf.CNIVersion}
	if out.version == "" {
		out.version = "0.1.0"
	}
	if !slices.Contains(Versions.SupportedVersions(), out.version) {
		return nil, types.NewError(types.ErrIncompatibleCNIVersion, fmt.Sprintf("cniVersion %s is not spoken", out.version), "spoken are "+strings.Join(Versions.SupportedVersions(), ", "))
	}
	if err := utils.ValidateNetworkName(conf.Name); err != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "name: "+err.Msg, err.Details)
	}
	if t := conf.IPAM.Type; t != "" {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, fmt.Sprintf("ipam.type %q is not supported", t), "addresses are of the Node's spec.podCIDRs: leave ipam out")
	}
	if conf.MTU != nil {
		return nil, types.NewError(types.ErrInvalidNetworkConfig, "mtu is not supported here", "it is that of the Node's uplink, or what the agent's --mtu says")
	}
	if conf.Valid != nil {
		out.valid, out.hasValid = *conf.Valid, true
	}
	if conf.RawPrevResult != nil {
		if err := version.ParsePrevResult(&conf.PluginConf); err != nil {
			return nil, types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", err.Error())
		}
		previous, err := types100.NewResultFromResult(conf.PrevResult)
		if err != nil {
			return nil, types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", err.Error())
		}
		if slices.Contains(previous.Interfaces, nil) || slices.Contains(previous.IPs, nil) {
			return nil, types.NewError(types.ErrDecodingFailure, "prevResult cannot be read", "it has a null interface or address")
		}
		out.previous = previous
	}
	if !isOfOne {
		return out, nil
	}
	if err := utils.ValidateContainerID(out.id); err != nil {
		return nil, err
	}
	if err := utils.ValidateInterfaceName(out.ifname); err != nil {
		return nil, err
	}
	var args struct {
		types.CommonArgs
		K8S_POD_NAMESPACE, K8S_POD_NAME, K8S_POD_UID, K8S_POD_INFRA_CONTAINER_ID types.UnmarshallableString
	}
	args.IgnoreUnknown = true // as runtimes add to them
	if c.Args != "" {
		if err := types.LoadArgs(c.Args, &args); err != nil {
			return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS cannot be read", err.Error())
		}
	}
	out.podNamespace, out.podName, out.podUID = string(args.K8S_POD_NAMESPACE), string(args.K8S_POD_NAME), string(args.K8S_POD_UID)
	return out, nil
}

// result returns what a runtime is told of an attachment, in its version.
func (a *Attachment) result(c *call) ([]byte, error) {
	r := &types100.Result{CNIVersion: types100.ImplementedSpecVersion}
	if a.Chained {
		r = c.previous
	} else {
		inside := 1
		r.Interfaces = []*types100.Interface{
			{Name: a.HostInterface, Mac: hostMAC.String(), Mtu: a.MTU},
			{Name: a.Interface, Mac: a.MAC, Mtu: a.MTU, Sandbox: a.Netns},
		}
		for _, addr := range a.Addrs {
			gateway := gatewayOf(addr)
			r.IPs = append(r.IPs, &types100.IPConfig{Interface: &inside, Address: ipNet(netip.PrefixFrom(addr, addr.BitLen())), Gateway: gateway.AsSlice()})
			r.Routes = append(r.Routes, &types.Route{Dst: ipNet(anywhere(addr)), GW: gateway.AsSlice()})
		}
	}
	versioned, err := r.GetAsVersion(c.version)
	if err != nil {
		return nil, err
	}
	return json.Marshal(versioned)
}
