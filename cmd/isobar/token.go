package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"

	antreav1alpha1 "isobar.dev/api/antrea/v1alpha1"
	isobarv1alpha1 "isobar.dev/api/isobar/v1alpha1"
	isobarv1alpha2 "isobar.dev/api/isobar/v1alpha2"
	"isobar.dev/control/announce"
	"isobar.dev/control/enroll"
)

// What tokens are about.
var (
	agentIdentities = isobarv1alpha2.GroupVersion.WithResource(isobarv1alpha2.ResourceAgentIdentities)
	externalNodes   = antreav1alpha1.GroupVersion.WithResource("externalnodes")
	configMaps      = corev1.SchemeGroupVersion.WithResource("configmaps")
	apiServices     = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// The lives of a token that may be asked for.
const (
	minTokenLife, maxTokenLife = time.Minute, 7 * 24 * time.Hour
	// writeTries bounds how often an AgentIdentity is written that a server writes too.
	writeTries = 5
)

var (
	tokenFormats     = []string{"text", "json", "yaml"}
	tokenListFormats = []string{"table", "json", "yaml"}
)

func tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Let machines with an agent join",
		Long: `A join token lets one machine join once: its agent then has a certificate of its own, which is renewed by
itself and can be revoked by isobar agent revoke. Only a hash of the token is kept.`,
	}
	cmd.AddCommand(tokenCreateCommand(), tokenListCommand(), tokenDeleteCommand())
	return cmd
}

// tokenRun is one run of a command about tokens.
type tokenRun struct {
	online onlineFlags
	out    io.Writer
	errOut io.Writer
	output string

	client    dynamic.Interface
	namespace string
}

// open makes the run ready, whose -o is one of the formats, if it has any.
func (r *tokenRun) open(cmd *cobra.Command, formats ...string) error {
	if len(formats) > 0 {
		if err := checkFormat(r.output, formats...); err != nil {
			return err
		}
	}
	r.out, r.errOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
	config, namespace, err := r.online.load()
	if err != nil {
		return err
	}
	r.namespace = namespace
	r.client, err = dynamic.NewForConfig(config)
	return err
}

