package agenttest

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// ends returns the field paths of the pod's containers that have an event with the reason Killing, in the order of the events.
func (w *World) ends(name string) (paths []string) {
	for _, e := range w.Kube.Events(Namespace, name) {
		if e.Reason == "Killing" {
			paths = append(paths, e.InvolvedObject.FieldPath)
		}
	}
	slices.Sort(paths)
	return paths
}

// A pod has left the API before its containers end. The events of their end still name each container's path in the spec, and sidecars end
// last, even if the agent has never seen the pod object.
func TestEventsOfAPodThatIsGone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		away      bool // no agent runs when the pod is deleted
		forgetful bool // the next agent finds no checkpoint
	}{{name: "seen"}, {name: "missed", away: true}, {name: "missed, nothing kept", away: true, forgetful: true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			Run(t, Config{Forgetful: c.forgetful, Runtime: simcri.Config{Latency: latencies()}}, func(w *World) {
				w.Create(Pod("a", Annotate(simcri.AnnotationStopAfter+".main", "500ms"), func(p *v1.Pod) {
					p.Spec.InitContainers = []v1.Container{
						{Name: "one", Image: "i:1", Command: []string{"sh", "-c", "sleep 1"}},
						{Name: "side", Image: "i:1", RestartPolicy: new(v1.ContainerRestartPolicyAlways)},
					}
				}))
				w.WaitReady("a")
				p := w.Kube.Pod(Namespace, "a").DeepCopy()
				p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i:1", Command: []string{"sh", "-c", "sleep 1000"}}}}
				if _, err := w.Admin.CoreV1().Pods(Namespace).UpdateEphemeralContainers(context.Background(), "a", p, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
				w.Await("the debug session", time.Minute, func() bool { return w.Witness.Running(Namespace, "a", "debug") != "" })
				time.Sleep(10 * time.Second)
				if c.away {
					w.StopAgent()
				}
				w.Delete("a", 0)
				if c.away {
					time.Sleep(10 * time.Second)
					w.StartAgent()
				}
				w.WaitGone("a")
				time.Sleep(10 * time.Second)
				want := []string{"spec.containers{main}", "spec.ephemeralContainers{debug}", "spec.initContainers{side}"}
				if c.forgetful {
					want = []string{"spec.containers{debug}", "spec.containers{main}", "spec.containers{side}"}
				}
				if got := w.ends("a"); !slices.Equal(got, want) {
					t.Errorf("ends of\n %q, want\n %q", got, want)
				}
			})
		})
	}
}
