package simkube

import (
	"os"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wherry-node/wherry/internal/sim/simkube/kubecontract"
)

func TestContract(t *testing.T) {
	t.Parallel()
	for _, c := range kubecontract.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			k := New(Config{})
			client, err := kubernetes.NewForConfig(k.RESTConfig("test"))
			if err != nil {
				t.Fatal(err)
			}
			c.Run(t, kubecontract.Subject{Client: client, Compact: k.Compact})
		})
	}
}

// TestContractOfAPIServer runs the cases of package kubecontract against the real API server of WHERRY_TEST_KUBECONFIG. It shows that the
// cases describe a real server, and not only simkube. test/integration runs them against its own API server.
func TestContractOfAPIServer(t *testing.T) {
	t.Parallel()
	path := os.Getenv("WHERRY_TEST_KUBECONFIG")
	if path == "" {
		t.Skip("WHERRY_TEST_KUBECONFIG does not name a kubeconfig")
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range kubecontract.Cases() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, kubecontract.Subject{Client: client}) })
	}
}
