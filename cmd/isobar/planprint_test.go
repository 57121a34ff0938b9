package main

import "testing"

func TestKeyText(t *testing.T) {
	const nic = "/subscriptions/aaaaaaaa-0000-4000-8000-000000000001/resourcegroups/analytics/providers/microsoft.network/networkinterfaces/bi-1-nic"
	for _, tt := range []struct{ key, want string }{
		{"nic/" + nic, "nic/analytics:bi-1-nic"},
		{"nic/" + nic + "/ipconfigurations/a", "nic/" + nic + "/ipconfigurations/a"},
		{"nsg/e-24cab5dd629c33fb", "nsg/e-24cab5dd629c33fb"},
		{"eni/eni-0a1", "eni/eni-0a1"},
	} {
		if got := keyText(tt.key); got != tt.want {
			t.Errorf("keyText(%q) = %q, want %q", tt.key, got, tt.want)
		}
	}
}
