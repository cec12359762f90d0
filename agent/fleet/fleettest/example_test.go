package fleettest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/fleet/fleettest"
	"github.com/wherry-node/wherry/agent/simulated"
)

// example is a TB that replaces the *testing.T of a test.
type example struct{ cleanups []func() }

func (e *example) Helper()                           {}
func (e *example) Cleanup(f func())                  { e.cleanups = append(e.cleanups, f) }
func (e *example) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Example starts a cluster of a hundred nodes, and runs a pod on one of them that fails with exit code 3.
func Example() {
	t := &example{} // a real test uses its *testing.T here
	c := fleettest.Start(t, 100)
	client := kubernetes.NewForConfigOrDie(c.Client)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	pods := client.CoreV1().Pods("default")
	_, err := pods.Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Annotations: map[string]string{simulated.AnnotationExitCode: "3"}},
		Spec:       v1.PodSpec{NodeName: "fleet-node-42", RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "main", Image: "busybox"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	c.Expect(time.Minute, "pods.failed=1", "nodes=ready")
	p, err := pods.Get(ctx, "job", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	fmt.Println(p.Spec.NodeName, "says", p.Status.Phase, p.Status.ContainerStatuses[0].State.Terminated.ExitCode)
	for _, f := range t.cleanups {
		f()
	}
	// Output: fleet-node-42 says Failed 3
}

// Expect fails the test if an expectation does not hold in time, and the message contains the actual state.
func TestExpectFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &example{}
		c := fleettest.Start(e, 1)
		defer func() {
			for _, f := range e.cleanups {
				f()
			}
		}()
		for expectation, want := range map[string]string{
			"pods=running": "after 5s: not as expected: pods=running (now: 0 of 0)",
			"pods=happy":   "use one of",
		} {
			func() {
				defer func() {
					if said := fmt.Sprint(recover()); !strings.Contains(said, want) {
						t.Errorf("%s: said %q", expectation, said)
					}
				}()
				c.Expect(5*time.Second, expectation)
			}()
		}
	})
}

// In virtual time (testing/synctest), a fleet runs for an hour in which a node crashes six times. At the end all nodes are Ready.
func TestVirtualTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c := fleettest.Start(t, 3)
		for range 6 {
			if _, err := c.Inject(fleet.Selector{Count: 1, Seed: 1}, fleet.Fault{Kind: fleet.FaultCrash, For: 5 * time.Minute}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Minute)
		}
		if s := c.Status(); !s.Settled() || time.Since(began) < time.Hour {
			t.Errorf("after an hour: %+v", s)
		}
	})
}

// Start calls Fatalf with the reason if the fleet cannot start.
func TestStartFails(t *testing.T) {
	t.Parallel()
	defer func() {
		if said := fmt.Sprint(recover()); said != "start a fleet: fleet: Config.Groups[0].count: -1: use 0 to 100000" {
			t.Errorf("said %q", said)
		}
	}()
	fleettest.Start(&example{}, -1)
}
