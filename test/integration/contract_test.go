package integration

import (
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/sim/simcri/cricontract"
	"github.com/wherry-node/wherry/internal/sim/simkube/kubecontract"
)

// The contract that tests check with the simulated API server holds for a real API server too. If a case fails here, the case is wrong
// about Kubernetes.
func TestContractOfAPIServer(t *testing.T) {
	e := use(t)
	for _, c := range kubecontract.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, kubecontract.Subject{Client: e.client})
		})
	}
}

// The contract that tests check with the simulated runtime holds for a real runtime too. No agent uses the runtime of this test, because an
// agent would end these pods, which no source wants.
func TestContractOfRuntime(t *testing.T) {
	e := use(t)
	if e.flavor == debian {
		t.Skip("containerd 1.6 has no events, image mounts and user namespaces, and answers NotFound where CRI says that a call succeeds")
	}
	rt := filepath.Join(e.dir, "rt-contract")
	e.addRuntime(rt)
	if err := e.runtimeUp(rt, e.subnet(rt)); err != nil {
		t.Fatal(err)
	}
	conn, err := cri.Dial(rt + "/containerd.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	cricontract.Run(t, cricontract.Subject{
		Runtime: runtimeapi.NewRuntimeServiceClient(conn), Images: runtimeapi.NewImageServiceClient(conn), Image: busybox, LogRoot: t.TempDir(),
	})
}
