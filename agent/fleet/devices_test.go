package fleet_test

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
)

// gpuPod creates a pod that requests devices.
func (b *bench) gpuPod(t *testing.T, name, node, count string) {
	t.Helper()
	devices := v1.ResourceList{"example.com/gpu": resource.MustParse(count)}
	_, err := b.admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{
			Name: "c", Image: "i", Resources: v1.ResourceRequirements{Requests: devices, Limits: devices},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bench) pod(t *testing.T, name string) *v1.Pod {
	t.Helper()
	p, err := b.admin.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Devices of a group are in the capacity of its nodes, and admission counts them: a pod for which too few are free is refused. Devices that
// become unhealthy stay in the capacity and leave what can be allocated; a pod that has them runs on. The next agent of a node, and the next
// process, show the same devices.
func TestDevicesOfAFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := fleet.Config{Name: "f", Keep: true, Groups: []fleet.Group{{Count: 2, Devices: []simulated.Devices{{Resource: "example.com/gpu", Count: 8}}}}}
		b := start(t, cfg)
		b.until(t, "both join", settled)
		want := func(when, capacity, allocatable string) {
			t.Helper()
			st := b.node(t, "f-node-1").Status
			c, a := st.Capacity["example.com/gpu"], st.Allocatable["example.com/gpu"]
			if c.String() != capacity || a.String() != allocatable {
				t.Errorf("%s: capacity %s, allocatable %s, want %s and %s", when, c.String(), a.String(), capacity, allocatable)
			}
		}
		want("at first", "8", "8")
		b.gpuPod(t, "trains", "f-node-1", "6")
		b.until(t, "the pod runs", running(1))
		b.gpuPod(t, "refused", "f-node-1", "3")
		b.until(t, "a pod is refused", func(s fleet.Status) bool { return s.Pods.Failed == 1 })
		if p := b.pod(t, "refused"); p.Status.Reason != "OutOfexample.com/gpu" {
			t.Errorf("the pod that was refused: %q, %q", p.Status.Reason, p.Status.Message)
		}
		broken := fleet.Fault{Kind: fleet.FaultDevices, Devices: simulated.DeviceFault{Resource: "example.com/gpu", Unhealthy: 3}, For: 5 * time.Minute}
		if _, err := b.fleet.Inject(fleet.Selector{Names: []string{"f-node-1"}}, broken); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		want("with unhealthy devices", "8", "5")
		if s := b.fleet.Status(); s.Pods.Running != 1 {
			t.Errorf("with unhealthy devices: %+v", s.Pods)
		}
		time.Sleep(6 * time.Minute)
		want("after the fault", "8", "8")
		broken.Devices.Resource = "example.com/other"
		if _, err := b.fleet.Inject(fleet.Selector{All: true}, broken); err == nil {
			t.Error("a fault of devices that no node has is accepted")
		}
		b.end(t)
		time.Sleep(time.Minute)
		b.run(t, cfg)
		b.until(t, "both join again", settled)
		time.Sleep(30 * time.Second)
		want("in the next process", "8", "8")
	})
}
