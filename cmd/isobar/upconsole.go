package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"isobar.dev/control/web"
)

const (
	upConsoleUser = "isobar-console" // a ServiceAccount
	upConsoleLife = 12 * time.Hour   // of its token
)

// startConsole serves the console, at the address of the last start if it is free, and makes a token to log in with.
func (u *up) startConsole(ctx context.Context) error {
	listen := cmp.Or(u.listenOf("console", u.flags.consoleListen), "127.0.0.1:0")
	if err := checkLoopback(listen); err != nil {
		return fmt.Errorf("--console-listen: %w", err)
	}
	url, err := (&ownConsole{command: "isobar up", config: u.config, log: u.log, token: u.consoleToken()}).start(ctx, &u.background, listen)
	if err != nil {
		return err
	}
	u.consoleURL = url
	return u.keepListen("console", u.consoleURL)
}

// consoleToken is the file with the token to log in with. Only its user can read it, as the administrator's kubeconfig beside it.
func (u *up) consoleToken() string { return u.file("console-token") }

// ownConsole is the console of a control plane of this machine, for the user who has started that.
type ownConsole struct {
	command string // that has started it
	config  *rest.Config
	log     *slog.Logger
	token   string // the file with the token to log in with
}

// start serves the console, makes the token, and returns the console's URL.
func (c *ownConsole) start(ctx context.Context, b *background, listen string) (string, error) {
	if err := c.makeToken(ctx); err != nil {
		return "", err
	}
	access, err := web.Tokens(c.config)
	if err != nil {
		return "", err
	}
	server, err := web.New(access, web.Options{Cluster: c.command, OnlyHere: true, Log: c.log})
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return "", fmt.Errorf("console: %w", err)
	}
	b.spawn(ctx, "console", func(ctx context.Context) error { return server.Run(ctx, l) })
	return "http://" + l.Addr().String(), nil
}

func (c *ownConsole) makeToken(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return err
	}
	manager := strings.ReplaceAll(c.command, " ", "-")
	o := metav1.ApplyOptions{FieldManager: manager, Force: true}
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Apply(ctx, applycorev1.ServiceAccount(upConsoleUser, metav1.NamespaceDefault), o); err != nil {
		return fmt.Errorf("user of the console: %w", err)
	}
	binding := applyrbacv1.ClusterRoleBinding(manager + "-console").
		WithRoleRef(applyrbacv1.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind("ClusterRole").WithName("cluster-admin")).
		WithSubjects(applyrbacv1.Subject().WithKind(rbacv1.ServiceAccountKind).WithNamespace(metav1.NamespaceDefault).WithName(upConsoleUser))
	if _, err := client.RbacV1().ClusterRoleBindings().Apply(ctx, binding, o); err != nil {
		return fmt.Errorf("user of the console: %w", err)
	}
	seconds := int64(upConsoleLife.Seconds())
	got, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).CreateToken(ctx, upConsoleUser, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("token of the console: %w", err)
	}
	return writePrivate(c.token, []byte(got.Status.Token+"\n"))
}
