package identity_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/identity"
)

// byPlugin changes a kubeconfig: its user gets the credentials from a program, which prints this status of an ExecCredential.
func byPlugin(t *testing.T, kubeconfig, status string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "plugin")
	script := "#!/bin/sh\ncat <<'END'\n" + `{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": ` + status + "}\nEND\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	c := must(clientcmd.LoadFromFile(kubeconfig))(t)
	for name := range c.AuthInfos {
		c.AuthInfos[name] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: program, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}
	}
	if err := clientcmd.WriteToFile(*c, kubeconfig); err != nil {
		t.Fatal(err)
	}
}

// Nodes of clouds get their credentials from a program that the kubeconfig names: a token, or a certificate with its key. It serves for the
// node's client, and for the bootstrap.
func TestACredentialPluginIsUsed(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.approve = true
	n := newNode(t, a)
	token := fmt.Sprintf(`{"token": %q}`, a.token)
	byPlugin(t, n.cfg.BootstrapKubeconfig, token)
	if err := identity.Bootstrap(soon(t), n.cfg); err != nil {
		t.Fatal(err)
	}
	n.works(t)
	pair := string(must(os.ReadFile(n.cfg.CertDir + "/kubelet-client-current.pem"))(t))
	at := strings.Index(pair, "-----BEGIN EC PRIVATE KEY")
	for kind, status := range map[string]string{
		"token": token, "certificate": fmt.Sprintf(`{"clientCertificateData": %q, "clientKeyData": %q}`, pair[:at], pair[at:]),
	} {
		kubeconfig := filepath.Join(n.dir, kind+".conf")
		a.kubeconfig(t, kubeconfig, "", a.ca)
		byPlugin(t, kubeconfig, status)
		c, err := identity.OpenClient(identity.ClientConfig{Kubeconfig: kubeconfig, CertDir: n.dir + "/none", NodeName: "n1", Rotate: true, Log: n.cfg.Log})
		if err != nil {
			t.Errorf("%s: %v", kind, err)
			continue
		}
		if cs, err := kubeclient.New(c.Config()); err != nil {
			t.Errorf("%s: %v", kind, err)
		} else if _, err := cs.CertificateSigningRequests().Get(t.Context(), a.created[0], metav1.GetOptions{}); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		endClient(t, c)
	}
}
