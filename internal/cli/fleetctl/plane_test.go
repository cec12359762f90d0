package fleetctl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent/fleet"
)

// ownPlane returns the program of a control plane (testdata/plane.sh) that gives users this kubeconfig. fail makes the program fail.
func ownPlane(t *testing.T, kubeconfig string) (program string, fail func()) {
	t.Helper()
	script, err := filepath.Abs("testdata/plane.sh")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program = filepath.Join(dir, "plane")
	if err := errors.Join(os.Symlink(script, program), os.Symlink(kubeconfig, filepath.Join(dir, "kubeconfig"))); err != nil {
		t.Fatal(err)
	}
	return program, func() {
		if err := os.WriteFile(filepath.Join(dir, "end"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
}

// If the fleet's own control plane ends by itself, the fleet ends with an error that says why, and the log stays. That is no unmet expectation.
// If the fleet ends first, nothing is left.
func TestControlPlaneEnds(t *testing.T) {
	t.Parallel()
	for _, fails := range []bool{true, false} {
		kube, kubeconfig := cluster(t)
		program, fail := ownPlane(t, kubeconfig)
		r := Run{
			Name: "f", Nodes: 1, ControlPlane: program, Identity: "shared", NoServe: true, Socket: filepath.Join(t.TempDir(), "s"), Pods: 1, Namespace: "load",
		}
		if fails {
			r.Expect, r.Within = []string{"nodes.ready>=2"}, 20*time.Second // which never holds
		}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(t.Context(), &bytes.Buffer{}) }()
		c := Client{Name: "f", Socket: r.Socket}
		var dir string
		until(t, "a node is Ready", func() bool {
			s, err := c.State(t.Context())
			dir = filepath.Dir(s.Kubeconfig)
			return err == nil && s.Settled()
		})
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		if !fails {
			if _, err := c.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("the user ends the fleet: %v", err)
			}
			if admin, err := kubernetes.NewForConfig(kube.RESTConfig("test")); err != nil {
				t.Error(err)
			} else if _, err := admin.CoreV1().Namespaces().Get(t.Context(), "load", metav1.GetOptions{}); err != nil {
				t.Errorf("the namespace of the pods is not made: %v", err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory of the control plane after its end: %v", err)
			}
			continue
		}
		fail()
		err := <-ended
		log := filepath.Join(dir, "controlplane.log")
		var unmet *fleet.Unmet
		if errors.As(err, &unmet) {
			t.Errorf("the end of the control plane is an unmet expectation: %v", err)
		}
		for _, want := range []string{"exit status 7", "no space left on the device", log} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the control plane has ended: %v, want %s", err, want)
			}
		}
		if text, err := os.ReadFile(log); err != nil || !strings.Contains(string(text), "no space left") {
			t.Errorf("its log: %q, %v", text, err)
		}
	}
}
