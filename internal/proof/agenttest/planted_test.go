package agenttest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// plantedSeeds is the number of seeds within which the simulation has to find a planted bug.
const plantedSeeds = 40

// TestPlanted plants a bug for each rule that the Witness (the observer of a test run) checks. It fails if the simulation does not find the
// bug, because a Witness that finds no bugs would prove nothing.
func TestPlanted(t *testing.T) {
	t.Parallel()
	bugs := []struct {
		rule Rule
		name string
		bug  func() *Bug
	}{
		{RuleOneInstance, "a container is started twice", startsTwice},
		{RuleEnding, "a container is made anew in a pod that is being deleted", startsInEndingPod},
		{RuleInits, "init containers are taken for done when they begin", initsLookDone},
		{RuleAttempts, "attempts are counted from the beginning again", reusesAttempts},
		{RuleNames, "what was asked to stop is taken for gone", stopsNothing},
		{RuleTerminal, "a failed pod is reported as running again", revivesPods},
		{RuleGrace, "a second is given in place of the grace period", shortensGrace},
		{RuleTerm, "containers are killed at once", killsAtOnce},
		{RuleStopped, "pods are deleted in the API when their end begins", deletesEarly},
		{RuleConverges, "statuses are taken for sent", dropsStatuses},
		{RuleNothingStays, "checkpoints are kept for ever", func() *Bug { return &Bug{KeepsCheckpoints: true} }},
		{RuleNothingStays, "sandboxes are taken for removed", removesNothing},
		{RuleReadiness, "an agent reports pods as not ready when it starts", flapsAtStart},
		{RuleReadiness, "a probe forgets its initial readiness", forgetsReadiness},
		{RuleEvents, "events are written twice", writesTwice},
		{RuleUncalled, "a list that is cut short is taken for whole", listsTooFew},
		{RuleRuns, "a container that has ended is not made again", makesNothingAgain},
		{RuleStatic, "the deletion of a mirror is taken for the pod's", endsWithMirror},
		{RuleStatic, "a mirror is taken for made", dropsMirrors},
		{RuleNames, "an edited manifest starts beside the pod of the old", startsBesideOld},
		{RuleResize, "new resources are taken for given", resizesNothing},
		{RuleEnding, "a deletion is ignored for 20 s", ignoresDeletions},
		{RuleConverges, "a running pod is reported as pending", staysPending},
		{RuleConverges, "one restart too many is reported", countsOneMore},
		{RuleConverges, "another exit code is reported", saysAnotherExitCode},
		{RuleTerm, "a container is killed before the time that TERM gave it", killsBeforeItsTime},
		{RuleGrace, "a second is given to a container whose probe failed", hurriesRestarts},
		{RuleUncalled, "a container whose probe never fails is restarted", restartsTheHealthy},
		{RuleReadiness, "pods with init containers are reported as not ready", flapsBesideInits},
	}
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= plantedSeeds; seed++ {
				cfg := simConfig(seed)
				statics := simStatics(t, seed, &cfg)
				cfg.Plant = b.bug()
				for _, v := range runPlanted(t, cfg, func(w *World) { newSim(w, seed, statics).run() }) {
					if v.Rule == b.rule {
						t.Logf("seed %d: %s", seed, v)
						return
					}
				}
			}
			t.Errorf("in %d seeds the bug was not found: %s", plantedSeeds, b.rule)
		})
	}
}

// requests stores the requests that created containers, for bugs that create another container like an earlier one.
type requests struct {
	mu   sync.Mutex
	made map[string]*runtimeapi.CreateContainerRequest // request of each container, by its ID
}

// see is called after each call to the runtime. It stores the request if the call has created a container.
func (r *requests) see(in, out any, err error) {
	if c, ok := in.(*runtimeapi.CreateContainerRequest); ok && err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.made == nil {
			r.made = map[string]*runtimeapi.CreateContainerRequest{}
		}
		r.made[out.(*runtimeapi.CreateContainerResponse).ContainerId] = c
	}
}

