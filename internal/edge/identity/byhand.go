package identity

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	certificates "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/base/kubeclient"
)

// HandRequest is a request for a certificate that a person makes step by step.
type HandRequest struct {
	Client CSRs
	// Target is the server with its CA, for the kubeconfig that ByHand writes.
	Target *rest.Config

	// Subject, DNSNames and IPs are the contents of the request. They are ignored if From is set.
	Subject  pkix.Name
	DNSNames []string
	IPs      []net.IP
	// From is a certificate request that was made with another program (openssl req -new), in PEM. Key is the private key of that
	// request; nil: the person has not given it.
	From, Key []byte

	// Object is the name of the CertificateSigningRequest; if it is empty, ByHand makes a name from Base and the key.
	Object     string
	Signer     string
	Usages     []string
	Expiration time.Duration // lifetime to ask for; 0: the signer decides

	// Dir and Base name the files: Base.key, Base.csr, Base.crt, Base.kubeconfig.
	Dir, Base string
	Out       io.Writer
	Patience  time.Duration // time between two messages about the same state; 0: 15 s
}

// ByHand does the steps of the TLS bootstrap one by one, for any identity: it makes a key and a request (or takes a given one), submits the
// request, waits for approval, writes the certificate and a kubeconfig that works, and makes a call with the new identity to show
// that it works. It uses an existing key file, and writes all other files anew.
func ByHand(ctx context.Context, h HandRequest) error {
	if h.Patience == 0 {
		h.Patience = defaultPatience
	}
	if h.Expiration != 0 && h.Expiration < 10*time.Minute {
		return fmt.Errorf("--expiration %s: Kubernetes signs for 10m at least", h.Expiration)
	}
	csrPEM, err := h.request()
	if err != nil {
		return err
	}
	name, err := h.submit(ctx, csrPEM)
	if err != nil {
		return err
	}
	certPEM, err := h.wait(ctx, name)
	if err != nil {
		return err
	}
	if err := h.write(".crt", certPEM, 0o644, "certificate"); err != nil {
		return err
	}
	if h.Key == nil {
		fmt.Fprintln(h.Out, "No kubeconfig written: the private key is not here (give it with --key).")
		return nil
	}
	pair, err := parsePair(certPEM, h.Key)
	if err != nil {
		return fmt.Errorf("the certificate does not fit the key: %w", err)
	}
	if !clientUse(pair.Leaf) {
		return nil // a serving certificate cannot be used to log in
	}
	data, err := h.kubeconfig(certPEM)
	if err != nil {
		return err
	}
	if err := h.write(".kubeconfig", data, 0o600, "kubeconfig"); err != nil {
		return err
	}
	return h.whoAmI(ctx, pair)
}

func (h *HandRequest) path(suffix string) string { return filepath.Join(h.Dir, h.Base+suffix) }

func (h *HandRequest) write(suffix string, data []byte, mode fs.FileMode, what string) error {
	if err := makeParent(h.path(suffix)); err != nil {
		return err
	}
	if err := hostfs.WriteFile(h.path(suffix), data, mode); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	fmt.Fprintf(h.Out, "Wrote %s %s\n", what, h.path(suffix))
	return nil
}

// request returns the certificate request in PEM: From if it is set, and otherwise a new one for the key in Dir, which it makes if
// there is none.
func (h *HandRequest) request() ([]byte, error) {
	if h.From != nil {
		csr, err := ParseCSR(h.From)
		if err != nil {
			return nil, fmt.Errorf("--from: %w", err)
		}
		fmt.Fprintf(h.Out, "Request for %s\n", csr.Subject)
		return h.From, nil
	}
	key, err := keptKey(h.path(".key"))
	if err != nil {
		return nil, err
	}
	h.Key = key.pem
	fmt.Fprintf(h.Out, "Key %s\n", h.path(".key"))
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: h.Subject, DNSNames: h.DNSNames, IPAddresses: h.IPs}, key.key)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	csrPEM := pemBlock("CERTIFICATE REQUEST", der)
	fmt.Fprintf(h.Out, "Request for %s\n", h.Subject)
	return csrPEM, h.write(".csr", csrPEM, 0o644, "certificate request")
}

