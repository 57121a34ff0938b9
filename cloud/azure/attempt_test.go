package azure

import (
	"errors"
	"fmt"
	"testing"

	"isobar.dev/cloud"
)

func TestCause(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
		want   cloud.Cause
	}{
		{429, "TooManyRequests", cloud.Throttled},
		{403, "AuthorizationFailed", cloud.Denied},
		{401, "ExpiredAuthenticationToken", cloud.Denied},
		{400, "SecurityRuleAddressesOrPortsPerSecurityGroupLimitReached", cloud.NoQuota},
		{409, "AnotherOperationInProgress", ""},
		{500, "", ""},
	} {
		err := fmt.Errorf("x: %w", &armError{tt.status, tt.code, "m"})
		if got := cloud.CauseOf(errors.Join(errors.New("y"), err)); got != tt.want {
			t.Errorf("CauseOf(%v) = %q, want %q", err, got, tt.want)
		}
	}
}
