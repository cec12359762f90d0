package identity_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/internal/edge/identity"
)

// The kubeconfig names a certificate that has ended, and the certificate directory has the one by which the node has renewed it, as on nodes whose
// kubeconfig contains the first certificate. The node starts with the renewed one, although its bootstrap token has expired long ago. Without
// rotateCertificates, the renewed one is not used.
func TestTheRenewedCertificateServesIfTheKubeconfigsHasEnded(t *testing.T) {
	t.Parallel()
	a, n := joined(t)
	certPEM, keyPEM := a.ca.pair(t, x509.Certificate{
		Subject:   pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour),
	})
	own := filepath.Join(n.dir, "own.pem")
	must(0, os.WriteFile(own, append(certPEM, keyPEM...), 0o600))(t)
	config := strings.ReplaceAll(string(must(os.ReadFile(n.cfg.Kubeconfig))(t)), n.cfg.CertDir+"/kubelet-client-current.pem", own)
	must(0, os.WriteFile(n.cfg.Kubeconfig, []byte(config), 0o600))(t)
	a.set(func() { a.token = "another.token" })
	requests := len(a.created)
	n.cfg.Rotate = true
	if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
		t.Fatal(err)
	}
	if len(a.created) != requests {
		t.Error("the node has asked for another certificate")
	}
	c := must(identity.OpenClient(identity.ClientConfig{Kubeconfig: n.cfg.Kubeconfig, CertDir: n.cfg.CertDir, NodeName: "n1", Rotate: true, Log: n.cfg.Log}))(t)
	defer endClient(t, c)
	if !c.Certificate().NotAfter.After(time.Now()) {
		t.Error("the client uses the certificate that has ended")
	}
	a.set(func() { a.token = "abcdef.0123456789abcdef" })
	n.cfg.Rotate = false
	if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
		t.Fatal(err)
	}
	if len(a.created) != requests+1 {
		t.Error("the node has not asked for another certificate")
	}
}

// The kubeconfig cannot be written. The node says so and asks for no certificate: its service manager starts it again and again, and each start
// would ask for another one. When the disk works again, the node joins.
func TestNoCertificateIsRequestedForAKubeconfigThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	brokenDisks(t, func(t *testing.T, dir string, breakIt, mend func()) {
		a := newAPI(t)
		a.approve = true
		n := newNode(t, a)
		n.cfg.Kubeconfig = filepath.Join(dir, "kubelet.conf")
		breakIt()
		for range 2 {
			if err := identity.Bootstrap(soon(t), n.cfg); !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EROFS) {
				t.Errorf("on a broken disk: %v", err)
			}
		}
		if len(a.created) > 0 {
			t.Errorf("%d certificates were requested", len(a.created))
		}
		mend()
		if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
			t.Fatal(err)
		}
		n.works(t)
		if _, err := os.Stat(n.cfg.Kubeconfig + ".trial"); err == nil {
			t.Error("the trial is left")
		}
	})
}
