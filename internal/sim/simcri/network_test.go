package simcri_test

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

func TestNetwork(t *testing.T) {
	inBubble(t, simcri.Config{PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/29"), netip.MustParsePrefix("fd00::/120")}}, func(t *testing.T, r *simcri.Runtime) {
		ips := func(id string) string {
			resp, err := r.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
			if err != nil {
				t.Fatal(err)
			}
			out := resp.Status.Network.Ip
			for _, more := range resp.Status.Network.AdditionalIps {
				out += " " + more.Ip
			}
			return out
		}
		var got, ids []string
		for i := range 5 {
			ids = append(ids, runSandbox(t, r, fmt.Sprint("p", i), nil))
			got = append(got, ips(ids[i]))
		}
		want := []string{"10.1.2.2 fd00::2", "10.1.2.3 fd00::3", "10.1.2.4 fd00::4", "10.1.2.5 fd00::5", "10.1.2.6 fd00::6"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("addresses (-want +got):\n%s", diff)
		}
		if _, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig("full", nil)}); err == nil {
			t.Error("a sandbox was created although no address is free")
		}
		if _, err := r.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: ids[2]}); err != nil {
			t.Fatal(err)
		}
		if got := ips(runSandbox(t, r, "full", nil)); got != "10.1.2.4 fd00::7" {
			t.Errorf("the address that was released: %s", got)
		}
		if _, err := r.UpdateRuntimeConfig(t.Context(), &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.RuntimeConfig{
			NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: "10.9.0.0/24"}}}); err != nil {
			t.Fatal(err)
		}
		if got := ips(runSandbox(t, r, "new", nil)); got != "10.9.0.2" {
			t.Errorf("address of the new range: %s", got)
		}
		r.SetCondition(runtimeapi.NetworkReady, false, "NetworkPluginNotReady", "cni plugin not initialized")
		_, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: sandboxConfig("none", nil)})
		if err == nil || !strings.Contains(err.Error(), "cni plugin not initialized") {
			t.Errorf("a sandbox without a network: %v", err)
		}
		host := sandboxConfig("host", nil)
		host.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}
		if _, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: host}); err != nil {
			t.Errorf("a host-network sandbox: %v", err)
		}
	})
}

func TestDialAnswersForPods(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		s := runSandbox(t, r, "web", map[string]string{simcri.AnnotationReadyAfter: "5s", simcri.AnnotationFailAfter: "60s"})
		startContainer(t, r, createRequest(s, "web", "main", 0))
		client := &http.Client{Transport: &http.Transport{DialContext: r.DialContext, DisableKeepAlives: true}}
		get := func() int {
			resp, err := client.Get("http://10.88.0.2:8080/healthz")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			_, _ = io.Copy(io.Discard, resp.Body)
			return resp.StatusCode
		}
		exec := func() int32 {
			resp, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: first(t, r), Cmd: []string{"pg_isready"}})
			if err != nil {
				t.Fatal(err)
			}
			return resp.ExitCode
		}
		var got []string
		for range 3 {
			got = append(got, fmt.Sprint(get(), " ", exec()))
			time.Sleep(30 * time.Second)
		}
		if diff := cmp.Diff([]string{"503 1", "200 0", "503 1"}, got); diff != "" {
			t.Errorf("at 0, 30 and 60 s (-want +got):\n%s", diff)
		}
		if _, err := r.DialContext(t.Context(), "tcp", "10.88.0.9:80"); err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("an address of nobody: %v", err)
		}
	})
}

func first(t *testing.T, r *simcri.Runtime) string {
	t.Helper()
	resp, err := r.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil || len(resp.Containers) == 0 {
		t.Fatal(resp, err)
	}
	return resp.Containers[0].Id
}
