package identity_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"slices"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/identity"
)

// Another program renews the client certificate, which is in two files, and replaces them one after the other. A connection in between uses
// the old certificate, and the log says so once. A connection after the replacement uses the new certificate.
func TestClientCertificateInTwoFilesIsReplaced(t *testing.T) {
	t.Parallel()
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		a := newAPI(t)
		n := newNode(t, a)
		files := [2]string{n.dir + "/client.crt", n.dir + "/client.key"}
		pair := func() [2][]byte {
			certPEM, keyPEM := a.ca.pair(t, x509.Certificate{Subject: pkix.Name{CommonName: "system:node:n1"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
			return [2][]byte{certPEM, keyPEM}
		}
		put := func(i int, data []byte) {
			t.Helper()
			must(0, os.WriteFile(files[i]+".new", data, 0o600))(t)
			must(0, os.Rename(files[i]+".new", files[i]))(t)
		}
		first, second := pair(), pair()
		put(0, first[0])
		put(1, first[1])
		config := must(clientcmd.LoadFromFile(n.cfg.BootstrapKubeconfig))(t)
		config.AuthInfos["u"].Token, config.AuthInfos["u"].ClientCertificate, config.AuthInfos["u"].ClientKey = "", files[0], files[1]
		must(0, clientcmd.WriteToFile(*config, n.cfg.Kubeconfig))(t)
		c := must(identity.OpenClient(identity.ClientConfig{Kubeconfig: n.cfg.Kubeconfig, NodeName: "n1", Log: n.cfg.Log}))(t)
		defer endClient(t, c)
		cs := must(kubeclient.New(c.Config()))(t)
		connect := func() { // over a new connection
			t.Helper()
			ctx := soon(t)
			for { // a request may still get the connection that is being closed, and fail
				c.CloseAll()
				_, err := cs.SelfSubjectReviews().Create(ctx, &authentication.SelfSubjectReview{}, metav1.CreateOptions{})
				if err == nil {
					return
				}
				if ctx.Err() != nil {
					t.Fatal(err)
				}
			}
		}
		connect()
		old := c.Certificate().SerialNumber
		put(order[0], second[order[0]])
		connect()
		connect()
		if now := c.Certificate().SerialNumber; now.Cmp(old) != 0 {
			t.Errorf("order %v: certificate %v is used without its key", order, now)
		}
		if got := strings.Count(n.log.String(), "still using the old one"); got != 1 {
			t.Errorf("order %v: the log says %d times that the old certificate is used:\n%s", order, got, n.log)
		}
		put(order[1], second[order[1]])
		connect()
		renewed := c.Certificate().SerialNumber
		if renewed.Cmp(old) == 0 {
			t.Errorf("order %v: the new certificate is not used", order)
		}
		if seen := a.seen(); !slices.Equal(seen, []string{old.String(), renewed.String()}) {
			t.Errorf("order %v: the server saw certificates %v, want %v and %v", order, seen, old, renewed)
		}
	}
}
