package fleet_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent/fleet"
)

// A fleet runs while one of its nodes renews its lease. Of a fleet that has just ended, that is known only after the time of a renewal. A lease that
// is old needs no look.
func TestCheckEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "f", Keep: true, Groups: []fleet.Group{{Count: 2}}})
		b.until(t, "both join", settled)
		check := func(name string) (took, said time.Duration, err error) {
			began := time.Now()
			err = fleet.CheckEnded(t.Context(), b.kube.RESTConfig("test"), name, func(atMost time.Duration) { said = atMost })
			return time.Since(began).Round(time.Second), said, err
		}
		for _, name := range []string{"f", ""} {
			if took, said, err := check(name); err == nil || !strings.Contains(err.Error(), "the fleet f runs: node f-node-") ||
				!strings.Contains(err.Error(), "wherry fleet stop --name f ") || took > 11*time.Second || said <= 0 {
				t.Errorf("%q runs: %v, after %s", name, err, took)
			}
		}
		if took, said, err := check("other"); err != nil || took != 0 || said != 0 {
			t.Errorf("another fleet: %v, after %s", err, took)
		}
		// A crashed node renews nothing; the other one does.
		if _, err := b.fleet.Inject(only("f-node-1"), fleet.Fault{Kind: fleet.FaultCrash}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, _, err := check("f"); err == nil || !strings.Contains(err.Error(), "node f-node-2 ") {
			t.Errorf("with a crashed node: %v", err)
		}
		b.end(t)
		if took, said, err := check("f"); err != nil || took < 3*time.Second || took > 15*time.Second || said < 3*time.Second {
			t.Errorf("it has just ended: %v, after %s", err, took)
		}
		if took, said, err := check("f"); err != nil || took != 15*time.Second || said != 15*time.Second {
			t.Errorf("it has ended before, and the control plane has not noticed it: %v, after %s", err, took)
		}
		nodes := b.admin.CoreV1().Nodes()
		list, err := nodes.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items { // what the control plane does
			for j := range list.Items[i].Status.Conditions {
				list.Items[i].Status.Conditions[j].Status = v1.ConditionUnknown
			}
			if _, err := nodes.UpdateStatus(t.Context(), &list.Items[i], metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if took, said, err := check("f"); err != nil || took != 0 || said != 0 {
			t.Errorf("it has ended before: %v, after %s", err, took)
		}
	})
}

// A fleet whose clocks are behind is noticed, although all times that its nodes write are old: it is not cleaned, and not started a second time.
func TestClockBehindAndCheckEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := fleet.Config{Name: "f", Keep: true, Groups: []fleet.Group{{Count: 2}}}
		b := start(t, cfg)
		b.until(t, "both join", settled)
		if _, err := b.fleet.Inject(fleet.Selector{All: true}, fleet.Fault{Kind: fleet.FaultClock, Clock: fleet.Skew{Offset: -time.Hour}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute) // the status is sent again, with a heartbeat from the past
		if err := fleet.CheckEnded(t.Context(), b.kube.RESTConfig("test"), "f", nil); err == nil || !strings.Contains(err.Error(), "the fleet f runs: node f-node-") {
			t.Errorf("clean: %v", err)
		}
		cfg.Client = b.kube.RESTConfig("second")
		second, err := fleet.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the fleet f runs already: node f-node-") {
			t.Errorf("start: %v", err)
		}
		b.end(t)
		b.run(t, cfg)
		b.until(t, "the next fleet has its nodes Ready", settled)
		b.end(t)
	})
}

// Nodes whose leases last longer renew them less often, so the look is longer. A clock that is ahead does not make it endless.
func TestCheckEndedOfLongLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, fleet.Config{Name: "g", Groups: []fleet.Group{{Count: 0}}})
		for name, renewed := range map[string]time.Duration{"a": -20 * time.Second, "b": time.Hour} {
			_, err := b.admin.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelFleet: name}}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			seconds, at := int32(160), metav1.NewMicroTime(time.Now().Add(renewed))
			_, err = b.admin.CoordinationV1().Leases(v1.NamespaceNodeLease).Create(t.Context(), &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &at},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			name string
			want time.Duration
		}{{"a", 40 * time.Second}, {"b", time.Minute}} { // a minute after the renewal, or from now on
			began := time.Now()
			if err := fleet.CheckEnded(t.Context(), b.kube.RESTConfig("test"), c.name, nil); err != nil || time.Since(began).Round(time.Second) != c.want {
				t.Errorf("%s: %v after %s, want %s", c.name, err, time.Since(began), c.want)
			}
		}
		b.end(t)
	})
}
