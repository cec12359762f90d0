package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent/fleet"
)

// All nodes share one watch of each kind of object; with OwnWatches each node has its own. In both cases pods start and are deleted, and
// a pod that is created after all watches have ended and begun again starts too.
func TestSharedWatches(t *testing.T) {
	t.Parallel()
	for _, own := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, fleet.Config{Name: "f", OwnWatches: own, Groups: []fleet.Group{{Count: 10}}})
			b.until(t, "all join", settled)
			_, err := b.admin.CoreV1().ConfigMaps("default").Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				node := b.nodes(t)[i].Name
				_, err := b.admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: "on-" + node},
					Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "c", Image: "i", EnvFrom: []v1.EnvFromSource{
						{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "c"}}},
					}}}},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
			}
			b.until(t, "all pods run", func(s fleet.Status) bool { return s.Pods.Running == 10 })
			for what, shared := range map[string]int{"watch pods": 1, "watch nodes": 1, "watch services": 1, "watch configmaps": 1} {
				want := shared
				if own {
					want = 10
				}
				if n := b.kube.Count(what); n < want || n > want+1 { // the fleet itself watches pods and nodes, too
					t.Errorf("own watches %v: %d times %s, want %d", own, n, what, want)
				}
			}
			now := int64(1)
			if err := b.admin.CoreV1().Pods("default").Delete(t.Context(), "on-f-node-3", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
				t.Fatal(err)
			}
			b.until(t, "one pod is gone", func(s fleet.Status) bool { return s.Pods.Running == 9 })
			time.Sleep(30 * time.Minute) // all watches are renewed
			b.createPod(t, "late", "f-node-3")
			b.until(t, "a late pod runs", func(s fleet.Status) bool { return s.Pods.Running == 10 })
			b.end(t)
		})
	}
}
