package validate_test

import (
	"crypto/sha1"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"

	"isobar.dev/api/validate"
)

func TestDefault(t *testing.T) {
	// The order of the fields and enableLogging's presence are part of the name.
	sum := sha1.Sum([]byte(`{"action":"Allow","ports":[{"protocol":"TCP","port":80}],"from":[{"podSelector":{}}],"enableLogging":false}`))
	named := "ingress-allow-" + hex.EncodeToString(sum[:])[:7]
	const account = `apiVersion: crd.cloud.antrea.io/v1alpha1, kind: CloudProviderAccount`
	const annp = `apiVersion: crd.antrea.io/v1beta1, kind: NetworkPolicy`
	for _, tt := range []struct {
		in, want string
		changed  bool
	}{
		{`{` + annp + `, spec: {priority: 1}}`, `{` + annp + `, spec: {priority: 1, tier: application}}`, true},
		{`{` + annp + `, spec: {priority: 1, tier: Baseline}}`, `{` + annp + `, spec: {priority: 1, tier: Baseline}}`, false},
		{`{` + annp + `, spec: {priority: 1, tier: x, ingress: [{name: mine, action: Drop}]}}`, `{` + annp + `, spec: {priority: 1, tier: x, ingress: [{name: mine, action: Drop}]}}`, false},
		{`{` + annp + `, spec: {priority: 1, tier: x, egress: [{to: [{podSelector: {}}]}]}}`, `{` + annp + `, spec: {priority: 1, tier: x, egress: [{to: [{podSelector: {}}]}]}}`, false}, // no action
		{`{` + annp + `, spec: {priority: 1, tier: x, ingress: [{action: Allow, ports: [{protocol: TCP, port: 80}], from: [{podSelector: {}}]}]}}`,
			`{` + annp + `, spec: {priority: 1, tier: x, ingress: [{name: ` + named + `, action: Allow, ports: [{protocol: TCP, port: 80}], from: [{podSelector: {}}]}]}}`, true},
		{`{` + account + `, spec: {awsConfig: {}}}`, `{` + account + `, spec: {awsConfig: {}, pollIntervalInSeconds: 60, deletionPolicy: Restore}}`, true},
		{`{` + account + `, spec: {awsConfig: {}, pollIntervalInSeconds: 5, deletionPolicy: Orphan}}`, `{` + account + `, spec: {awsConfig: {}, pollIntervalInSeconds: 5, deletionPolicy: Orphan}}`, false},
	} {
		got := read(t, tt.in)
		if changed := validate.Default(got); changed != tt.changed {
			t.Errorf("Default(%s) = %t, want %t", tt.in, changed, tt.changed)
		}
		if diff := cmp.Diff(read(t, tt.want), got); diff != "" {
			t.Errorf("Default(%s) (-want +got):\n%s", tt.in, diff)
		}
		if validate.Default(got) {
			t.Errorf("Default(%s) changes it again", tt.in)
		}
	}
}
