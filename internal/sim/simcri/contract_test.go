package simcri_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simcri/cricontract"
)

const busybox = "docker.io/library/busybox:1.36"

// TestContract runs the cases of package cricontract, which every runtime has to pass, against simcri: in process, in a synctest bubble.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, c := range cricontract.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := simcri.New(simcri.Config{Images: []string{busybox}, WriteLogs: true})
				defer r.Close()
				rt, img := r.Clients()
				c.Run(t, cricontract.Subject{Runtime: rt, Images: img, Image: busybox, LogRoot: t.TempDir()})
			})
		})
	}
}

// TestContractOverGRPC runs the cases of package cricontract, which every runtime has to pass, against simcri over a socket.
func TestContractOverGRPC(t *testing.T) {
	t.Parallel()
	r := simcri.New(simcri.Config{Images: []string{busybox}, WriteLogs: true})
	cricontract.Run(t, dialed(t, serve(t, r), t.TempDir(), ""))
}

// TestContractOfContainerd runs the cases of package cricontract against the runtime at WHERRY_CRI_SOCKET, for example containerd. It shows
// that the cases describe a real runtime, and not only simcri.
func TestContractOfContainerd(t *testing.T) {
	socket := os.Getenv("WHERRY_CRI_SOCKET")
	if socket == "" {
		t.Skip("WHERRY_CRI_SOCKET does not name a runtime's socket")
	}
	cricontract.Run(t, dialed(t, socket, t.TempDir(), os.Getenv("WHERRY_CRI_CGROUP_PARENT")))
}

func serve(t *testing.T, r *simcri.Runtime) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "simcri")
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
		r.Close()
		_ = os.RemoveAll(dir)
	})
	return socket
}

func dialed(t *testing.T, socket, logs, cgroup string) cricontract.Subject {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return cricontract.Subject{
		Runtime: runtimeapi.NewRuntimeServiceClient(conn), Images: runtimeapi.NewImageServiceClient(conn),
		Image: busybox, LogRoot: logs, CgroupParent: cgroup,
	}
}