// submit creates the CertificateSigningRequest, or finds the one that an earlier call with the same key created. It returns its name.
func (h *HandRequest) submit(ctx context.Context, csrPEM []byte) (string, error) {
	mine, err := ParseCSR(csrPEM)
	if err != nil {
		return "", err
	}
	name := h.Object
	if name == "" {
		sum := sha256.Sum256(mine.RawSubjectPublicKeyInfo)
		name = strings.ToLower(h.Base) + "-" + hex.EncodeToString(sum[:4])
	}
	csr := &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       certificates.CertificateSigningRequestSpec{Request: csrPEM, SignerName: h.Signer},
	}
	for _, u := range h.Usages {
		csr.Spec.Usages = append(csr.Spec.Usages, certificates.KeyUsage(u))
	}
	if h.Expiration > 0 {
		seconds := int32(h.Expiration / time.Second)
		csr.Spec.ExpirationSeconds = &seconds
	}
	_, err = h.Client.Create(ctx, csr, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return "", fmt.Errorf("create certificate request: %w", err)
		}
		fmt.Fprintf(h.Out, "Submitted as %s to the signer %s\n", name, h.Signer)
		return name, nil
	}
	there, err := h.Client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("look at certificate request %s: %w", name, err)
	}
	theirs, err := ParseCSR(there.Spec.Request)
	if err != nil || !bytes.Equal(theirs.RawSubjectPublicKeyInfo, mine.RawSubjectPublicKeyInfo) || there.Spec.SignerName != h.Signer {
		return "", fmt.Errorf("there is another certificate request named %s: choose a --name, or kubectl delete csr %[1]s", name)
	}
	fmt.Fprintf(h.Out, "Found %s, submitted before with this key\n", name)
	return name, nil
}

// wait returns the certificate once the request is approved and signed.
func (h *HandRequest) wait(ctx context.Context, name string) ([]byte, error) {
	said := newRepeats(h.Patience)
	look := &request{patience: h.Patience}
	for {
		csr, err := h.Client.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("certificate request %s was deleted: start again", name)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("stopped waiting for certificate request %s: approve it (kubectl certificate approve %[1]s) and call again (%v)", name, context.Cause(ctx))
		}
		if err != nil {
			return nil, fmt.Errorf("look at certificate request %s: %w", name, err)
		}
		if len(csr.Status.Certificate) > 0 {
			return csr.Status.Certificate, nil
		}
		if bad, why := refused(csr); bad {
			return nil, fmt.Errorf("certificate request %s was refused (%s): kubectl delete csr %[1]s before asking again", name, why)
		}
		message := "Waiting for approval: kubectl certificate approve " + name
		for _, c := range csr.Status.Conditions {
			if c.Type == certificates.CertificateApproved {
				message = "Approved; waiting for the signer " + h.Signer
			}
		}
		if said.again(message) {
			fmt.Fprintln(h.Out, message)
		}
		if err := look.untilChange(ctx, h.Client, csr); err != nil {
			return nil, err
		}
	}
}

func clientUse(cert *x509.Certificate) bool {
	for _, u := range cert.ExtKeyUsage {
		if u == x509.ExtKeyUsageClientAuth {
			return true
		}
	}
	return len(cert.ExtKeyUsage) == 0
}

// kubeconfig returns a kubeconfig that contains certificate and key, so that it works on any machine.
func (h *HandRequest) kubeconfig(certPEM []byte) ([]byte, error) {
	ca := h.Target.CAData
	if len(ca) == 0 && h.Target.CAFile != "" {
		var err error
		if ca, err = os.ReadFile(h.Target.CAFile); err != nil {
			return nil, fmt.Errorf("read cluster CA: %w", err)
		}
	}
	c := clientcmdapi.NewConfig()
	c.Clusters["cluster"] = &clientcmdapi.Cluster{Server: h.Target.Host, CertificateAuthorityData: ca,
		TLSServerName: h.Target.ServerName, InsecureSkipTLSVerify: h.Target.Insecure}
	c.AuthInfos[h.Base] = &clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: h.Key}
	c.Contexts[h.Base+"@cluster"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: h.Base}
	c.CurrentContext = h.Base + "@cluster"
	data, err := clientcmd.Write(*c)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return data, nil
}

// whoAmI makes a call with the new identity.
func (h *HandRequest) whoAmI(ctx context.Context, pair *tls.Certificate) error {
	own, conns, err := withTransport(rest.AnonymousClientConfig(h.Target), func() (*tls.Certificate, error) { return pair, nil })
	if err != nil {
		return err
	}
	defer conns.end()
	c, err := kubeclient.New(own)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	me, err := c.SelfSubjectReviews().Create(ctx, &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return errors.Join(errors.New("the new identity does not work yet"), Explain(err, h.Target.Host, h.path(".kubeconfig")))
	}
	fmt.Fprintf(h.Out, "The API server knows you as %s (%s), until %s.\nUse it: kubectl --kubeconfig %s auth whoami\n",
		me.Status.UserInfo.Username, strings.Join(me.Status.UserInfo.Groups, ", "), stamp(pair.Leaf.NotAfter), h.path(".kubeconfig"))
	return nil
}
