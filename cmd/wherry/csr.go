package main

import (
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/wherry-node/wherry/internal/edge/identity"
)

// csrFlags are the flags of `wherry csr`.
type csrFlags struct {
	access
	cn, signer, from, key, name, out, base string
	orgs, usages, dns, ips                 []string
	expiration, timeout                    time.Duration
	serving                                bool
}

func newCSR() *cobra.Command {
	var f csrFlags
	cmd := &cobra.Command{
		Use:   "csr [NODE]",
		Short: "Ask for a certificate by hand, and write a kubeconfig with it",
		Long: `Ask for a certificate by hand: create a key and a request, submit it, wait until somebody approves it, and save the key,
the certificate and a kubeconfig. Then use the kubeconfig once, and print the user name that the API server sees.

  wherry csr n1                            the identity of node n1, as its agent would ask for it
  wherry csr --cn jane --org devs          a person
  wherry csr n1 --serving --ip 10.0.0.1    the serving certificate of node n1 (asked for as that node)
  wherry csr --from test.csr --key test.key --signer kubernetes.io/kube-apiserver-client
                                           a request made elsewhere: openssl req -new -key test.key -subj "/O=.../CN=..."`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			node := ""
			if len(args) > 0 {
				node = args[0]
			}
			h, err := f.request(node)
			if err != nil {
				return err
			}
			c, cfg, err := f.client()
			if err != nil {
				return err
			}
			h.Client, h.Target, h.Out = c.CertificateSigningRequests(), cfg, cmd.OutOrStdout()
			ctx, cancel := withTimeout(cmd.Context(), f.timeout)
			defer cancel()
			return explained(identity.ByHand(ctx, h), cfg)
		},
	}
	fs := cmd.Flags()
	f.flags(fs)
	fs.StringVar(&f.cn, "cn", "", "common name: the user that the certificate is for")
	fs.StringSliceVar(&f.orgs, "org", nil, "organization: a group of the user; may be repeated")
	fs.StringVar(&f.from, "from", "", "file with a certificate request made elsewhere")
	fs.StringVar(&f.key, "key", "", "file with the private key of --from, for the kubeconfig")
	fs.StringVar(&f.signer, "signer", "", "signer; default: kubernetes.io/kube-apiserver-client-kubelet for a node, otherwise kubernetes.io/kube-apiserver-client")
	fs.StringSliceVar(&f.usages, "usage", nil, "usages; default: digital signature, client auth (server auth with --serving)")
	fs.DurationVar(&f.expiration, "expiration", 0, "how long the certificate should last, 10m at least; default: the signer decides")
	fs.BoolVar(&f.serving, "serving", false, "the serving certificate of a node")
	fs.StringSliceVar(&f.dns, "dns", nil, "names in a serving certificate; default: the node's")
	fs.StringSliceVar(&f.ips, "ip", nil, "addresses in a serving certificate")
	fs.StringVar(&f.name, "name", "", "name of the CertificateSigningRequest; default: made from the key")
	fs.StringVar(&f.out, "out", ".", "directory for the files")
	fs.StringVar(&f.base, "base", "", "name of the files without their ending; default: the node or the common name")
	fs.DurationVar(&f.timeout, "timeout", 0, "how long to wait for the certificate; 0: until stopped")
	return cmd
}

// request returns the certificate request that the flags describe. node is the command's argument; "": there is none.
func (f *csrFlags) request(node string) (identity.HandRequest, error) {
	h := identity.HandRequest{Object: f.name, Signer: f.signer, Usages: f.usages, Expiration: f.expiration, Dir: f.out, Base: f.base}
	switch {
	case f.from != "" && (node != "" || f.cn != ""):
		return h, errors.New("the file of --from already has the subject: omit NODE and --cn")
	case f.from == "" && (node == "") == (f.cn == ""):
		return h, errors.New("name the subject: a NODE, or --cn USER, or --from FILE")
	case f.serving && node == "":
		return h, errors.New("--serving: name the NODE")
	case f.key != "" && f.from == "":
		return h, errors.New("--key needs --from; without --from a new key is created")
	}
	if f.from != "" {
		err := f.given(&h)
		return h, err
	}
	h.Subject = pkix.Name{CommonName: f.cn, Organization: f.orgs}
	signer, use := "kubernetes.io/kube-apiserver-client", "client auth"
	base := f.cn
	if node != "" {
		h.Subject = pkix.Name{CommonName: "system:node:" + node, Organization: append([]string{"system:nodes"}, f.orgs...)}
		signer, base = "kubernetes.io/kube-apiserver-client-kubelet", node
	}
	if f.serving {
		signer, use, base = "kubernetes.io/kubelet-serving", "server auth", node+"-serving"
		h.DNSNames = f.dns
		if len(h.DNSNames) == 0 {
			h.DNSNames = []string{node}
		}
		for _, s := range f.ips {
			ip := net.ParseIP(s)
			if ip == nil {
				return h, fmt.Errorf("--ip %s: is not an IP address", s)
			}
			h.IPs = append(h.IPs, ip)
		}
	}
	f.defaults(&h, signer, use, base)
	return h, nil
}

// given reads the certificate request from the file that --from names, and the request's private key, into h.
func (f *csrFlags) given(h *identity.HandRequest) (err error) {
	if h.From, err = os.ReadFile(f.from); err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	if f.key != "" {
		if h.Key, err = os.ReadFile(f.key); err != nil {
			return fmt.Errorf("--key: %w", err)
		}
	}
	f.defaults(h, "kubernetes.io/kube-apiserver-client", "client auth", strings.TrimSuffix(filepath.Base(f.from), filepath.Ext(f.from)))
	return nil
}

func (f *csrFlags) defaults(h *identity.HandRequest, signer, use, base string) {
	if h.Signer == "" {
		h.Signer = signer
	}
	if len(h.Usages) == 0 {
		h.Usages = []string{"digital signature", use}
	}
	if h.Base == "" {
		h.Base = strings.Map(func(r rune) rune {
			if strings.ContainsRune(":/@ ", r) {
				return '-'
			}
			return r
		}, base)
	}
}
