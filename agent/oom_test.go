package agent

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/oom"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// A report about a process that the kernel killed waits until an inspection shows the process's container, at most for a limited time.
func TestAKillWaitsForTheNameOfItsContainer(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ known, ends, want time.Duration }{
		"at once":                    {0, time.Hour, 0},
		"with the next inspection":   {time.Second, time.Hour, time.Second},
		"never":                      {time.Hour, time.Hour, nameWithin},
		"not before the agent stops": {time.Hour, 2 * time.Second, 2 * time.Second},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.ends)
				defer cancel()
				began := time.Now()
				got := awaitName(ctx, func() string {
					if time.Since(began) < c.known {
						return ""
					}
					return "main"
				})
				if found := c.known <= c.want; (got == "main") != found || time.Since(began) != c.want {
					t.Errorf("%q after %s, want after %s", got, time.Since(began), c.want)
				}
			})
		})
	}
}

// A process that the kernel killed counts in container_oom_events_total of its container. A kill whose container is not known counts in none.
func TestAKillIsInTheMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := simcri.New(simcri.Config{})
		defer r.Close()
		deps := Deps{Log: slog.New(slog.DiscardHandler), Machine: SimulatedMachine(Shape{})}
		deps.Runtime, deps.Images = r.Clients()
		a, err := New(Config{NodeName: "n", Kubelet: DefaultConfiguration()}, deps)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.build(); err != nil {
			t.Fatal(err)
		}
		image := &runtimeapi.ImageSpec{Image: "docker.io/library/web:1"}
		if _, err := r.PullImage(t.Context(), &runtimeapi.PullImageRequest{Image: image}); err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{pod.LabelPodUID: "u", pod.LabelPodName: "web", pod.LabelPodNamespace: "ns", pod.LabelContainerName: "main"}
		sandbox := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: "u"}, Labels: labels}
		ran, err := r.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: sandbox})
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: ran.PodSandboxId, SandboxConfig: sandbox, Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Labels: labels, Image: image,
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.pleg.Run(ctx) }()
		a.pleg.Inspect("u")
		time.Sleep(time.Second)
		a.killed(oom.Kill{PID: 1, Name: "tail", Group: "/kubepods/podu/" + c.ContainerId}, "u", c.ContainerId, "main")
		a.killed(oom.Kill{PID: 2, Name: "tail"}, "", "", "")
		answer := httptest.NewRecorder()
		a.stats.CAdvisor().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics/cadvisor", nil))
		page := answer.Body.String()
		want := `container_oom_events_total{container="main",id="/kubepods/podu/` + c.ContainerId + `",image="docker.io/library/web:1",name="` + c.ContainerId + `",namespace="ns",pod="web"} 1 `
		if !strings.Contains(page, want) || strings.Count(page, "\ncontainer_oom_events_total{") != 1 {
			t.Errorf("want one series %s in\n%s", want, page)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
