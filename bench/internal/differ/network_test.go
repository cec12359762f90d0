package differ

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// While a container runs, its network probes get the answers that the script of the case (Play) says.
func TestNetworkProbesAreAnswered(t *testing.T) {
	r, err := Serve(filepath.Join(t.TempDir(), "cri.sock"), "127.99.0.0/16")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const changes = time.Second
	c := oneContainer()
	c.Plays = map[string][]Play{"main-0": {{Fails: map[string]Window{"startup": {From: changes}, "liveness": {From: changes}, "readiness": {From: changes}}}}}
	x := &c.Spec.Containers[0]
	x.StartupProbe = &v1.Probe{ProbeHandler: asking("http", x.Name, "startup")}
	x.LivenessProbe = &v1.Probe{ProbeHandler: asking("tcp", x.Name, "liveness")}
	x.ReadinessProbe = &v1.Probe{ProbeHandler: asking("grpc", x.Name, "readiness")}
	r.Play("pod", c)

	next, ip := startOne(t, r, "pod", x.Name)
	id := next()
	checks := map[string]func() string{
		"http": func() string {
			resp, err := http.Get("http://" + net.JoinHostPort(ip, x.StartupProbe.HTTPGet.Port.String()) + "/startup")
			if err != nil {
				return "no answer"
			}
			defer resp.Body.Close()
			return map[bool]string{true: "yes", false: "no"}[resp.StatusCode == http.StatusOK]
		},
		"tcp": func() string {
			conn, err := net.Dial("tcp", net.JoinHostPort(ip, x.LivenessProbe.TCPSocket.Port.String()))
			if err != nil {
				return "no answer"
			}
			_ = conn.Close()
			return "yes"
		},
		"grpc": func() string { return checkHealth(t, ip, x.ReadinessProbe.GRPC.Port) },
	}
	all := func(when string, want map[string]string) {
		t.Helper()
		for how, check := range checks {
			if got := check(); got != want[how] {
				t.Errorf("%s, a probe by %s: %q, want %q", when, how, got, want[how])
			}
		}
	}
	all("at the start", map[string]string{"http": "yes", "tcp": "yes", "grpc": "yes"})
	time.Sleep(changes + 4*answersEvery)
	all("when it fails", map[string]string{"http": "no", "tcp": "no answer", "grpc": "no"})
	end := func() {
		t.Helper()
		if _, err := r.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
	}
	end()
	id = next()
	all("at the start of the next instance, at once", map[string]string{"http": "yes", "tcp": "yes", "grpc": "yes"})
	time.Sleep(2 * answersEvery)
	all("after the end of the first", map[string]string{"http": "yes", "tcp": "yes", "grpc": "yes"})
	end()
	time.Sleep(6 * answersEvery)
	all("after the end", map[string]string{"http": "no answer", "tcp": "no answer", "grpc": "no answer"})
}

// startOne creates a sandbox through the CRI socket. It returns the pod's IP address, and a function that starts the next instance of the
// container and returns the instance's ID.
func startOne(t *testing.T, r *Runtime, pod, name string) (next func() string, ip string) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+r.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	images, client := runtimeapi.NewImageServiceClient(conn), runtimeapi.NewRuntimeServiceClient(conn)
	ctx, dir := t.Context(), t.TempDir()
	pulled, err := images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	if err != nil {
		t.Fatal(err)
	}
	// A real agent sends the node's pod CIDR to the runtime. The pods must keep their loopback addresses.
	if _, err := client.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: "10.244.3.0/24"}}}); err != nil {
		t.Fatal(err)
	}
	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: pod, Namespace: "bench", Uid: "1"}, LogDirectory: dir, Linux: &runtimeapi.LinuxPodSandboxConfig{}}
	sandbox, err := client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	status, err := client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox.PodSandboxId})
	if err != nil {
		t.Fatal(err)
	}
	attempt := uint32(0)
	return func() string {
		made, err := client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox.PodSandboxId, SandboxConfig: config, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: pulled.ImageRef}, Command: []string{"server"}, LogPath: "log"}})
		if err != nil {
			t.Fatal(err)
		}
		attempt++
		if _, err := client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
			t.Fatal(err)
		}
		return made.ContainerId
	}, status.Status.Network.Ip
}

func checkHealth(t *testing.T, ip string, port int32) string {
	t.Helper()
	conn, err := grpc.NewClient(net.JoinHostPort(ip, strconv.Itoa(int(port))), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	resp, err := health.NewHealthClient(conn).Check(ctx, &health.HealthCheckRequest{})
	switch {
	case err != nil:
		return "no answer"
	case resp.Status == health.HealthCheckResponse_SERVING:
		return "yes"
	}
	return "no"
}

// Each container of a generated pod uses a different port for each of its probes.
func TestPortsOfProbesAreTheirOwn(t *testing.T) {
	seen := map[int32]string{}
	for _, container := range []string{"main-0", "main-1", "side-0", "side-1"} {
		for _, probe := range probeNames {
			port := portOf(container, probe)
			if other := seen[port]; other != "" {
				t.Errorf("%s of %s has the port of %s", probe, container, other)
			}
			seen[port] = probe + " of " + container
		}
	}
}

// Messages of failed probes differ only in addresses and in the client's port, which the comparison replaces.
func TestMessagesOfNetworkProbes(t *testing.T) {
	d := &differ{c: oneContainer()}
	a := d.message("Readiness probe failed: read tcp 127.0.0.1:43210->127.60.0.7:8101: read: connection reset by peer")
	b := d.message("Readiness probe failed: read tcp 127.0.0.1:51010->127.61.3.1:8101: read: connection reset by peer")
	other := d.message("Readiness probe failed: read tcp 127.0.0.1:51010->127.61.3.1:8102: read: connection reset by peer")
	if a != b || a == other {
		t.Errorf("messages:\n%s\n%s\n%s", a, b, other)
	}
}
