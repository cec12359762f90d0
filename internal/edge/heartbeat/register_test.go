package heartbeat

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Registration backs off from 200 ms to 7 s, and logs what to do if the name belongs to another machine.
func TestRegistrationBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.fail = failing("nodes", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New(`node "n2" is not allowed to modify node "n1"`)))
		b.run()
		time.Sleep(30 * time.Second)
		b.want(`0s create nodes
			200ms create nodes
			600ms create nodes
			1.4s create nodes
			3s create nodes
			6.2s create nodes
			12.6s create nodes
			19.6s create nodes
			26.6s create nodes`, "create nodes")
		if log := b.logged.String(); strings.Count(log, "system:node:n1") != 1 {
			t.Errorf("the log does not say once whose name it is:\n%s", log)
		}
		b.set(func() { b.fail = nil })
		time.Sleep(10 * time.Second)
		if got := ready(b); got != "True" {
			t.Errorf("Ready is %s after the obstacle went", got)
		}
		b.stop()
	})
}

func existing() *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", Labels: map[string]string{"theirs": "1"}},
		Spec:       v1.NodeSpec{ProviderID: "x://1", PodCIDRs: []string{"10.1.0.0/24"}},
		Status:     v1.NodeStatus{NodeInfo: v1.NodeSystemInfo{MachineID: "m0", BootID: "b0"}, Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.1"}, {Type: v1.NodeInternalIP, Address: "192.0.2.2"}}},
	}
}

func TestAdoption(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, existing())
		var cidrs [][]string
		fails := 1
		b.cfg.PodCIDR = func(_ context.Context, c []string) error {
			if fails--; fails >= 0 {
				return errors.New("runtime is busy")
			}
			cidrs = append(cidrs, c)
			return nil
		}
		b.run()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		n, err := b.api.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{
			"theirs": n.Labels["theirs"], "os": n.Labels[v1.LabelOSStable], "provider": n.Spec.ProviderID, "ready": ready(b),
			"addresses": n.Status.Addresses, "cidrs": cidrs, "warned": strings.Contains(b.logged.String(), "another machine"),
		}
		want := map[string]any{
			"theirs": "1", "os": "linux", "provider": "x://1", "ready": "True", "cidrs": [][]string{{"10.1.0.0/24"}}, "warned": true,
			"addresses": []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "127.0.0.9"}, {Type: v1.NodeHostName, Address: "127.0.0.9"}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if events := b.take("event Rebooted"); strings.Count(events, "\n") != 0 || events == "" {
			t.Errorf("Rebooted should be recorded once: %q", events)
		}
		b.stop()
	})
}

// If the agent may not create the Node, somebody else may have created it. The agent then adopts it.
func TestForbiddenCreateAdoptsWhatIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, existing())
		b.fail = failing("create nodes", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "n1", errors.New("no")))
		b.run()
		b.want("0s create nodes\n0s get nodes\n0s patch nodes/status\n0s patch nodes/status", "nodes")
		if got := ready(b); got != "True" {
			t.Errorf("Ready is %s", got)
		}
		b.stop()
	})
}

func TestWithoutRegisterNothingIsCreated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.cfg.Register = false
		b.run()
		time.Sleep(45 * time.Second)
		if got := b.take("create nodes", "create leases", "patch"); got != "" {
			t.Errorf("wrote to the API:\n%s", got)
		}
		if log := b.logged.String(); strings.Count(log, "--register-node=true") != 1 {
			t.Errorf("the log does not say once what is missing:\n%s", log)
		}
		if _, err := b.api.CoreV1().Nodes().Create(t.Context(), existing(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second)
		if got := ready(b); got != "True" {
			t.Errorf("Ready is %s on a Node that somebody created", got)
		}
		if got := b.take("create leases"); got == "" {
			t.Error("no lease was created")
		}
		b.stop()
	})
}
