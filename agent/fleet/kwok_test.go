package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
)

// With a Stage of KWOK that leads to Running after a delay, a pod is Pending until then, and Running and Ready after it, also without probes.
func TestDelayOfAStage(t *testing.T) {
	t.Parallel()
	rules, err := simulated.ParseRules(simulated.RulesFile{Name: "stage.yaml", Data: []byte(`apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
spec:
  resourceRef: {kind: Pod}
  delay: {durationMilliseconds: 20000}
  next: {statusTemplate: "phase: Running"}
`)})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Rules: rules, Groups: []fleet.Group{{Count: 1}}})
		b.until(t, "it joins", settled)
		b.createPod(t, "p", "f-node-1")
		time.Sleep(19 * time.Second)
		if s := b.fleet.Status(); s.Pods.Pending != 1 || s.Pods.Ready != 0 {
			t.Errorf("before the delay: %+v", s.Pods)
		}
		time.Sleep(5 * time.Second)
		if s := b.fleet.Status(); s.Pods.Running != 1 || s.Pods.Ready != 1 {
			t.Errorf("after the delay: %+v", s.Pods)
		}
		b.end(t)
	})
}
