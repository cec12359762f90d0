package fleet_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/agent/fleet"
)

// times returns how much the times that a node and its agent wrote are ahead of the present, by what they are about.
func (b *bench) times(t *testing.T, node, pod string) map[string]time.Duration {
	t.Helper()
	out := map[string]time.Duration{"lease": -b.leaseAge(t, node)}
	n, err := b.admin.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady {
			out["heartbeat"] = time.Until(c.LastHeartbeatTime.Time)
		}
	}
	p, err := b.admin.CoreV1().Pods("default").Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out["startTime"] = time.Until(p.Status.StartTime.Time)
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			out["condition"] = time.Until(c.LastTransitionTime.Time)
		}
	}
	out["startedAt"] = time.Until(p.Status.ContainerStatuses[0].State.Running.StartedAt.Time)
	events, err := b.admin.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.InvolvedObject.Name == pod && e.Reason == "Started" {
			out["event"] = time.Until(e.LastTimestamp.Time)
		}
	}
	return out
}

func (b *bench) version(t *testing.T, pod string) string {
	t.Helper()
	p, err := b.admin.CoreV1().Pods("default").Get(t.Context(), pod, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return p.ResourceVersion
}

// A node whose clock is wrong writes the times of its clock: into its lease, its Node, its pods, their events and their logs. Times that it wrote
// before stay, and nobody writes them again. The times of other nodes are right, and so are those of the node after the fault.
func TestClockSkew(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			b := start(t, fleet.Config{Name: "f", Dir: dir, Groups: []fleet.Group{{Count: 2}}})
			b.until(t, "both join", settled)
			b.createPod(t, "before", "f-node-1")
			b.until(t, "it runs", func(s fleet.Status) bool { return s.Pods.Running == 1 })
			time.Sleep(10 * time.Second)
			version, started := b.version(t, "before"), b.container(t, "before").State.Running.StartedAt
			on, err := b.fleet.Inject(only("f-node-1"), fleet.Fault{Kind: fleet.FaultClock, Clock: fleet.Skew{Offset: offset}, For: 10 * time.Minute})
			if err != nil || len(on) != 1 {
				t.Fatal(on, err)
			}
			b.createPod(t, "right", "f-node-2")
			_, err = b.admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "skewed"},
				Spec: v1.PodSpec{NodeName: "f-node-1", Containers: []v1.Container{
					{Name: "c", Image: "i", Command: []string{"sh", "-c", "echo hello; sleep 100000"}},
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			b.until(t, "they run", func(s fleet.Status) bool { return s.Pods.Running == 3 })
			for range 36 { // 6 minutes, because the status of a Node is written every 5 minutes
				time.Sleep(10 * time.Second)
				if s := b.fleet.Status(); s.Nodes.Ready != 2 {
					t.Fatalf("%d of 2 nodes are Ready", s.Nodes.Ready)
				}
			}
			for _, c := range []struct {
				node, pod string
				ahead     time.Duration
			}{{"f-node-1", "skewed", offset}, {"f-node-2", "right", 0}} {
				got := b.times(t, c.node, c.pod)
				if len(got) != 6 {
					t.Errorf("%s: times of %v, want six", c.node, got)
				}
				for what, ahead := range got {
					if ahead > c.ahead+time.Second || ahead < c.ahead-7*time.Minute {
						t.Errorf("%s: the time of %s is ahead by %s, want %s, or up to 7 minutes less, which have passed", c.node, what, ahead, c.ahead)
					}
				}
			}
			if log := b.log(t, dir, "skewed"); len(log) == 0 {
				t.Error("the container of the node has no log")
			} else if at, err := time.Parse(time.RFC3339Nano, log[0]); err != nil || time.Until(at) > offset+time.Second || time.Until(at) < offset-7*time.Minute {
				t.Errorf("the log has %s, %v, want a time that is ahead by about %s", log[0], err, offset)
			}
			if got := b.container(t, "before").State.Running.StartedAt; b.version(t, "before") != version || !got.Equal(&started) {
				t.Errorf("the older pod was written again: started at %s, before at %s", got, started)
			}
			skewed := b.version(t, "skewed")
			time.Sleep(10 * time.Minute)
			if age := b.leaseAge(t, "f-node-1"); age > 11*time.Second || age < -time.Second || b.version(t, "skewed") != skewed {
				t.Errorf("after the fault, the lease is %s old, and the pod was written: %v", age, b.version(t, "skewed") != skewed)
			}
			if s := b.fleet.Status(); s.Nodes.Ready != 2 || s.Pods.Running != 3 || len(s.Faults) != 0 {
				t.Errorf("after the fault: %+v %+v %+v", s.Nodes, s.Pods, s.Faults)
			}
			b.end(t)
		})
	}
}

// log returns the words of the first log of a pod's container that is not empty.
func (b *bench) log(t *testing.T, dir, pod string) (words []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".log") || !strings.Contains(path, "default_"+pod+"_") || words != nil {
			return err
		}
		data, err := os.ReadFile(path)
		words = strings.Fields(string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return words
}

