package heartbeat

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An API server that answers with an error, such as that of a webhook which is down, has a connection that works. The agent closes none, because
// that would end its watches. If the server does not know the client any more, a new connection may have a newer certificate.
func TestAnAnswerClosesNoConnection(t *testing.T) {
	t.Parallel()
	for want, refusal := range map[bool]error{
		false: apierrors.NewInternalError(errors.New(`failed calling webhook "nodes.example.com": connection refused`)), true: apierrors.NewUnauthorized("expired"),
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			b.run()
			time.Sleep(time.Second)
			b.take()
			b.set(func() {
				b.ready = false
				b.fail = func(verb, _ string) error {
					if verb == "get" {
						return nil
					}
					return refusal
				}
			})
			time.Sleep(time.Minute)
			lines := b.take("patch nodes", "update leases", "close")
			if !strings.Contains(lines, "patch nodes") || !strings.Contains(lines, "update leases") || strings.Contains(lines, "close") != want {
				t.Errorf("%v: want connections closed: %t:\n%s", refusal, want, lines)
			}
			b.stop()
		})
	}
}

// If somebody deletes the Node while the agent runs, and the garbage collector the lease, the agent makes no lease for the Node that is gone. It
// makes one again when somebody has created the Node anew.
func TestADeletedNodeGetsNoLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.run()
		time.Sleep(15 * time.Second)
		nodes, leases := b.api.CoreV1().Nodes(), b.api.CoordinationV1().Leases(v1.NamespaceNodeLease)
		if err := errors.Join(nodes.Delete(t.Context(), "n1", metav1.DeleteOptions{}), leases.Delete(t.Context(), "n1", metav1.DeleteOptions{})); err != nil {
			t.Fatal(err)
		}
		b.take()
		time.Sleep(2 * time.Minute)
		if got := b.take("create"); got != "" {
			t.Errorf("created without a Node:\n%s", got)
		}
		node := existing()
		node.UID = "u9"
		if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second)
		lease, err := leases.Get(t.Context(), "n1", metav1.GetOptions{})
		if err != nil || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != "u9" {
			t.Errorf("the lease of the new Node: %v, %v", lease, err)
		}
		if got := ready(b); got != "True" {
			t.Errorf("Ready is %s on the new Node", got)
		}
		b.stop()
	})
}

// A node that becomes ready while the API server refuses its status, for example because a webhook is down, tries once more at once, and then in
// each round: it does not send requests every 100 ms.
func TestARefusedReadinessIsNotRepeatedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.ready = false
		b.run()
		time.Sleep(2 * time.Second)
		b.take()
		b.set(func() {
			b.ready = true
			b.fail = failing("patch", apierrors.NewInternalError(errors.New("failed calling webhook")))
		})
		time.Sleep(7 * time.Second)
		if n := strings.Count(b.take("patch nodes"), "patch nodes"); n == 0 || n > 1+tries {
			t.Errorf("%d requests in 7 s, want 1 to %d", n, 1+tries)
		}
		b.set(func() { b.fail = nil })
		time.Sleep(10 * time.Second)
		if got := ready(b); got != "True" {
			t.Errorf("Ready is %s when the API server takes the status again", got)
		}
		b.stop()
	})
}

// Somebody restores the cluster from a backup, in which the node is not ready. Its Node is older than the one that the agent has seen, but it is
// what the API has, so the agent soon reports that the node is ready.
func TestARestoredClusterHasAnOlderNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := existing()
		node.ResourceVersion = "100"
		b := newBench(t, node)
		b.watched()
		h := b.run()
		time.Sleep(30 * time.Second)
		resource := v1.SchemeGroupVersion.WithResource("nodes")
		old, err := b.api.Tracker().Get(resource, "", "n1")
		if err != nil {
			t.Fatal(err)
		}
		restored := old.(*v1.Node).DeepCopy()
		restored.ResourceVersion, restored.Labels["restored"] = "50", "1"
		for i := range restored.Status.Conditions {
			restored.Status.Conditions[i].Status = v1.ConditionUnknown
		}
		if err := b.api.Tracker().Update(resource, restored, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if got := ready(b); got != "True" || h.Node().Labels["restored"] != "1" {
			t.Errorf("Ready is %s in the API, and the agent has the Node of resourceVersion %s", got, h.Node().ResourceVersion)
		}
		b.stop()
	})
}