// again creates and starts another container like the one with this ID, with the next attempt.
func (r *requests) again(ctx context.Context, w *World, id string) {
	r.mu.Lock()
	c := r.made[id]
	r.mu.Unlock()
	if c == nil {
		return
	}
	c = proto.CloneOf(c)
	c.Config.Metadata.Attempt++
	defer asks(w, c)()
	if out, err := w.Runtime.CreateContainer(ctx, c); err == nil {
		_, _ = w.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: out.ContainerId})
	}
}

// asks makes the Witness treat a call that a planted bug makes as a call of the agent. The caller calls done after that call.
func asks(w *World, in any) (done func()) {
	w.Witness.mu.Lock()
	t := w.Witness.lastAgent
	w.Witness.mu.Unlock()
	return w.Witness.asked(t, in)
}

func startsTwice() *Bug {
	var made requests
	return &Bug{Runtime: func(ctx context.Context, w *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		out, err := do(ctx, in)
		made.see(in, out, err)
		if r, ok := in.(*runtimeapi.StartContainerRequest); ok && err == nil {
			made.again(ctx, w, r.ContainerId)
		}
		return out, err
	}}
}

// startsInEndingPod is a bug: it restarts a container that has ended because its pod was deleted.
func startsInEndingPod() *Bug {
	var made requests
	return &Bug{Runtime: func(ctx context.Context, w *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		out, err := do(ctx, in)
		made.see(in, out, err)
		if r, ok := in.(*runtimeapi.StopContainerRequest); ok && err == nil {
			made.again(ctx, w, r.ContainerId)
		}
		return out, err
	}}
}

func initsLookDone() *Bug {
	done := func(name string) bool { return name == "init" || name == "last" }
	change := func(c *runtimeapi.ContainerStatus) {
		if done(c.Labels[pod.LabelContainerName]) && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			c.State, c.ExitCode, c.FinishedAt, c.Reason = runtimeapi.ContainerState_CONTAINER_EXITED, 0, time.Now().UnixNano(), "Completed"
		}
	}
	return &Bug{Runtime: func(ctx context.Context, _ *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		out, err := do(ctx, in)
		if err != nil {
			return out, err
		}
		switch r := out.(type) {
		case *runtimeapi.ContainerStatusResponse:
			r = proto.CloneOf(r)
			change(r.Status)
			return r, nil
		case *runtimeapi.PodSandboxStatusResponse:
			r = proto.CloneOf(r)
			for _, c := range r.ContainersStatuses {
				change(c)
			}
			return r, nil
		case *runtimeapi.ListContainersResponse:
			r = proto.CloneOf(r)
			for _, c := range r.Containers {
				if done(c.Labels[pod.LabelContainerName]) {
					c.State = runtimeapi.ContainerState_CONTAINER_EXITED
				}
			}
			return r, nil
		}
		return out, err
	}}
}

func reusesAttempts() *Bug {
	return &Bug{Runtime: func(ctx context.Context, _ *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		if r, ok := in.(*runtimeapi.CreateContainerRequest); ok && r.Config.Metadata.Attempt >= 3 {
			r = proto.CloneOf(r)
			r.Config.Metadata.Attempt -= 3
			in = r
		}
		return do(ctx, in)
	}}
}

// hidden has the IDs of sandboxes that the runtime's answers do not show to the agent, together with their containers.
type hidden struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (h *hidden) hide(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ids == nil {
		h.ids = map[string]bool{}
	}
	h.ids[id] = true
}

func (h *hidden) has(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ids[id]
}

// answer returns an answer of the runtime without the hidden sandboxes and their containers.
func (h *hidden) answer(in, out any, err error) (any, error) {
	if r, ok := in.(*runtimeapi.PodSandboxStatusRequest); ok && h.has(r.PodSandboxId) {
		return (*runtimeapi.PodSandboxStatusResponse)(nil), status.Error(codes.NotFound, "hidden")
	}
	if err != nil {
		return out, err
	}
	switch r := out.(type) {
	case *runtimeapi.ListPodSandboxResponse:
		some := &runtimeapi.ListPodSandboxResponse{}
		for _, s := range r.Items {
			if !h.has(s.Id) {
				some.Items = append(some.Items, s)
			}
		}
		return some, nil
	case *runtimeapi.ListContainersResponse:
		some := &runtimeapi.ListContainersResponse{}
		for _, c := range r.Containers {
			if !h.has(c.PodSandboxId) {
				some.Containers = append(some.Containers, c)
			}
		}
		return some, nil
	}
	return out, nil
}

