package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/cli/handtools"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/identity"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// newTools returns the commands token, csr and lease, with which a person can do steps that a node and its control plane usually do.
func newTools() []*cobra.Command {
	return []*cobra.Command{newToken(), newCSR(), newLease()}
}

// access has the flags --kubeconfig and --context, with which a tool finds the API server as kubectl does.
type access struct{ kubeconfig, context string }

func (a *access) flags(fs *pflag.FlagSet) {
	fs.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig to use; default: KUBECONFIG, then ~/.kube/config")
	fs.StringVar(&a.context, "context", "", "context of the kubeconfig; default: its current one")
}

// config returns a client configuration, and the namespace of the kubeconfig's context.
func (a *access) config() (cfg *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.context})
	cfg, err = loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", errors.New("no kubeconfig: name one with --kubeconfig or KUBECONFIG")
	}
	if err == nil {
		namespace, _, err = loader.Namespace()
	}
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg.UserAgent = "wherry/" + config.WherryVersion
	return cfg, namespace, nil
}

func (a *access) client() (*kubeclient.Client, *rest.Config, error) {
	cfg, _, err := a.config()
	if err != nil {
		return nil, nil, err
	}
	c, err := kubeclient.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	return c, cfg, nil
}

// explained adds the API server's address and a remedy to the error of a request, if the error is of a kind that it knows.
func explained(err error, cfg *rest.Config) error {
	var p *identity.Problem
	if problem := identity.Explain(err, cfg.Host, "the kubeconfig"); errors.As(problem, &p) && p.Kind != identity.ProblemOther && p.Kind != identity.ProblemForbidden {
		return problem
	}
	return err
}

func newToken() *cobra.Command {
	token := &cobra.Command{Use: "token", Short: "Create, list and delete bootstrap tokens"}
	token.AddCommand(newTokenCreate(), newTokenList(), newTokenDelete())
	return token
}

func newTokenCreate() *cobra.Command {
	var a access
	var t handtools.Token
	var file string
	cmd := &cobra.Command{
		Use:   "create [TOKEN]",
		Short: "Create a bootstrap token and print it",
		Long: "Create a bootstrap token and print it. A node joins a cluster with such a token: it requests its certificate with it.\n" +
			"With --bootstrap-kubeconfig the command also writes the kubeconfig for the node (--bootstrap-kubeconfig of the agent).",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				t.Value = args[0]
			}
			if file != "" {
				if err := checkBootstrapFile(file); err != nil {
					return err
				}
			}
			c, cfg, err := a.client()
			if err != nil {
				return err
			}
			token, err := handtools.CreateToken(cmd.Context(), c.Secrets(metav1.NamespaceSystem), t)
			if err != nil {
				return explained(err, cfg)
			}
			fmt.Fprintln(cmd.OutOrStdout(), token)
			at := file
			if at == "" {
				at = "/etc/kubernetes/bootstrap-kubelet.conf"
				fmt.Fprintf(cmd.ErrOrStderr(), "Write a kubeconfig with this token for the node (or make one with --bootstrap-kubeconfig FILE):\n"+
					"  server: %s\n  token: %s\n", cfg.Host, token)
			} else if err := writeBootstrap(file, cfg, token); err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "Join with it on the node:\n  kubelet --bootstrap-kubeconfig=%s --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml\n", at)
			return nil
		},
	}
	fs := cmd.Flags()
	a.flags(fs)
	fs.DurationVar(&t.TTL, "ttl", 24*time.Hour, "how long the token is valid; 0: for ever")
	fs.StringSliceVar(&t.Groups, "groups", []string{handtools.DefaultTokenGroup}, "groups that the token's user gets")
	fs.StringSliceVar(&t.Usages, "usages", []string{"signing", "authentication"}, "what the token may be used for")
	fs.StringVar(&t.Description, "description", "", "what the token is for")
	fs.StringVar(&file, "bootstrap-kubeconfig", "", "also write a bootstrap kubeconfig with the token to this file")
	return cmd
}

