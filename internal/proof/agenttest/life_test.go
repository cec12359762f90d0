package agenttest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

func waits(times []time.Time) []string {
	var out []string
	for i := 1; i < len(times); i++ {
		out = append(out, times[i].Sub(times[i-1]).Round(time.Second).String())
	}
	return out
}

// A container that crashes is restarted after a back-off. The documentation says: "exponential back-off delay (10s, 20s, 40s, …), that is
// capped at 300 seconds", and "Once a container has executed for 10 minutes without any problems, the kubelet resets the restart backoff
// timer".
func TestCrashLoopBackOff(t *testing.T) {
	t.Parallel()
	behave := func(c simcri.ContainerInfo) (simcri.Behavior, bool) {
		b := simcri.Behavior{Exits: true, ExitCode: 1}
		if c.Attempt == 9 {
			b.RunFor = 11 * time.Minute
		}
		return b, true
	}
	Run(t, Config{Runtime: simcri.Config{Behave: behave}}, func(w *World) {
		uid := w.Create(Pod("a"))
		time.Sleep(2 * time.Minute)
		p := w.Kube.Pod(Namespace, "a")
		if s := p.Status.ContainerStatuses[0]; s.State.Waiting == nil || s.State.Waiting.Reason != "CrashLoopBackOff" || s.RestartCount == 0 {
			t.Errorf("status %+v, want CrashLoopBackOff", s)
		}
		time.Sleep(time.Hour)
		want := []string{"0s", "10s", "20s", "40s", "1m20s", "2m40s", "5m0s", "5m0s", "5m0s", "11m0s", "10s", "20s"}
		got := waits(w.Witness.StartsOf(uid, "main"))
		if d := cmp.Diff(want, got[:min(len(got), len(want))]); d != "" {
			t.Error(d)
		}
		w.Delete("a", -1)
		w.WaitGone("a")
	})
}

func TestPullBackOff(t *testing.T) {
	t.Parallel()
	var pulls []time.Time
	good := false
	pull := func(string) simcri.Pull { // the runtime calls this function with its lock held
		pulls = append(pulls, time.Now())
		if good {
			return simcri.Pull{}
		}
		return simcri.Pull{Err: status.Error(codes.Unknown, "no such host")}
	}
	Run(t, Config{Runtime: simcri.Config{Pull: pull}}, func(w *World) {
		w.Create(Pod("a"))
		time.Sleep(20 * time.Minute)
		p := w.Kube.Pod(Namespace, "a")
		if s := p.Status.ContainerStatuses[0]; s.State.Waiting == nil || s.State.Waiting.Reason != "ImagePullBackOff" {
			t.Errorf("status %+v, want ImagePullBackOff", s)
		}
		recorded := map[string]bool{}
		for _, e := range w.Kube.Events(Namespace, "a") {
			if e.Reason != "MissingClusterDNS" {
				recorded[e.Type+" "+e.Reason+" "+e.Message] = true
			}
		}
		const image = `image "registry.example/app:1"`
		if d := cmp.Diff(map[string]bool{
			"Normal Pulling Pulling " + image: true, "Warning Failed Failed to pull " + image + ": no such host": true, "Warning Failed Error: ErrImagePull": true,
			"Normal BackOff Back-off pulling " + image: true, "Warning Failed Error: ImagePullBackOff": true,
		}, recorded); d != "" {
			t.Errorf("events (-want +got)\n%s", d)
		}
		want := []string{"10s", "20s", "40s", "1m20s", "2m40s", "5m0s"}
		if d := cmp.Diff(want, waits(pulls)[:len(want)]); d != "" {
			t.Error(d)
		}
		good = true
		w.Await("the pod is ready", 6*time.Minute, func() bool { return Ready(w.Kube.Pod(Namespace, "a")) })
	})
}

// httpProbe returns an HTTP probe. The pods of simcri answer it as their annotations say.
func httpProbe(period, threshold int32) *v1.Probe {
	p := &v1.Probe{PeriodSeconds: period, FailureThreshold: threshold}
	p.HTTPGet = &v1.HTTPGetAction{}
	p.HTTPGet.Port.IntVal = 80
	return p
}

func TestLivenessKills(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		uid := w.Create(Pod("a", Annotate(simcri.AnnotationFailAfter, "60s"), func(p *v1.Pod) {
			p.Spec.Containers[0].LivenessProbe = httpProbe(10, 3)
			p.Spec.Containers[0].ReadinessProbe = httpProbe(5, 1)
		}))
		w.WaitReady("a")
		w.Await("restarted", 3*time.Minute, func() bool { return len(w.Witness.StartsOf(uid, "main")) > 1 })
		starts := w.Witness.StartsOf(uid, "main")
		if d := starts[1].Sub(starts[0]); d < 80*time.Second || d > 95*time.Second {
			t.Errorf("restarted after %s, want 60 s and three failures in 10 s each", d)
		}
		w.Await("counted", time.Minute, func() bool {
			return w.Kube.Pod(Namespace, "a").Status.ContainerStatuses[0].RestartCount == 1
		})
	})
}

