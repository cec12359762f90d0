package agenttest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// limited is a World whose agent has the default limits of requests to the API server.
func limited() Config {
	return Config{
		Kube: simkube.Config{Latency: 5 * time.Millisecond},
		Deps: func(d *agent.Deps) {
			d.Heartbeats = rest.CopyConfig(d.Client) // without a limit, as those of a real node
			d.Client.QPS, d.Client.Burst = 50, 100   // the defaults of kubeAPIQPS and kubeAPIBurst
		},
	}
}

// tokens adds a volume with n service account tokens to a pod, each for another audience.
func tokens(n int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		src := &v1.ProjectedVolumeSource{}
		for i := range n {
			name := fmt.Sprintf("audience-%d", i)
			src.Sources = append(src.Sources, v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{
				Audience: name, ExpirationSeconds: new(int64(600)), Path: name}})
		}
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "tokens", VolumeSource: v1.VolumeSource{Projected: src}})
		c := &p.Spec.Containers[0]
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "tokens", MountPath: "/tokens"})
	}
}

// optionalConfigMaps makes the environment of a pod refer to n ConfigMaps that need not exist.
func optionalConfigMaps(n int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for i := range n {
			p.Spec.Containers[0].EnvFrom = append(p.Spec.Containers[0].EnvFrom, v1.EnvFromSource{ConfigMapRef: &v1.ConfigMapEnvSource{
				LocalObjectReference: v1.LocalObjectReference{Name: fmt.Sprintf("config-%d", i)}, Optional: new(true)}})
		}
	}
}

// once makes a pod end when its container has ended.
func once(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }

// statusWithin ends the container of a running pod, and fails the test if the API does not show that in time.
func (w *World) statusWithin(name string, d time.Duration) {
	w.Helper()
	w.Kill(name, "main", 1, "Error")
	w.Await("the status of "+name+" is written", d, func() bool { return w.Kube.Pod(Namespace, name).Status.Phase == v1.PodFailed })
}

// A pod with thousands of references does not start: its status and an event say how many it has, how many it may have and what to do. The node
// sends no request for it, so the statuses of other pods are written as fast as ever.
func TestAPodWithThousandsOfReferencesDelaysNoOther(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		greedy func(*v1.Pod)
		says   string
	}{
		"tokens":     {tokens(5000), "5000 sources of service account tokens, certificates and trust bundles, and a pod may have at most 128"},
		"ConfigMaps": {optionalConfigMaps(5000), "refers to 5000 ConfigMaps, Secrets and PersistentVolumeClaims, and a pod may refer to at most 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, limited(), func(w *World) {
				w.Create(Pod("web", once))
				w.WaitReady("web")
				before := w.Kube.Counts()
				w.Create(Pod("greedy", tt.greedy))
				time.Sleep(time.Second) // the requests would wait for their turns now
				w.statusWithin("web", time.Second)
				w.Await("an event about the references", 10*time.Second, func() bool {
					return slices.ContainsFunc(w.Kube.Events(Namespace, "greedy"), func(e *v1.Event) bool {
						return e.Reason == "FailedMount" && strings.Contains(e.Message, tt.says)
					})
				})
				w.Await("a status about the references", 10*time.Second, func() bool {
					all := w.Kube.Pod(Namespace, "greedy").Status.ContainerStatuses
					return len(all) == 1 && all[0].State.Waiting != nil && all[0].State.Waiting.Reason == "CreateContainerConfigError" &&
						strings.Contains(all[0].State.Waiting.Message, tt.says)
				})
				time.Sleep(10 * time.Minute) // the node tries again meanwhile
				after := w.Kube.Counts()
				for _, what := range []string{"create serviceaccounts/token", "list configmaps", "watch configmaps", "get configmaps"} {
					if n := after[what] - before[what]; n != 0 {
						t.Errorf("%d requests %q for a pod that is refused", n, what)
					}
				}
				w.Delete("greedy", -1)
				w.WaitGone("greedy")
			})
		})
	}
}

// Sixty pods with as many tokens as a pod may have start at once. Their requests take minutes at the limit of the node's requests. The status of
// another pod does not wait for them, and in the end every pod has its tokens.
func TestManyTokensDelayNoStatus(t *testing.T) {
	t.Parallel()
	const pods, each = 60, 128
	cfg := limited()
	cfg.Agent = func(c *agent.Config) { c.StartSlots = 2 * pods }
	Run(t, cfg, func(w *World) {
		w.Create(Pod("web", once))
		w.WaitReady("web")
		var names []string
		for i := range pods {
			names = append(names, fmt.Sprintf("greedy-%d", i))
			w.Create(Pod(names[i], tokens(each)))
		}
		time.Sleep(5 * time.Second)
		if n := w.Kube.Count("create serviceaccounts/token"); n < 200 || n > pods*each/2 {
			t.Fatalf("%d tokens were requested, so the test does not show what it should", n)
		}
		w.statusWithin("web", time.Second)
		w.Await("all pods have their tokens", 10*time.Minute, func() bool {
			return !slices.ContainsFunc(names, func(name string) bool { return !Ready(w.Kube.Pod(Namespace, name)) })
		})
		if n := w.Kube.Count("create serviceaccounts/token"); n != pods*each {
			t.Errorf("%d tokens were requested, want %d", n, pods*each)
		}
	})
}
