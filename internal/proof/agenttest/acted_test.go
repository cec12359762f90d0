package agenttest

import (
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent"
)

// Deps.Acted is called after the actions on a pod, and not while the pod only runs. The program gives memory back when there was no call for a while.
func TestActed(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	Run(t, Config{Deps: func(d *agent.Deps) { d.Acted = func() { calls.Add(1) } }}, func(w *World) {
		w.Await("the node is Ready", 5*time.Second, func() bool { return w.NodeReady().Status == "True" })
		if n := calls.Load(); n != 0 {
			t.Errorf("%d calls without a pod", n)
		}
		w.Create(Pod("web"))
		w.WaitReady("web")
		time.Sleep(time.Minute)
		started := calls.Load()
		if started < 3 { // volumes, sandbox, container
			t.Errorf("%d calls after the start of a pod", started)
		}
		time.Sleep(time.Hour)
		if n := calls.Load(); n != started {
			t.Errorf("%d calls while the pod only ran", n-started)
		}
		if err := w.Admin.CoreV1().Pods("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if n := calls.Load(); n < started+3 { // container, sandbox, volumes
			t.Errorf("%d calls after the end of the pod", n-started)
		}
	})
}