func TestReadinessFollowsTheProbe(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("a", Annotate(simcri.AnnotationReadyAfter, "30s"), Annotate(simcri.AnnotationFailAfter, "5m"), func(p *v1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = httpProbe(5, 2)
		}))
		w.WaitPhase("a", v1.PodRunning)
		time.Sleep(25 * time.Second)
		if Ready(w.Kube.Pod(Namespace, "a")) {
			t.Error("ready before its probe succeeds")
		}
		w.WaitReady("a")
		time.Sleep(5 * time.Minute)
		w.Await("not ready", 20*time.Second, func() bool { return !Ready(w.Kube.Pod(Namespace, "a")) })
		if n := w.Kube.Pod(Namespace, "a").Status.ContainerStatuses[0].RestartCount; n != 0 {
			t.Errorf("%d restarts of a pod that is not ready, want none", n)
		}
	})
}

func TestRefusedPod(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		w.Create(Pod("a", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1000")}
		}))
		w.WaitPhase("a", v1.PodFailed)
		if r := w.Kube.Pod(Namespace, "a").Status.Reason; r != "OutOfcpu" {
			t.Errorf("reason %q, want OutOfcpu", r)
		}
		w.Create(Pod("b"))
		w.WaitReady("b")
		if w.Witness.Starts() != 1 {
			t.Errorf("%d containers started, want that of b", w.Witness.Starts())
		}
		w.Delete("a", -1)
		w.WaitGone("a")
	})
}

func TestPodThatEnds(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Create(Pod("ok", Annotate(simcri.AnnotationRunFor, "5s"), func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }))
		w.Create(Pod("bad", Annotate(simcri.AnnotationExitCode, "3"), func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }))
		w.Create(Pod("late", func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(20)) }))
		w.Create(Pod("again", Annotate(simcri.AnnotationExitCode, "3"), Annotate(simcri.AnnotationFailAttempts, "2"), func(p *v1.Pod) {
			p.Spec.RestartPolicy = v1.RestartPolicyOnFailure
			p.Spec.InitContainers = []v1.Container{{Name: "first", Image: "i:1", Command: []string{"sh", "-c", "sleep 2"}}}
			p.Annotations[simcri.AnnotationExitCode+".first"] = "0"
		}))
		w.WaitPhase("ok", v1.PodSucceeded)
		w.WaitPhase("bad", v1.PodFailed)
		w.WaitPhase("late", v1.PodFailed)
		w.WaitReady("again")
		if s := w.Kube.Pod(Namespace, "bad").Status.ContainerStatuses[0].State.Terminated; s == nil || s.ExitCode != 3 {
			t.Errorf("bad ended as %+v, want 3", s)
		}
		if r := w.Kube.Pod(Namespace, "late").Status.Reason; r != "DeadlineExceeded" {
			t.Errorf("late ended for %q, want DeadlineExceeded", r)
		}
		for _, n := range []string{"ok", "bad", "late", "again"} {
			w.Delete(n, 2)
		}
		w.WaitGone("ok", "bad", "late", "again")
	})
}

func TestForcedDeletion(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Create(Pod("a", Annotate(simcri.AnnotationStopAfter, "never")))
		w.WaitReady("a")
		began := time.Now()
		w.Delete("a", 0)
		if w.Kube.Pod(Namespace, "a") != nil {
			t.Error("a forced deletion leaves the pod in the API")
		}
		w.WaitGone("a")
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("gone after %s, want the small grace period of 2 s", took)
		}
	})
}

// A shorter grace period, set while the pod is ending, counts from the beginning of the deletion.
func TestGraceGetsShorter(t *testing.T) {
	t.Parallel()
	Run(t, Config{}, func(w *World) {
		uid := w.Create(Pod("a", Annotate(simcri.AnnotationStopAfter, "never"), func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(3600)) }))
		w.WaitReady("a")
		began := time.Now()
		w.Delete("a", -1)
		time.Sleep(20 * time.Second)
		w.Delete("a", 30)
		w.WaitGone("a")
		if took := time.Since(began); took < 29*time.Second || took > 40*time.Second {
			t.Errorf("gone after %s, want about 30 s", took)
		}
		if code, _ := w.Witness.LastExit(uid, "main"); code != 137 {
			t.Errorf("exit code %d, want 137", code)
		}
	})
}

// A container that failed its liveness probe ignores its stop signal, and its pod has a grace period of an hour. A deletion with a shorter grace
// period, or by force, does not wait for that hour.
func TestDeletionDuringALongStop(t *testing.T) {
	t.Parallel()
	for grace, most := range map[int64]time.Duration{20: 30 * time.Second, 0: 5 * time.Second} {
		Run(t, Config{}, func(w *World) {
			w.Create(Pod("a", Annotate(simcri.AnnotationStopAfter, "never"), Annotate(simcri.AnnotationFailAfter, "60s"), func(p *v1.Pod) {
				p.Spec.TerminationGracePeriodSeconds, p.Spec.Containers[0].LivenessProbe = new(int64(3600)), httpProbe(10, 3)
			}))
			w.WaitReady("a")
			time.Sleep(3 * time.Minute) // the probe has failed
			began := time.Now()
			w.Delete("a", grace)
			w.WaitGone("a")
			if took := time.Since(began); took > most {
				t.Errorf("gone after %s, want the grace period of %d s", took, grace)
			}
		})
	}
}