func stopsNothing() *Bug {
	var gone hidden
	return &Bug{Runtime: func(ctx context.Context, w *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		if r, ok := in.(*runtimeapi.StopContainerRequest); ok {
			for _, c := range w.Witness.Containers() {
				if c.ID == r.ContainerId && strings.HasPrefix(c.Pod, "same") {
					gone.hide(c.Sandbox)
					return &runtimeapi.StopContainerResponse{}, nil
				}
			}
		}
		out, err := do(ctx, in)
		return gone.answer(in, out, err)
	}}
}

func removesNothing() *Bug {
	var gone hidden
	return &Bug{Runtime: func(ctx context.Context, _ *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		if r, ok := in.(*runtimeapi.RemovePodSandboxRequest); ok {
			gone.hide(r.PodSandboxId)
			return &runtimeapi.RemovePodSandboxResponse{}, nil
		}
		out, err := do(ctx, in)
		return gone.answer(in, out, err)
	}}
}

func withTimeout(change func(int64) int64) *Bug {
	return &Bug{Runtime: func(ctx context.Context, _ *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		if r, ok := in.(*runtimeapi.StopContainerRequest); ok {
			in = &runtimeapi.StopContainerRequest{ContainerId: r.ContainerId, Timeout: change(r.Timeout)}
		}
		return do(ctx, in)
	}}
}

func shortensGrace() *Bug { return withTimeout(func(int64) int64 { return 1 }) }

func killsAtOnce() *Bug { return withTimeout(func(int64) int64 { return 0 }) }

// podOf returns the pod whose status a request changes; nil for other requests.
func podOf(w *World, r *http.Request) *v1.Pod {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/")
	if r.Method != http.MethodPatch || len(parts) != 4 || parts[1] != "pods" || parts[3] != "status" {
		return nil
	}
	return w.Kube.Pod(parts[0], parts[2])
}

func patchStatus(w *World, p *v1.Pod, patch string) {
	_, _ = w.Admin.CoreV1().Pods(p.Namespace).Patch(context.Background(), p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
}

func revivesPods() *Bug {
	return &Bug{API: func(w *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := do(r)
		if p := podOf(w, r); p != nil && (p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded) {
			patchStatus(w, p, `{"status":{"phase":"Running"}}`)
		}
		return resp, err
	}}
}

func deletesEarly() *Bug {
	return &Bug{API: func(w *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		if p := podOf(w, r); p != nil && p.DeletionTimestamp != nil {
			_ = w.Admin.CoreV1().Pods(p.Namespace).Delete(context.Background(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		}
		return do(r)
	}}
}

func dropsStatuses() *Bug {
	n := 0
	var mu sync.Mutex
	return &Bug{API: func(w *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		if podOf(w, r) == nil {
			return do(r)
		}
		mu.Lock()
		n++
		drop := n%2 == 0
		mu.Unlock()
		if !drop {
			return do(r)
		}
		get := r.Clone(r.Context())
		get.Method, get.Body, get.ContentLength = http.MethodGet, nil, 0
		get.URL.Path, get.URL.RawQuery = strings.TrimSuffix(r.URL.Path, "/status"), ""
		return do(get)
	}}
}

func flapsAtStart() *Bug {
	return &Bug{API: func(w *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		if r.URL.Path == "/api/v1/pods" {
			for _, p := range w.Kube.Pods() {
				if Ready(p) {
					patchStatus(w, p, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
				}
			}
		}
		return do(r)
	}}
}

func writesTwice() *Bug {
	return &Bug{API: func(w *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := do(r)
		if err != nil || r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/events") {
			return resp, err
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		var e v1.Event
		if json.Unmarshal(body, &e) == nil && e.Name != "" {
			e.ObjectMeta = metav1.ObjectMeta{Namespace: e.Namespace, Name: "again-" + e.Name}
			_, _ = w.Admin.CoreV1().Events(e.Namespace).Create(context.Background(), &e, metav1.CreateOptions{})
		}
		return resp, nil
	}}
}