// machine reads NAME or NAMESPACE/NAME.
func (r *tokenRun) machine(text string) (types.NamespacedName, error) {
	namespace, name, ok := strings.Cut(text, "/")
	if !ok {
		namespace, name = r.namespace, text
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return types.NamespacedName{}, fmt.Errorf("%q: want the NAMESPACE/NAME of an ExternalNode", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

type tokenCreate struct {
	tokenRun
	ttl       time.Duration
	create    bool
	labels    map[string]string
	servers   []string
	announced string // namespace of what the servers tell
}

func tokenCreateCommand() *cobra.Command {
	var r tokenCreate
	cmd := &cobra.Command{
		Use:   "create [NAMESPACE/]NAME",
		Short: "Make a join token for the machine of an ExternalNode, and print how it joins",
		Long: `Makes a token by which the machine of one ExternalNode can join once, in place of the one before, and prints the
command that does. Whoever has the token until then can join in its place, so it is to be passed on as a password is.

Where the machine has joined already, its agent goes on until the token is used; then it is refused.`,
		Example: `  # For an ExternalNode that is there
  isobar token create shop/web-1

  # For a new machine, which policies select by its labels
  isobar token create shop/web-2 --create --label app=web --label tier=front

  # For a machine image's first boot, by a script
  isobar token create shop/web-3 --create --ttl 15m -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.open(cmd, tokenFormats...); err != nil {
				return err
			}
			return r.run(cmd.Context(), args[0])
		},
	}
	r.online.add(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&r.ttl, "ttl", time.Hour, "how long the token may be used, 1m to 168h")
	flags.BoolVar(&r.create, "create", false, "make the ExternalNode where there is none")
	flags.StringToStringVar(&r.labels, "label", nil, "label of an ExternalNode that is made, as app=web; may be given often")
	flags.StringSliceVar(&r.servers, "server", nil, "URL by which the machine reaches a server (default: what the servers tell)")
	flags.StringVar(&r.announced, "controller-namespace", "", "namespace of the ConfigMap "+announce.ServersConfigMap+" (default: that of the Service behind the API)")
	addFormats(cmd, &r.output, tokenFormats...)
	return cmd
}

// joinAnswer is what is printed as JSON or YAML.
type joinAnswer struct {
	Namespace           string      `json:"namespace"`
	Name                string      `json:"name"`
	Token               string      `json:"token"`
	ExpirationTimestamp metav1.Time `json:"expirationTimestamp"`
	Servers             []string    `json:"servers"`
	CAHashes            []string    `json:"caHashes"`
	Command             string      `json:"command"`
}

func (r *tokenCreate) run(ctx context.Context, text string) error {
	of, err := r.machine(text)
	if err != nil {
		return err
	}
	switch {
	case r.ttl < minTokenLife || r.ttl > maxTokenLife:
		return fmt.Errorf("--ttl %v: want %v to %v", r.ttl, minTokenLife, maxTokenLife)
	case len(r.labels) > 0 && !r.create:
		return errors.New("--label is for an ExternalNode that --create makes: label one that is there with kubectl label")
	}
	// First, since a token that nobody can use had better not be made.
	servers, hashes, err := r.joinBy(ctx)
	if err != nil {
		return err
	}
	node, err := r.node(ctx, of)
	if err != nil {
		return err
	}
	token, err := enroll.NewToken(of.Namespace, of.Name)
	if err != nil {
		return err
	}
	until := metav1.NewTime(time.Now().Add(r.ttl).Truncate(time.Second))
	had, err := r.keep(ctx, of, node, isobarv1alpha2.JoinToken{Hash: token.Hash(), ExpirationTimestamp: until})
	if err != nil {
		return err
	}
	if had {
		fmt.Fprintf(r.errOut, "isobar: %s has joined already: its agent is refused once this token is used\n", of)
	}
	a := joinAnswer{
		Namespace: of.Namespace, Name: of.Name, Token: token.Reveal(), ExpirationTimestamp: until, Servers: servers, CAHashes: hashes,
		Command: "isobar-agent join --server " + strings.Join(servers, " --server ") + " --ca-hash " + strings.Join(hashes, " --ca-hash ") + " --token-file -",
	}
	if r.output != "text" {
		return writeObject(r.out, r.output, a)
	}
	// Not on the command line, which every user of the machine sees.
	fmt.Fprintf(r.out, "# As root on %s, until %s, once:\n%s <<'EOF'\n%s\nEOF\n", of, until.Local().Format(time.DateTime), a.Command, a.Token)
	return nil
}

// joinBy returns the servers that a machine can join by, and the hashes of their authorities.
func (r *tokenCreate) joinBy(ctx context.Context) (servers, hashes []string, err error) {
	namespace := r.announced
	if namespace == "" {
		name := isobarv1alpha1.GroupVersion.Version + "." + isobarv1alpha1.GroupVersion.Group
		o, err := r.client.Resource(apiServices).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, nil, fmt.Errorf("find the servers: %w; --controller-namespace says where Isobar runs", err)
		}
		if namespace, _, err = unstructured.NestedString(o.Object, "spec", "service", "namespace"); err != nil || namespace == "" {
			return nil, nil, fmt.Errorf("find the servers: the APIService %s names no Service; --controller-namespace says where Isobar runs", name)
		}
	}
	m, err := r.client.Resource(configMaps).Namespace(namespace).Get(ctx, announce.ServersConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("find the servers: %w", err)
	}
	data, _, err := unstructured.NestedStringMap(m.Object, "data")
	if err != nil {
		return nil, nil, fmt.Errorf("find the servers: %w", err)
	}
	if hashes, err = enroll.CAHashes([]byte(data[announce.KeyAuthorities])); err != nil {
		return nil, nil, fmt.Errorf("find the servers: ConfigMap %s/%s: %w; does Isobar run, with its control plane?", namespace, announce.ServersConfigMap, err)
	}
	if servers = r.servers; len(servers) == 0 {
		servers = strings.Fields(data[announce.KeyServers])
	}
	if len(servers) == 0 {
		return nil, nil, errors.New("it is not told by which URL machines reach a server: name it by --server, or to the servers by --agent-server (in the chart controlPlane.agentServers), which also has their certificates be for it")
	}
	_, err = enroll.Hosts(servers)
	return servers, hashes, err
}

// node returns the UID of the ExternalNode, which it makes if it was told to.
func (r *tokenCreate) node(ctx context.Context, of types.NamespacedName) (types.UID, error) {
	nodes := r.client.Resource(externalNodes).Namespace(of.Namespace)
	u, err := nodes.Get(ctx, of.Name, metav1.GetOptions{})
	if err == nil {
		return u.GetUID(), nil
	}
	if !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("read ExternalNode %s: %w", of, err)
	}
	if !r.create {
		return "", fmt.Errorf("there is no ExternalNode %s: --create makes one, with each --label that policies select it by", of)
	}
	u = &unstructured.Unstructured{}
	u.SetGroupVersionKind(antreav1alpha1.GroupVersion.WithKind("ExternalNode"))
	u.SetNamespace(of.Namespace)
	u.SetName(of.Name)
	u.SetLabels(r.labels)
	if u, err = nodes.Create(ctx, u, metav1.CreateOptions{}); err != nil {
		return "", fmt.Errorf("make ExternalNode %s: %w", of, err)
	}
	return u.GetUID(), nil
}

// keep has an identity be joined by a token. had says that somebody has joined before.
func (r *tokenCreate) keep(ctx context.Context, of types.NamespacedName, node types.UID, t isobarv1alpha2.JoinToken) (had bool, err error) {
	ids := r.client.Resource(agentIdentities).Namespace(of.Namespace)
	for range writeTries {
		var u *unstructured.Unstructured
		u, err = ids.Get(ctx, of.Name, metav1.GetOptions{})
		isNew := apierrors.IsNotFound(err)
		if isNew {
			u, err = &unstructured.Unstructured{}, nil
			u.SetGroupVersionKind(isobarv1alpha2.GroupVersion.WithKind("AgentIdentity"))
			u.SetNamespace(of.Namespace)
			u.SetName(of.Name)
		}
		if err != nil {
			return false, fmt.Errorf("read AgentIdentity %s: %w", of, err)
		}
		keys, _, _ := unstructured.NestedSlice(u.Object, "status", "keys")
		// It goes with the ExternalNode.
		u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: antreav1alpha1.GroupVersion.String(), Kind: "ExternalNode", Name: of.Name, UID: node}})
		if err := unstructured.SetNestedMap(u.Object, map[string]any{"hash": t.Hash, "expirationTimestamp": t.ExpirationTimestamp.UTC().Format(time.RFC3339)}, "spec", "joinToken"); err != nil {
			return false, err
		}
		if isNew {
			_, err = ids.Create(ctx, u, metav1.CreateOptions{})
		} else {
			_, err = ids.Update(ctx, u, metav1.UpdateOptions{})
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			had = len(keys) > 0
			break
		}
	}
	if err != nil {
		return false, fmt.Errorf("keep the token of %s: %w", of, err)
	}
	return had, nil
}

func tokenListCommand() *cobra.Command {
	var r tokenRun
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Which machines may join, and which have joined",
		Example: `  isobar token list -n shop
  isobar token list -A -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := r.open(cmd, tokenListFormats...); err != nil {
				return err
			}
			if all {
				r.namespace = ""
			}
			u, err := r.client.Resource(agentIdentities).Namespace(r.namespace).List(cmd.Context(), metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("list AgentIdentities: %w", err)
			}
			list := isobarv1alpha2.AgentIdentityList{Items: []isobarv1alpha2.AgentIdentity{}}
			list.APIVersion, list.Kind = isobarv1alpha2.GroupVersion.String(), "AgentIdentityList"
			for _, x := range u.Items {
				var id isobarv1alpha2.AgentIdentity
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(x.Object, &id); err != nil {
					return fmt.Errorf("read AgentIdentity %s/%s: %w", x.GetNamespace(), x.GetName(), err)
				}
				id.ManagedFields = nil
				list.Items = append(list.Items, id)
			}
			slices.SortFunc(list.Items, func(a, b isobarv1alpha2.AgentIdentity) int {
				return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
			})
			if r.output != "table" {
				return writeObject(r.out, r.output, list)
			}
			return printIdentities(r.out, list.Items, time.Now())
		},
	}
	r.online.add(cmd)
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "of all namespaces")
	addFormats(cmd, &r.output, tokenListFormats...)
	return cmd
}

// printIdentities prints a line for each machine.
func printIdentities(out io.Writer, all []isobarv1alpha2.AgentIdentity, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tNAME\tTOKEN\tJOINED\tCERTIFICATE")
	for _, id := range all {
		joined, until := "never", "none"
		if t := id.Status.JoinTime; t != nil {
			joined = t.UTC().Format(time.RFC3339)
		}
		for _, k := range id.Status.Keys {
			until = "until " + k.NotAfter.UTC().Format(time.RFC3339)
			if !now.Before(k.NotAfter.Time) {
				until = "ended " + k.NotAfter.UTC().Format(time.RFC3339)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", id.Namespace, id.Name, tokenState(id, now), joined, until)
	}
	return w.Flush()
}

func tokenState(id isobarv1alpha2.AgentIdentity, now time.Time) string {
	t := id.Spec.JoinToken
	switch {
	case t == nil:
		return "none"
	case t.Hash == id.Status.UsedToken:
		return "used"
	case !now.Before(t.ExpirationTimestamp.Time):
		return "expired"
	}
	return "until " + t.ExpirationTimestamp.UTC().Format(time.RFC3339)
}

func tokenDeleteCommand() *cobra.Command {
	var r tokenRun
	cmd := &cobra.Command{
		Use:   "delete [NAMESPACE/]NAME",
		Short: "Take a machine's join token back",
		Long: `Takes the join token of a machine back, so that nobody joins by it. A machine that has joined already stays: isobar
agent revoke ends that.`,
		Example: `  isobar token delete shop/web-1`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.open(cmd); err != nil {
				return err
			}
			of, err := r.machine(args[0])
			if err != nil {
				return err
			}
			return r.takeBack(cmd.Context(), of)
		},
	}
	r.online.add(cmd)
	return cmd
}

func (r *tokenRun) takeBack(ctx context.Context, of types.NamespacedName) error {
	ids := r.client.Resource(agentIdentities).Namespace(of.Namespace)
	var err error
	for range writeTries {
		var u *unstructured.Unstructured
		if u, err = ids.Get(ctx, of.Name, metav1.GetOptions{}); err != nil {
			return fmt.Errorf("read AgentIdentity %s: %w", of, err)
		}
		if _, ok, _ := unstructured.NestedMap(u.Object, "spec", "joinToken"); !ok {
			return fmt.Errorf("%s has no join token", of)
		}
		unstructured.RemoveNestedField(u.Object, "spec", "joinToken")
		if _, err = ids.Update(ctx, u, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("take the token of %s back: %w", of, err)
	}
	fmt.Fprintf(r.out, "nobody can join as %s any more, until there is another token\n", of)
	return nil
}

func agentRevokeCommand() *cobra.Command {
	var r tokenRun
	cmd := &cobra.Command{
		Use:   "revoke [NAMESPACE/]NAME",
		Short: "End the identity of a machine's agent",
		Long: `Ends the identity of a machine's agent: within seconds its certificates are refused, what it watches ends, and its join
token is gone. The agent goes on enforcing what it knew last, and its ExternalNode stays. It can
join again with a new token.`,
		Example: `  isobar agent revoke shop/web-1`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.open(cmd); err != nil {
				return err
			}
			of, err := r.machine(args[0])
			if err != nil {
				return err
			}
			if err := r.client.Resource(agentIdentities).Namespace(of.Namespace).Delete(cmd.Context(), of.Name, metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("revoke %s: %w", of, err)
			}
			fmt.Fprintf(r.out, "%s is revoked; `isobar token create %s` lets it join again\n", of, of)
			return nil
		},
	}
	r.online.add(cmd)
	return cmd
}
