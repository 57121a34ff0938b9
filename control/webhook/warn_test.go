package webhook_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"isobar.dev/control/webhook"
)

// A write is warned of what will not be enforced, and never waits long nor fails
// for it.
func TestWarn(t *testing.T) {
	const good = `{"metadata":{"namespace":"x","name":"p"},"spec":{"priority":5,"appliedTo":[{"podSelector":{}}]}}`
	const bad = `{"metadata":{"namespace":"x","name":"p"},"spec":{"priority":5}}`
	account := strings.NewReplacer("crd.antrea.io", "crd.cloud.antrea.io", "v1beta1", "v1alpha1").Replace(review("CloudEntitySelector", "CREATE", `{"spec":{"accountName":"a"}}`, "null"))
	for _, tt := range []struct {
		name, path, body string
		warn             func(context.Context, []byte) []string
		asked, allowed   bool
		want             []string
	}{
		{"one", "/validate/annp", review("NetworkPolicy", "CREATE", good, "null"), says("too many rules"), true, true, []string{"too many rules"}},
		{"an update", "/validate/annp", review("NetworkPolicy", "UPDATE", good, good), says("too many rules"), true, true, []string{"too many rules"}},
		{"nothing", "/validate/annp", review("NetworkPolicy", "CREATE", good, "null"), says(), true, true, nil},
		{"a write that is refused", "/validate/annp", review("NetworkPolicy", "CREATE", bad, "null"), says("too many rules"), false, false, nil},
		{"no policy", "/validate-crd-cloud-antrea-io-v1alpha1-cloudentityselector", account, says("too many rules"), false, false, nil},
		{"too late", "/validate/annp", review("NetworkPolicy", "CREATE", good, "null"), func(ctx context.Context, _ []byte) []string {
			<-ctx.Done()
			time.Sleep(200 * time.Millisecond) // and goes on
			return []string{"too late"}
		}, true, true, nil},
		{"a panic", "/validate/annp", review("NetworkPolicy", "CREATE", good, "null"), func(context.Context, []byte) []string { panic("a fault of ours") }, true, true, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			asked := make(chan string, 1)
			h := serverWith(t, webhook.Options{Warn: func(ctx context.Context, manifest []byte) []string {
				asked <- string(manifest)
				return tt.warn(ctx, manifest)
			}})
			_, got := ask(t, h, tt.path, "application/json", tt.body)
			if got == nil || got.Allowed != tt.allowed || !slices.Equal(got.Warnings, tt.want) {
				t.Errorf("got %+v, want allowed %t and the warnings %q", got, tt.allowed, tt.want)
			}
			if isAsked := len(asked) > 0; isAsked != tt.asked || isAsked && !strings.Contains(<-asked, `"appliedTo"`) {
				t.Errorf("asked: %t, want %t, with the manifest", isAsked, tt.asked)
			}
		})
	}
}

func says(warnings ...string) func(context.Context, []byte) []string {
	return func(context.Context, []byte) []string { return warnings }
}