// bootstrapUser is the name of the user in a bootstrap kubeconfig.
const bootstrapUser = "kubelet-bootstrap"

// checkBootstrapFile returns an error if writeBootstrap would replace a file that it has not written, for example the kubeconfig of an administrator.
// A pipe or device has nothing to replace, and must not be read: that could take for ever.
func checkBootstrapFile(file string) error {
	st, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	case !st.Mode().IsRegular(), st.Size() == 0:
		return nil
	}
	c, err := clientcmd.LoadFromFile(file)
	if err == nil && len(c.AuthInfos) == 1 && c.AuthInfos[bootstrapUser] != nil {
		return nil
	}
	return fmt.Errorf("--bootstrap-kubeconfig: %s exists and has something else than a bootstrap token: choose another name", file)
}

// writeBootstrap writes a bootstrap kubeconfig, with which a node can join. The file has the API server's address, the cluster's CA, and
// the token.
func writeBootstrap(file string, cfg *rest.Config, token string) error {
	ca := cfg.CAData
	if len(ca) == 0 && cfg.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(cfg.CAFile); err != nil {
			return fmt.Errorf("read cluster CA: %w", err)
		}
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["bootstrap"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: ca, TLSServerName: cfg.ServerName, InsecureSkipTLSVerify: cfg.Insecure}
	c.AuthInfos[bootstrapUser] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts["bootstrap"] = &clientcmdapi.Context{Cluster: "bootstrap", AuthInfo: bootstrapUser}
	c.CurrentContext = "bootstrap"
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		return fmt.Errorf("write bootstrap kubeconfig: %w", err)
	}
	return nil
}

func newTokenList() *cobra.Command {
	var a access
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List bootstrap tokens and when they expire",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, cfg, err := a.client()
			if err != nil {
				return err
			}
			return explained(handtools.ListTokens(cmd.Context(), c.Secrets(metav1.NamespaceSystem), cmd.OutOrStdout()), cfg)
		},
	}
	a.flags(cmd.Flags())
	return cmd
}

func newTokenDelete() *cobra.Command {
	var a access
	cmd := &cobra.Command{
		Use:   "delete TOKEN|ID...",
		Short: "Delete bootstrap tokens",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, cfg, err := a.client()
			if err != nil {
				return err
			}
			var errs []error
			for _, token := range args {
				if err := handtools.DeleteToken(cmd.Context(), c.Secrets(metav1.NamespaceSystem), token); err != nil {
					errs = append(errs, explained(err, cfg))
				} else {
					fmt.Fprintf(cmd.OutOrStdout(), "Deleted token %.6s\n", token)
				}
			}
			return errors.Join(errs...)
		},
	}
	a.flags(cmd.Flags())
	return cmd
}

func newLease() *cobra.Command {
	lease := &cobra.Command{Use: "lease", Short: "Renew the lease of another node"}
	var a access
	l := handtools.LeaseRenewal{}
	renew := &cobra.Command{
		Use:   "renew NODE",
		Short: "Renew a node's lease until stopped",
		Long: "Renew a node's lease, in place of its agent, until the command is stopped. A Ready node stays Ready.\n" +
			"For a node that is already Unknown also give --ready, which writes its conditions.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, cfg, err := a.client()
			if err != nil {
				return err
			}
			l.Nodes, l.Leases, l.Node, l.Out = c.Nodes(), c.Leases(v1.NamespaceNodeLease), args[0], cmd.OutOrStdout()
			return explained(l.Run(cmd.Context()), cfg)
		},
	}
	fs := renew.Flags()
	a.flags(fs)
	fs.BoolVar(&l.Ready, "ready", false, "also write the conditions of a healthy node if the node's conditions differ")
	fs.BoolVar(&l.Once, "once", false, "renew once and end")
	fs.DurationVar(&l.Interval, "interval", 10*time.Second, "time between two renewals")
	fs.DurationVar(&l.Duration, "duration", 40*time.Second, "how long the lease is valid")
	lease.AddCommand(renew)
	return lease
}

// withTimeout returns a context that ends after the duration d. If d is 0, the context ends only when ctx ends.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}
