package view_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/pressure"
	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/core/view"
	"github.com/wherry-node/wherry/internal/core/why"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// web returns a pod in which every field that a tenant can set has a value, with a "hidden-" text in each field that must not be
// shown.
func web() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u1", Annotations: map[string]string{"a": "hidden-annotation"}, CreationTimestamp: metav1.Time{Time: now}},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "init"}, {Name: "side", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}},
			Containers: []v1.Container{{
				Name: "app", Image: "web:1", Env: []v1.EnvVar{{Name: "TOKEN", Value: "hidden-env"}}, Command: []string{"hidden-command"}, Args: []string{"hidden-arg"},
				Resources:      v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m"), v1.ResourceMemory: resource.MustParse("64Mi")}},
				ReadinessProbe: &v1.Probe{}, VolumeMounts: []v1.VolumeMount{{Name: "conf", MountPath: "/conf"}},
			}},
			EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}},
			Volumes:             []v1.Volume{{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "settings"}}}}},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, PodIPs: []v1.PodIP{{IP: "10.0.0.1"}},
			ContainerStatuses: []v1.ContainerStatus{{
				Name: "app", RestartCount: 3, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "wait\x1b[31m"}},
				LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3, Reason: "Error", StartedAt: metav1.Time{Time: now}, FinishedAt: metav1.Time{Time: now.Add(2 * time.Second)}}},
			}},
		},
	}
}

func TestRowOf(t *testing.T) {
	t.Parallel()
	in := &view.Pod{
		Pod: web(), Answer: why.Answer{Cause: why.CrashLoop, Level: why.Trouble, Line: "it ends again and again"},
		Records: []timeline.Record{{At: now, Kind: timeline.KindDecision, Band: timeline.BandFailing, Why: strings.Repeat("x", 1000)}},
		Failing: []why.FailingProbe{{Container: "app", Kind: "readiness", Times: 2, Threshold: 3, Output: "<b>no</b>\x00"}},
	}
	r := view.RowOf(in)
	if r.UID != "u1" || r.Restarts != 3 || r.Ready != 0 || r.Containers != 1 || r.Band != timeline.BandFailing || r.Cause != why.CrashLoop || r.Dropped {
		t.Errorf("row %+v", r)
	}
	if len(r.Spans) != 1 || len(r.Spans[0].Why) > 300 {
		t.Errorf("spans %+v", r.Spans)
	}
	if len(r.Failing) != 1 || !strings.HasPrefix(r.Failing[0].Output, "<b>no</b>") || strings.ContainsRune(r.Failing[0].Output, 0) {
		t.Errorf("failing probes %+v", r.Failing)
	}
}

// The test checks that RowOf returns only the newest maxSpans (40) spans of a pod's life, and that it sets Dropped because others are
// missing.
func TestALongLifeIsBounded(t *testing.T) {
	t.Parallel()
	in := &view.Pod{Pod: web()}
	for i := range 200 {
		in.Records = append(in.Records, timeline.Record{At: now.Add(time.Duration(i) * time.Minute), Kind: timeline.KindDecision, Band: timeline.BandWaiting + timeline.Band(i%2)})
	}
	r := view.RowOf(in)
	if len(r.Spans) != 40 || !r.Dropped || !r.Spans[39].From.Equal(now.Add(199*time.Minute)) {
		t.Errorf("%d spans, dropped %v", len(r.Spans), r.Dropped)
	}
}

