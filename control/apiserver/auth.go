package apiserver

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"

	"isobar.dev/control/identity"
)

// authConfigMap has the authorities of clients and of the API server's front
// proxy, which tells us who asks.
const authConfigMap = "extension-apiserver-authentication"

const (
	reviewTimeout = 10 * time.Second
	// Who a token stands for is asked again after this time.
	reviewLife = 10 * time.Second
	// A right that was given or taken counts after this time at most.
	rightLife = 5 * time.Second
)

// authenticate makes config believe whom the API server believes: its front
// proxy, its clients' certificates and its tokens. It is an error when that
// cannot be read: nobody must pass for anonymous meanwhile.
func authenticate(ctx context.Context, config *genericapiserver.Config, client kubernetes.Interface) error {
	clients, err := dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", metav1.NamespaceSystem, authConfigMap, "client-ca-file", client)
	if err != nil {
		return fmt.Errorf("authenticate clients: %w", err)
	}
	proxies, err := dynamiccertificates.NewDynamicCAFromConfigMapController("front-proxy-ca", metav1.NamespaceSystem, authConfigMap, "requestheader-client-ca-file", client)
	if err != nil {
		return fmt.Errorf("authenticate the front proxy: %w", err)
	}
	front := &options.DynamicRequestHeaderController{
		ConfigMapCAController: proxies,
		RequestHeaderAuthRequestController: headerrequest.NewRequestHeaderAuthRequestController(authConfigMap, metav1.NamespaceSystem, client,
			"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers",
			"requestheader-extra-headers-prefix", "requestheader-allowed-names"),
	}
	if err := front.RunOnce(ctx); err != nil {
		return fmt.Errorf("authenticate the front proxy: %w", err)
	}
	headers := &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   front,
		UsernameHeaders:     headerrequest.StringSliceProvider(headerrequest.StringSliceProviderFunc(front.UsernameHeaders)),
		UIDHeaders:          headerrequest.StringSliceProvider(headerrequest.StringSliceProviderFunc(front.UIDHeaders)),
		GroupHeaders:        headerrequest.StringSliceProvider(headerrequest.StringSliceProviderFunc(front.GroupHeaders)),
		ExtraHeaderPrefixes: headerrequest.StringSliceProvider(headerrequest.StringSliceProviderFunc(front.ExtraHeaderPrefixes)),
		AllowedClientNames:  headerrequest.StringSliceProvider(headerrequest.StringSliceProviderFunc(front.AllowedClientNames)),
	}
	// Serving reads both from now on, and follows their changes.
	for _, ca := range []dynamiccertificates.CAContentProvider{clients, front} {
		if err := config.Authentication.ApplyClientCert(ca, config.SecureServing); err != nil {
			return fmt.Errorf("authenticate: %w", err)
		}
	}
	config.Authentication.RequestHeaderConfig = headers
	config.Authentication.Authenticator, _, err = authenticatorfactory.DelegatingAuthenticatorConfig{
		TokenAccessReviewClient: client.AuthenticationV1(), TokenAccessReviewTimeout: reviewTimeout,
		WebhookRetryBackoff: options.DefaultAuthWebhookRetryBackoff(), CacheTTL: reviewLife,
		ClientCertificateCAContentProvider: clients, RequestHeaderConfig: headers,
	}.New()
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	return nil
}

// authorize makes config ask the API server what a user may do, but for agents, whose rights are
// always the same.
func authorize(config *genericapiserver.Config, client kubernetes.Interface, agents *identity.Agents) error {
	health, err := path.NewAuthorizer([]string{"/healthz", "/readyz", "/livez"})
	if err != nil {
		return fmt.Errorf("authorize: %w", err)
	}
	delegated, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(), AllowCacheTTL: rightLife, DenyCacheTTL: rightLife,
		WebhookRetryBackoff: options.DefaultAuthWebhookRetryBackoff(),
	}.New()
	if err != nil {
		return fmt.Errorf("authorize: %w", err)
	}
	all := []union.NamedAuthorizer{}
	if agents != nil {
		// First: what it denies nobody else may allow.
		all = append(all, union.NamedAuthorizer{AuthorizerName: "agents", Authorizer: authorizer.AuthorizerFunc(agents.Authorize)})
	}
	config.Authorization.Authorizer, err = union.New(append(all,
		union.NamedAuthorizer{AuthorizerName: "masters", Authorizer: authorizerfactory.NewPrivilegedGroups("system:masters")},
		union.NamedAuthorizer{AuthorizerName: "health", Authorizer: health},
		union.NamedAuthorizer{AuthorizerName: "delegated", Authorizer: delegated},
	)...)
	return err
}