// activeDeadlineSeconds counts from the time in the pod's status, or from when the agent first saw the pod, if that is earlier. So a clock that is
// set ahead ends a pod early. One that is set back, or that has always been wrong, ends it in time.
func TestClockSkewAndDeadline(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		offset        time.Duration
		first         bool // the clock is wrong before the pod starts
		least, atMost time.Duration
	}{
		{"set ahead", time.Hour, false, 0, 2 * time.Minute},
		{"set back", -time.Hour, false, 29 * time.Minute, 31 * time.Minute},
		{"always ahead", time.Hour, true, 29 * time.Minute, 31 * time.Minute},
		{"always behind", -time.Hour, true, 29 * time.Minute, 31 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 1}}})
			b.until(t, "it joins", settled)
			skew := func() {
				if _, err := b.fleet.Inject(only("f-node-1"), fleet.Fault{Kind: fleet.FaultClock, Clock: fleet.Skew{Offset: c.offset}}); err != nil {
					t.Fatal(err)
				}
			}
			if c.first {
				skew()
			}
			began := time.Now()
			seconds := int64(1800)
			_, err := b.admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p"},
				Spec:       v1.PodSpec{NodeName: "f-node-1", ActiveDeadlineSeconds: &seconds, Containers: []v1.Container{{Name: "c", Image: "i"}}},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			b.until(t, "it runs", func(s fleet.Status) bool { return s.Pods.Running == 1 })
			if !c.first {
				skew()
				// The pod takes a turn when something happens to it: here its container ends.
				if _, err := b.fleet.Inject(fleet.Selector{All: true}, fleet.Fault{Kind: fleet.FaultExit, Exit: fleet.Exit{Code: 1}}); err != nil {
					t.Fatal(err)
				}
			}
			for b.fleet.Status().Pods.Failed == 0 && time.Since(began) < 3*time.Hour {
				time.Sleep(10 * time.Second)
			}
			p, err := b.admin.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); p.Status.Reason != "DeadlineExceeded" || took < c.least || took > c.atMost {
				t.Errorf("%s: the pod ended after %s with %s %q, want %s to %s", c.name, took, p.Status.Phase, p.Status.Reason, c.least, c.atMost)
			}
			b.end(t)
		})
	}
}

// A scenario makes clocks drift. The clock of a machine that crashes goes on, and a node may have several such faults at once.
func TestClockScenario(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := fleet.ParseScenario("s.yaml", []byte(`apiVersion: wherry.dev/v1alpha1
kind: FleetScenario
events:
- {fault: clock, clock: {drift: -6m}, nodes: {labels: topology.kubernetes.io/zone=a}}
- {fault: clock, clock: {offset: 90s}, nodes: {names: [f-node-1]}}
- {fault: crash, nodes: {names: [f-node-1]}, after: 10m, for: 10m}
`))
		if err != nil {
			t.Fatal(err)
		}
		b := start(t, fleet.Config{Name: "f", Groups: []fleet.Group{{Count: 2, Zones: []string{"a", "b"}}}})
		b.until(t, "both join", settled)
		go func() { _ = b.fleet.Play(t.Context(), s, func(fleet.Happening) {}) }()
		time.Sleep(time.Hour)
		// In an hour the clock has lost 6 minutes, and it was 90 s ahead: 4.5 minutes behind.
		if age := b.leaseAge(t, "f-node-1"); age < 260*time.Second || age > 285*time.Second {
			t.Errorf("the lease of the node whose clock loses time is %s old", age)
		}
		if age := b.leaseAge(t, "f-node-2"); age < 0 || age > 11*time.Second {
			t.Errorf("the lease of the other node is %s old", age)
		}
		kinds := b.fleet.Nodes()[0].Faults
		if !slices.Equal(kinds, []fleet.FaultKind{fleet.FaultClock, fleet.FaultClock}) {
			t.Errorf("faults of the node: %v", kinds)
		}
		var texts []string
		for _, f := range b.fleet.Status().Faults {
			texts = append(texts, f.Text)
		}
		slices.Sort(texts)
		if !slices.Equal(texts, []string{"1m30s ahead", "loses 6m0s an hour"}) {
			t.Errorf("faults: %q", texts)
		}
		b.end(t)
	})
}

// A scenario with a clock that no node can have is refused with file, line and field.
func TestClockScenarioIsChecked(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"{fault: clock}":                            "s.yaml:4: events[0].clock: a wrong clock needs an offset",
		"{fault: clock, clock: {drift: 1h}}":        "s.yaml:4: events[0].clock.drift: 1h0m0s",
		"{fault: lease, clock: {drift: 1s}}":        "s.yaml:4: events[0].clock: only the fault clock has this field",
		"{fault: clock, clock: {offset: tomorrow}}": "s.yaml:4: events[0].clock.offset",
		"{fault: clock, clock: {ahead: 1s}}":        "s.yaml:4: events[0].clock.ahead",
	} {
		_, err := fleet.ParseScenario("s.yaml", []byte("apiVersion: wherry.dev/v1alpha1\nkind: FleetScenario\nevents:\n- "+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// A fleet whose clocks were ahead when its process was killed starts again, although its leases are from the future. One that runs is noticed.
func TestClockAheadAndNextFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := fleet.Config{Name: "f", Keep: true, Groups: []fleet.Group{{Count: 1}}}
		b := start(t, cfg)
		b.until(t, "it joins", settled)
		if _, err := b.fleet.Inject(fleet.Selector{All: true}, fleet.Fault{Kind: fleet.FaultClock, Clock: fleet.Skew{Offset: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		cfg.Client = b.kube.RESTConfig("second")
		second, err := fleet.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if err := second.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the fleet f runs already: node f-node-1 renewed its lease") {
			t.Errorf("a second fleet of the same name: %v", err)
		}
		b.end(t)
		b.run(t, cfg)
		b.until(t, "the next fleet has its node Ready", settled)
		b.end(t)
	})
}