func TestDetailOf(t *testing.T) {
	t.Parallel()
	d := view.DetailOf(&view.Pod{Pod: web(), Dropped: 7})
	if d.Lost != 7 || d.Phase != "Running" || len(d.IPs) != 1 || len(d.Units) != 4 {
		t.Fatalf("detail %+v", d)
	}
	kinds := ""
	for _, u := range d.Units {
		kinds += u.Kind + " "
	}
	if kinds != "init sidecar main debug " {
		t.Errorf("kinds %s", kinds)
	}
	app := d.Units[2]
	if app.State != "waiting" || app.Reason != "CrashLoopBackOff" || strings.ContainsRune(app.Message, 0x1b) || app.CPULimit != 500 || app.MemLimit != 64<<20 ||
		app.Last != "Error, exit code 3, after 2s" || len(app.Probes) != 1 {
		t.Errorf("container %+v", app)
	}
	if len(d.Volumes) != 1 || d.Volumes[0].Kind != "configMap" || d.Volumes[0].Source != "settings" || d.Volumes[0].Mounts[0] != "app:/conf" {
		t.Errorf("volumes %+v", d.Volumes)
	}
	body, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(body), "hidden-") {
		t.Errorf("the detail shows what it must not show: %s", body)
	}
}

func TestChain(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	records := []timeline.Record{
		{At: at(0), Kind: timeline.KindDecision, What: "active"},
		{At: at(1), Kind: timeline.KindBegan, What: "set-up"},
		{At: at(2), Kind: timeline.KindEnded, What: "set-up", Took: time.Second},
		{At: at(3), Kind: timeline.KindEnded, What: "pull-image app", Error: "no such image"},
		{At: at(9), Kind: timeline.KindEnded, What: "pull-image app", Error: "still no such image"},
		{At: at(10), Kind: timeline.KindEnded, What: "run-sandbox attempt=0"},
	}
	flights := []why.Flight{{Action: pod.Action{Op: pod.OpPullImage, Container: "app", Why: "it needs its image"}, Began: at(12)}}
	got := view.Chain(records, flights)
	want := []view.Link{
		{Verb: "set-up", State: "done", At: at(2), Took: time.Second, Tries: 1},
		{Verb: "run-sandbox", State: "done", At: at(10), Tries: 1},
		{Verb: "pull-image", Container: "app", State: "runs", At: at(12), Text: "it needs its image", Tries: 2},
	}
	if len(got) != len(want) {
		t.Fatalf("chain %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("link %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	if got := view.Chain(records[:5], nil); got[1].State != "failed" || got[1].Text != "still no such image" || got[1].Tries != 2 {
		t.Errorf("the failed link is %+v", got[1])
	}
}

func TestNodeOf(t *testing.T) {
	t.Parallel()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	n.Status.Capacity = v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("8Gi"), v1.ResourcePods: resource.MustParse("110"), "example.com/gpu": resource.MustParse("2"), "hugepages-1Gi": resource.MustParse("0")}
	n.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3800m")}
	runs, done := web(), web()
	runs.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("250m")}
	done.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}
	done.Status.Phase = v1.PodSucceeded
	hundred := resource.MustParse("100Mi")
	got := view.NodeOf(n, []*v1.Pod{runs, done}, &view.Measured{
		CPU: 1200, Memory: 1 << 30, Signals: pressure.Signals{pressure.MemoryAvailable: {Available: 50 << 20, Capacity: 8 << 30}},
		Thresholds: []pressure.Threshold{{Signal: pressure.MemoryAvailable, Value: pressure.Value{Quantity: &hundred}}, {Signal: pressure.NodefsAvailable, Value: pressure.Value{Fraction: .1}}},
	})
	names := ""
	for _, r := range got.Resources {
		names += r.Name + " "
	}
	if names != "cpu memory pods example.com/gpu " {
		t.Errorf("resources %s", names)
	}
	if cpu := got.Resources[0]; cpu != (view.Resource{Name: "cpu", Capacity: 4000, Allocatable: 3800, Requested: 250, Used: 1200}) {
		t.Errorf("cpu %+v", cpu)
	}
	if p := got.Resources[2]; p.Requested != 1 {
		t.Errorf("pods %+v", p)
	}
	if len(got.Pressure) != 1 || !got.Pressure[0].Met || got.Pressure[0].Limit != 100<<20 {
		t.Errorf("pressure %+v", got.Pressure)
	}
}
