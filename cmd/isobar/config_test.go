package main

import (
	"strings"
	"testing"
	"time"
)

func TestConfig(t *testing.T) {
	for _, tt := range []struct{ text, refused string }{
		{"", ""},
		{"cloudResourcePrefix: nephe\ncloudSyncInterval: 300\ncloudSecurityGroupVisibility: true\nantreaKubeconfig: \"\"\n", ""},
		{"cloudSyncInterval: 0", ""},
		{"cloudSyncInterval: 59", "cloudSyncInterval 59"},
		{"cloudSyncInterval: 99999999999", "cloudSyncInterval"},
		{"cloudResourcePrefix: -a", "cloudResourcePrefix"},
		{"cloudResourcePrefix: a--b", "cloudResourcePrefix"},
		{"antreaKubeconfig: /kubeconfig", ""},
		{"cloudSyncIntervall: 300", "cloudSyncIntervall"},
		{"cloudSyncInterval: 60\ncloudSyncInterval: 61", "already"},
		{"logLevel: loud", "logLevel"},
		{"logFormat: xml", "logFormat"},
		{"service: {port: 70000}", "port 70000"},
		{"podNetwork: vpc-0a100000000000001\nnodeNetwork: vpc-1", ""},
		{"podNetwork: VPC-1", "podNetwork"},
		{"nodeNetwork: subnet-1", "nodeNetwork"},
		{"podNetwork: vpc-1/../x", "podNetwork"},
		{"[]", "unmarshal"},
	} {
		_, err := parseConfig([]byte(tt.text))
		if tt.refused == "" && err != nil || tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)) {
			t.Errorf("parseConfig(%q) = %v; want %q", tt.text, err, tt.refused)
		}
	}
	c, err := parseConfig(nil)
	if err != nil || c.every() != 5*time.Minute || c.Service.Name != "isobar-controller" {
		t.Errorf("the defaults are %+v, %v", c, err)
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte("cloudResourcePrefix: nephe\ncloudSyncInterval: 300\n"))
	f.Add([]byte("service: {name: a, port: 1}\nlogLevel: debug\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := parseConfig(text)
		if err != nil {
			return
		}
		if c.every() < time.Minute || c.every() > 24*time.Hour || c.Service.Port < 1 || c.WebhookService.Port < 1 {
			t.Errorf("parseConfig(%q) = %+v", text, c)
		}
	})
}
