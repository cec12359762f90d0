package agent

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The read-only port is served without the HTTPS API too: "Running Kubelet in Standalone Mode" of Kubernetes' documentation sets enableServer to
// false and reads the node's pods from readOnlyPort. A standalone node whose configuration does not allow an HTTPS API has the port as well.
func TestReadOnlyPortWithoutTheAPI(t *testing.T) {
	t.Parallel()
	for _, enabled := range []bool{false, true} {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := free.Addr().(*net.TCPAddr).Port
		if err := free.Close(); err != nil {
			t.Fatal(err)
		}
		kc := DefaultConfiguration()
		*kc.EnableServer, *kc.HealthzPort, kc.Address, kc.ReadOnlyPort = enabled, 0, "127.0.0.1", int32(port)
		a, err := New(Config{NodeName: "n", Kubelet: kc, Listen: true}, Deps{
			Runtime: struct {
				runtimeapi.RuntimeServiceClient
			}{}, Images: struct{ runtimeapi.ImageServiceClient }{}, Machine: SimulatedMachine(Shape{}), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer a.close()
		if err := a.openPorts(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.build(); err != nil {
			t.Fatal(err)
		}
		if a.deps.API != nil || a.server == nil {
			t.Fatalf("enableServer %t: HTTPS on %v, server %v", enabled, a.deps.API, a.server)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.serverPart().run(ctx) }()
		resp, err := http.Get("http://127.0.0.1:" + strconv.Itoa(port) + "/pods")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !strings.Contains(string(text), `"kind":"PodList"`) {
			t.Errorf("enableServer %t: %s: %s", enabled, resp.Status, text)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