// Of two pods with one name, the second one starts only when nothing of the first one runs.
func TestSameName(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		old := Pod("a", Annotate(simcri.AnnotationStopAfter, "20s"), func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(60)) })
		w.Create(old.DeepCopy())
		w.WaitReady("a")
		began := time.Now()
		// The user does not wait for the node, as with kubectl delete --force.
		w.Delete("a", 0)
		uid := w.Create(old.DeepCopy())
		w.WaitReady("a")
		first := w.Witness.StartsOf(uid, "main")[0]
		if first.Sub(began) < 2*time.Second {
			t.Errorf("the second began %s after the deletion of the first", first.Sub(began))
		}
		if n := len(w.Witness.Containers()); n > 2 {
			t.Errorf("%d containers\n%s", n, w.Witness)
		}
	})
}

// When many pods start at once, they become Ready one after another: half of them are Ready long before the last one.
func TestHundredPodsAtOnce(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		w.Await("the node is Ready", 5*time.Second, func() bool { return w.NodeReady().Status == v1.ConditionTrue })
		began := time.Now()
		const n = 100
		for i := range n {
			w.Create(Pod(fmt.Sprintf("p%02d", i)))
		}
		var took []time.Duration
		ready := map[string]bool{}
		w.Await("all are ready", 5*time.Minute, func() bool {
			for i := range n {
				name := fmt.Sprintf("p%02d", i)
				if !ready[name] && Ready(w.Kube.Pod(Namespace, name)) {
					ready[name] = true
					took = append(took, time.Since(began))
				}
			}
			return len(ready) == n
		})
		p50, p99 := took[n/2], took[n-2]
		t.Logf("100 pods: p50 %s, p99 %s", p50, p99)
		if p50 > p99*6/10 {
			t.Errorf("p50 %s is more than 0.6 of p99 %s: pods start together instead of one after another", p50, p99)
		}
		if p99 > 8*time.Second {
			t.Errorf("p99 %s", p99)
		}
		if patches := w.Kube.Count("patch pods/status"); patches > 2*n {
			t.Errorf("%d status patches for %d pods", patches, n)
		}
	})
}

// A main container that cannot start and is not tried again counts as ended, so the sidecar ends, too. A later deletion does not lengthen
// the grace period of the sidecar.
func TestSidecarOfWhatCannotStart(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		always := v1.ContainerRestartPolicyAlways
		uid := w.Create(Pod("a", Annotate(simcri.AnnotationStartError+".main", "exec format error"), Annotate(simcri.AnnotationStopAfter, "never"), func(p *v1.Pod) {
			p.Spec.RestartPolicy, p.Spec.TerminationGracePeriodSeconds = v1.RestartPolicyNever, new(int64(30))
			p.Spec.InitContainers = []v1.Container{{Name: "side", Image: "i:1", RestartPolicy: &always}}
		}))
		w.Await("the sidecar runs", 5*time.Second, func() bool { return len(w.Witness.StartsOf(uid, "side")) == 1 })
		began := time.Now()
		time.Sleep(20 * time.Second)
		w.Delete("a", -1)
		w.WaitGone("a")
		if took := time.Since(began); took < 30*time.Second || took > 35*time.Second {
			t.Errorf("gone after %s, want about 30 s", took)
		}
		if code, _ := w.Witness.LastExit(uid, "side"); code != 137 {
			t.Errorf("exit code %d of the sidecar, want 137", code)
		}
	})
}

func TestInitAndSidecarOrder(t *testing.T) {
	t.Parallel()
	Run(t, Config{Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
		always := v1.ContainerRestartPolicyAlways
		uid := w.Create(Pod("a", Annotate(simcri.AnnotationStopAfter+".main", "5s"), func(p *v1.Pod) {
			p.Spec.InitContainers = []v1.Container{
				{Name: "one", Image: "i:1", Command: []string{"sh", "-c", "sleep 3"}},
				{Name: "side", Image: "i:1", RestartPolicy: &always},
				{Name: "two", Image: "i:1", Command: []string{"sh", "-c", "sleep 3"}},
			}
		}))
		w.WaitReady("a")
		var order []string
		for _, c := range []string{"one", "side", "two", "main"} {
			order = append(order, w.Witness.StartsOf(uid, c)[0].Format("15:04:05.000")+" "+c)
		}
		for i := 1; i < len(order); i++ {
			if order[i] <= order[i-1] {
				t.Errorf("started in the order %s", strings.Join(order, ", "))
			}
		}
		w.Delete("a", -1)
		time.Sleep(3 * time.Second)
		if w.Witness.Running(Namespace, "a", "side") == "" {
			t.Error("the sidecar ended before the main container")
		}
		w.WaitGone("a")
	})
}
