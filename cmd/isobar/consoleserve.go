package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"isobar.dev/control/authority"
	"isobar.dev/control/web"
)

// consoleService is the Service of the chart in front of the console.
const consoleService = "isobar-console"

// consoleServing is how a server has a console for people at other machines.
type consoleServing struct {
	addr     string // "0" is none
	certDir  string
	url      string
	readOnly bool

	issuer, clientID, secretFile, caFile string
	scopes                               []string
}

// add adds the flags; that of the address is called as those of its neighbours are.
func (c *consoleServing) add(flags *pflag.FlagSet, addr string) {
	flags.StringVar(&c.addr, addr, "0", "address and port of the console, TLS, such as 0.0.0.0:8443; 0 for none")
	flags.StringVar(&c.certDir, "console-cert-dir", "", "folder with tls.crt and tls.key of the console (default: a certificate of Isobar's own authority)")
	flags.StringVar(&c.url, "console-url", "", "URL by which browsers reach the console, as https://isobar.example.com; needed for OIDC")
	flags.BoolVar(&c.readOnly, "console-read-only", false, "nothing can be applied in the console")
	flags.StringVar(&c.issuer, "console-oidc-issuer", "", "URL of the OpenID Connect provider by which people log in; the API server must take its ID tokens")
	flags.StringVar(&c.clientID, "console-oidc-client-id", "", "the console's ID at the provider")
	flags.StringVar(&c.secretFile, "console-oidc-client-secret-file", "", "file with the console's secret at the provider (default: it has none)")
	flags.StringSliceVar(&c.scopes, "console-oidc-scopes", nil, "scopes besides openid (default: profile, email, groups)")
	flags.StringVar(&c.caFile, "console-oidc-ca-file", "", "file with the authority of the provider's certificate (default: the system's)")
}

// isOn says whether there is a console.
func (c *consoleServing) isOn() bool { return c.addr != "0" && c.addr != "" }

// options returns what the flags say, and the host of the URL. They are checked even where there is no console.
func (c *consoleServing) options() (o web.Options, host string, err error) {
	o.ReadOnly = c.readOnly
	if c.url != "" {
		if o.URL, err = url.Parse(c.url); err != nil || o.URL.Scheme != "https" || o.URL.Host == "" || o.URL.User != nil || o.URL.RawQuery != "" || o.URL.Path != "" && o.URL.Path != "/" {
			return o, "", fmt.Errorf("--console-url %q: want https://HOST", c.url)
		}
		host = o.URL.Hostname()
	}
	if c.issuer == "" {
		if c.clientID != "" || c.secretFile != "" || c.caFile != "" || len(c.scopes) > 0 {
			return o, "", errors.New("--console-oidc-issuer is missing")
		}
		return o, host, nil
	}
	o.OIDC = &web.OIDC{Issuer: c.issuer, ClientID: c.clientID, Scopes: c.scopes}
	if c.secretFile != "" {
		text, err := os.ReadFile(c.secretFile)
		if err != nil {
			return o, "", fmt.Errorf("--console-oidc-client-secret-file: %w", err)
		}
		if o.OIDC.ClientSecret = string(bytes.TrimSpace(text)); o.OIDC.ClientSecret == "" {
			return o, "", errors.New("--console-oidc-client-secret-file: the file is empty")
		}
	}
	if c.caFile != "" {
		text, err := os.ReadFile(c.caFile)
		if err != nil {
			return o, "", fmt.Errorf("--console-oidc-ca-file: %w", err)
		}
		if o.OIDC.Roots = x509.NewCertPool(); !o.OIDC.Roots.AppendCertsFromPEM(text) {
			return o, "", errors.New("--console-oidc-ca-file: there is no certificate in it")
		}
	}
	return o, host, nil
}

// start serves the console in front of an API server. Without a folder of its own certificates it shows those given.
func (c *consoleServing) start(ctx context.Context, b *background, log *slog.Logger, config *rest.Config, o web.Options, certificates web.Certificates) (net.Addr, error) {
	o.Log, o.Certificates = log, certificates
	if c.certDir != "" {
		given := authority.NewMountedPair(c.certDir)
		if err := given.Refresh(ctx); err != nil {
			return nil, fmt.Errorf("--console-cert-dir: %w", err)
		}
		o.Certificates = given
		b.spawn(ctx, "console's certificate", func(ctx context.Context) error { return keepFresh(ctx, log, given) })
	}
	access, err := web.Tokens(config)
	if err != nil {
		return nil, err
	}
	server, err := web.New(access, o)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", c.addr)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	b.spawn(ctx, "console", func(ctx context.Context) error { return server.Run(ctx, l) })
	return l.Addr(), nil
}

// keepFresh reads a certificate that others renew, once a minute.
func keepFresh(ctx context.Context, log *slog.Logger, c *authority.Mounted) error {
	tick := time.NewTicker(time.Minute)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := c.Refresh(ctx); err != nil {
			log.Warn("will try again", slog.String("part", "console's certificate"), slog.Any("error", err))
		}
	}
}
