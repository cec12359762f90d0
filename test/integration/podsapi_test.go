package integration

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	grpcinsecure "google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// With the gate PodsAPI, a program of the machine finds the node's pods at the socket at which upstream's kubelet serves them. Only root can
// open it.
func TestPodsAPISocket(t *testing.T) {
	s := newSpace(t)
	n := started(t, s.env, nodeConfig{Name: "podsapi", Flags: simulated, Config: apart + "featureGates: {PodsAPI: true}\n"})
	n.mustBeReady(t)
	s.pod("web", `containers: [{name: main, image: registry.example/web:1}]`, onNode(n))
	path := filepath.Join(n.dir, "root", "pods-api", "pods-api.sock")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the mode of the socket is %v", info.Mode())
	}
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(grpcinsecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := podsv1alpha1.NewPodsClient(conn)
	s.eventually("the Pods API has the running pod", func() error {
		list, err := client.ListPods(t.Context(), &podsv1alpha1.ListPodsRequest{})
		if err != nil {
			return err
		}
		for _, b := range list.GetPods() {
			var p v1.Pod
			if err := p.Unmarshal(b); err != nil {
				return err
			}
			if p.Namespace == s.name && p.Name == "web" && p.Status.Phase == v1.PodRunning {
				return nil
			}
		}
		return errors.New("it is not in the list")
	})
	n.process.stop()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after the agent's end, the socket: %v", err)
	}
}
