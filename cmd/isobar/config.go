package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"isobar.dev/control/enroll"
)

// config is the file of `isobar controller`: Nephe's keys, and ours.
type config struct {
	CloudResourcePrefix          string `json:"cloudResourcePrefix"`
	CloudSyncInterval            int    `json:"cloudSyncInterval"` // seconds
	CloudSecurityGroupVisibility bool   `json:"cloudSecurityGroupVisibility"`
	// AntreaKubeconfig is a file that says how to reach the controller whose computed
	// policies are enforced; empty means that Isobar computes them.
	AntreaKubeconfig string `json:"antreaKubeconfig"`

	// LeavePolicyStatus: an antrea-controller writes the statuses of its policies.
	LeavePolicyStatus bool `json:"leavePolicyStatus"`

	// ControlPlane: agents are served controlplane.antrea.io, which no antrea-controller
	// of the cluster serves.
	ControlPlane bool `json:"controlPlane"`

	// LeaveExternalNodes: another controller makes the ExternalEntities of ExternalNodes.
	LeaveExternalNodes bool `json:"leaveExternalNodes"`

	// AgentNamespace is where upstream's agents look for their controller; empty means
	// that they are told of this one otherwise.
	AgentNamespace string `json:"agentNamespace"`

	// AgentServers are URLs by which agents of machines outside the cluster reach the replicas.
	AgentServers []string `json:"agentServers"`

	// TakeOver: what a former antrea-controller has told agents and people is replaced.
	TakeOver bool `json:"takeOver"`

	// PodNetwork and NodeNetwork are the IDs of the VPCs whose addresses the cluster's
	// Pods and Nodes have; empty means that they have others.
	PodNetwork  string `json:"podNetwork"`
	NodeNetwork string `json:"nodeNetwork"`

	Service        service  `json:"service"`
	WebhookService service  `json:"webhookService"`
	Namespaces     []string `json:"namespaces"`
	LogLevel       string   `json:"logLevel"`
	LogFormat      string   `json:"logFormat"`
}

// service is a Service in front of the replicas, in their namespace.
type service struct {
	Name string `json:"name"`
	Port int32  `json:"port"`
}

const (
	defaultSyncInterval = 300
	minSyncInterval     = 60
	maxSyncInterval     = 86400
	maxConfig           = 1 << 20 // bytes, of the file
)

var (
	resourcePrefixRE = regexp.MustCompile(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`)
	networkRE        = regexp.MustCompile(`^vpc-[a-z0-9]{1,60}$`)
)

// readConfig reads the file of that name; no name has the defaults.
func readConfig(name string) (config, error) {
	var text []byte
	if name != "" {
		info, err := os.Stat(name)
		if err == nil && info.Size() > maxConfig {
			err = fmt.Errorf("%s is longer than %d bytes", name, maxConfig)
		}
		if err == nil {
			text, err = os.ReadFile(name)
		}
		if err != nil {
			return config{}, fmt.Errorf("configuration: %w", err)
		}
	}
	c, err := parseConfig(text)
	if err != nil {
		return config{}, fmt.Errorf("configuration %s: %w", name, err)
	}
	return c, nil
}

// parseConfig reads a configuration, in which no key may be unknown or set twice.
func parseConfig(text []byte) (config, error) {
	var c config
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return config{}, err
	}
	c.CloudSyncInterval = cmp.Or(c.CloudSyncInterval, defaultSyncInterval)
	c.Service = service{cmp.Or(c.Service.Name, "isobar-controller"), cmp.Or(c.Service.Port, 443)}
	c.WebhookService = service{cmp.Or(c.WebhookService.Name, "isobar-controller-webhook"), cmp.Or(c.WebhookService.Port, 443)}
	c.LogFormat = cmp.Or(c.LogFormat, "json")
	switch {
	case c.CloudResourcePrefix != "" && (!resourcePrefixRE.MatchString(c.CloudResourcePrefix) || len(c.CloudResourcePrefix) > 50):
		return config{}, fmt.Errorf("cloudResourcePrefix %q: want letters and digits, with single hyphens between them, at most 50", c.CloudResourcePrefix)
	case c.CloudSyncInterval < minSyncInterval || c.CloudSyncInterval > maxSyncInterval:
		return config{}, fmt.Errorf("cloudSyncInterval %d: want %d to %d seconds", c.CloudSyncInterval, minSyncInterval, maxSyncInterval)
	case c.LogFormat != "json" && c.LogFormat != "text":
		return config{}, fmt.Errorf("logFormat %q: want json or text", c.LogFormat)
	case !c.ControlPlane && (c.AgentNamespace != "" || c.TakeOver || len(c.AgentServers) > 0):
		return config{}, errors.New("agentNamespace, agentServers, takeOver: there is nothing to tell agents of without controlPlane")
	case c.AgentNamespace != "" && len(validation.IsDNS1123Label(c.AgentNamespace)) > 0:
		return config{}, fmt.Errorf("agentNamespace %q: want the name of a namespace", c.AgentNamespace)
	}
	if _, err := enroll.Hosts(c.AgentServers); err != nil {
		return config{}, fmt.Errorf("agentServers: %w", err)
	}
	for _, p := range []int32{c.Service.Port, c.WebhookService.Port} {
		if p < 1 || p > 65535 {
			return config{}, fmt.Errorf("port %d: want 1 to 65535", p)
		}
	}
	for key, id := range map[string]string{"podNetwork": c.PodNetwork, "nodeNetwork": c.NodeNetwork} {
		if id != "" && !networkRE.MatchString(id) {
			return config{}, fmt.Errorf("%s %q: want the ID of a VPC, as vpc-0a100000000000001", key, id)
		}
	}
	_, err := c.level(slog.LevelInfo)
	return c, err
}

func (c config) every() time.Duration { return time.Duration(c.CloudSyncInterval) * time.Second }

// level is the log level, or otherwise when none is set.
func (c config) level(otherwise slog.Level) (slog.Level, error) {
	if c.LogLevel == "" {
		return otherwise, nil
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return otherwise, fmt.Errorf("logLevel %q: want debug, info, warn or error", c.LogLevel)
	}
	return l, nil
}
