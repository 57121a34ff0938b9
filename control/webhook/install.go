package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

const (
	// ConfigurationName is the name of both webhook configurations.
	ConfigurationName = "isobar.dev"
	// owner is the field manager of what this package applies.
	owner = "isobar-webhook"

	timeoutSeconds = 10
)

// Target is where the API server finds a Server. URL or Service is set.
type Target struct {
	// URL is that of the server's root, such as https://127.0.0.1:9443.
	URL string
	// Service is the Kubernetes Service in front of the server.
	Service *admissionregistrationv1.ServiceReference
	// CABundle is that of the Server.
	CABundle []byte
}

func (t Target) at(path string) admissionregistrationv1.WebhookClientConfig {
	c := admissionregistrationv1.WebhookClientConfig{CABundle: t.CABundle}
	if t.Service != nil {
		c.Service = t.Service.DeepCopy()
		c.Service.Path = &path
		return c
	}
	url := strings.TrimSuffix(t.URL, "/") + path
	c.URL = &url
	return c
}

// Install makes the API server ask the Server at t about the kinds of this
// package, and refuse their writes while it does not answer. It replaces what it
// installed before; nothing is written when that is equal.
func Install(ctx context.Context, client dynamic.Interface, t Target) error {
	if (t.URL == "") == (t.Service == nil) || len(t.CABundle) == 0 {
		return errors.New("install webhooks: set URL or Service, and CABundle")
	}
	meta := metav1.ObjectMeta{Name: ConfigurationName}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta}
	validating.APIVersion, validating.Kind = admissionregistrationv1.SchemeGroupVersion.String(), "ValidatingWebhookConfiguration"
	mutating.APIVersion, mutating.Kind = admissionregistrationv1.SchemeGroupVersion.String(), "MutatingWebhookConfiguration"
	fail, none, timeout := admissionregistrationv1.Fail, admissionregistrationv1.SideEffectClassNone, int32(timeoutSeconds)
	for _, k := range kinds() {
		if len(k.validates) > 0 {
			validating.Webhooks = append(validating.Webhooks, admissionregistrationv1.ValidatingWebhook{
				Name: k.short + ".validate.isobar.dev", ClientConfig: t.at(k.validate), Rules: k.rules(k.validates), MatchConditions: k.conditions(),
				FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
			})
		}
		if len(k.mutates) > 0 {
			mutating.Webhooks = append(mutating.Webhooks, admissionregistrationv1.MutatingWebhook{
				Name: k.short + ".mutate.isobar.dev", ClientConfig: t.at(k.mutate), Rules: k.rules(k.mutates), MatchConditions: k.conditions(),
				FailurePolicy: &fail, SideEffects: &none, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
			})
		}
	}
	// What fills in comes first: the other way round, a failure in between would
	// leave rules that nobody named to be refused.
	if err := apply(ctx, client, "mutatingwebhookconfigurations", mutating); err != nil {
		return err
	}
	return apply(ctx, client, "validatingwebhookconfigurations", validating)
}

func (k kind) rules(ops []admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{{
		Operations: ops,
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{k.gvr.Group}, APIVersions: []string{k.gvr.Version}, Resources: []string{k.gvr.Resource}},
	}}
}

// conditions leaves out updates of what is being deleted, so that a finalizer can
// be removed while the server is away, and what the kind need not be asked about.
func (k kind) conditions() []admissionregistrationv1.MatchCondition {
	out := []admissionregistrationv1.MatchCondition{{
		Name: "is-staying", Expression: "object == null || !has(object.metadata.deletionTimestamp)",
	}}
	if k.when != "" {
		out = append(out, admissionregistrationv1.MatchCondition{Name: "concerns-us", Expression: k.when})
	}
	return out
}

// apply is a server-side apply, which writes nothing when nothing changes.
func apply(ctx context.Context, client dynamic.Interface, resource string, configuration any) error {
	text, err := json.Marshal(configuration)
	if err != nil {
		return fmt.Errorf("install %s: %w", resource, err)
	}
	force := true
	_, err = client.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(resource)).
		Patch(ctx, ConfigurationName, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: owner, Force: &force})
	if err != nil {
		return fmt.Errorf("install %s %s: %w", resource, ConfigurationName, err)
	}
	return nil
}

// Uninstall takes back what Install did. It is no error that nothing is there.
func Uninstall(ctx context.Context, client dynamic.Interface) error {
	for _, resource := range []string{"validatingwebhookconfigurations", "mutatingwebhookconfigurations"} {
		err := client.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource(resource)).Delete(ctx, ConfigurationName, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("uninstall %s %s: %w", resource, ConfigurationName, err)
		}
	}
	return nil
}
