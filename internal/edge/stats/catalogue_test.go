package stats

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/pod"
)

func TestCatalogue(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(MetricsConfig{Registerer: reg, NodeName: "n1", Version: "v1.36.3+wherry.0.1.0", Pods: onePod(),
		ImagePulls:  func() ImagePulls { return ImagePulls{Running: 1, Waiting: 2, Stalled: 3, Oldest: time.Minute} },
		PullRecords: func() (int, int) { return 1, 2 }, CgroupVersion: func() int { return 2 }, MemoryKept: func() (int64, int64) { return 3, 4 }, Gates: func() []Gate { return []Gate{{"A", "ALPHA", false}, {"B", "", true}} },
		Tally: func() Tally {
			return Tally{
				Desired: map[bool]int{false: 3, true: 1}, Active: map[bool]int{false: 2, true: 1}, Mirrors: 1, Ephemeral: 2,
				Working: map[Working]int{{"sync", "desired", ""}: 3, {"terminating", "orphan", "true"}: 1}, Pending: map[string]int{"deferred": 1, "infeasible": 2}, InProgress: 1,
			}
		},
		Volumes: func() []VolumeCount {
			return []VolumeCount{{"kubernetes.io/secret", 2, 1}, {"kubernetes.io/csi:disks.example.com", 0, 1}}
		},
		ContainerLogs: func() []ContainerLogs {
			return []ContainerLogs{{pod.Ref{Namespace: "ns", Name: "web", UID: "1"}, "main", 4096}}
		},
		PodCertificates:   func() []PodCertificates { return []PodCertificates{{"example.com/s", "fresh", 2}} },
		PersistentVolumes: func() []Volume { return []Volume{{PVCNamespace: "ns", PVCName: "data", Abnormal: new(true)}} },
		Startup: func() Startup {
			return Startup{Boot: at(0), Began: at(10), Attempt: at(12), Registered: at(15), Ready: at(20)}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range []*Metrics{m, nil} { // the methods of a nil Metrics must do nothing
		use.PodStarted(time.Second)
		use.WorkerStarted(time.Second)
		use.Turn("sync", time.Millisecond)
		use.StatusSent(time.Millisecond)
		use.Relisted(at(0), time.Second, time.Second)
		use.SandboxStarted("runc", false, time.Second, nil)
		use.SandboxStarted("runc", true, time.Second, errors.New("no"))
		use.ContainerStarted("container", true, "")
		use.ContainerStarted("container", true, "CreateContainerError")
		use.ContainerEnded("init_container", 137, "OOMKilled")
		use.ImagePulled(20<<20, time.Second)
		use.ImageEnsured("IfNotPresent", "true", "false")
		use.ImageVerified("credentialRecordFound")
		use.CredentialPluginRan("ecr", time.Second, nil)
		use.CredentialPluginRan("ecr", time.Second, errors.New("no"))
		use.Evicted("memory.available")
		use.Rejected("OutOfcpu")
		use.Rejected("OutOfexample.com/gpu")
		use.Restarted(true)
		use.Operation("RunPodSandbox", time.Second, errors.New("no"))
		use.CredentialPluginsRead("sha256:1")
		use.CredentialPluginsRead("sha256:2")
		use.PodReady(5*time.Second, 2*time.Second, false, true)
		use.PodReady(5*time.Second, 0, true, true)
		use.PodSeen(2)
		use.PodSeen(0)
		use.Orphans(3, 1)
		use.Preempted("cpu")
		use.Preempted("example.com/gpu")
		use.ImageVolumes(2, false)
		use.ImageVolumes(1, true)
		use.PodWatchEnded()
		use.SleepCut()
		use.HookFellBack()
		use.Inspected(time.Millisecond)
		use.Subscribed(true)
		use.Subscribed(false)
		use.EventArrived(-time.Second) // the clocks of the runtime and the agent may differ
		use.CgroupDone("create", time.Millisecond)
		use.ResizeAsked(sizedPod("1", ""), sizedPod("2", "3"))
		use.ResizeAsked(sizedPod("2", "3"), sizedPod("1", ""))
		use.ResizeInfeasible("swap_limitation")
		use.ResizeAccepted("pod_updated")
		use.Resized(time.Second, true)
		use.Resized(time.Second, false)
		use.VolumeOperated("kubernetes.io/secret", "volume_mount", false, time.Millisecond, nil)
		use.VolumeOperated("kubernetes.io/csi:disks.example.com", "volume_unmount", true, time.Minute, errors.New("no"))
		use.VolumeMounted("kubernetes.io/secret", 3*time.Second)
		use.VolumeMeasured("du", 20*time.Millisecond)
		use.DriverCalled("disks.example.com", "NodePublishVolume", "DeadlineExceeded", 2*time.Minute)
		use.ConfigRead(true)
		use.ConfigRead(false)
	}
	golden(t, "catalogue.prom", text(t, reg))
	if _, err := NewMetrics(MetricsConfig{Registerer: reg, NodeName: "n1"}); err == nil {
		t.Error("one registry took two catalogues")
	}
}

// text returns the metrics of a registry as they are served.
func text(t *testing.T, reg *prometheus.Registry) string {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if f.GetName() == "kubernetes_build_info" { // the labels of this metric contain the version of Go
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// sizedPod returns a pod whose containers have this request and this limit of CPUs.
func sizedPod(request, limit string) *v1.Pod {
	c := v1.Container{Name: "main", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(request)}}}
	if limit != "" {
		c.Resources.Limits = v1.ResourceList{v1.ResourceCPU: resource.MustParse(limit)}
	}
	init, sidecar := c, c
	init.Name, sidecar.Name = "init", "sidecar"
	sidecar.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	return &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}, InitContainers: []v1.Container{init, sidecar}}}
}

// No kubelet_node_startup metric is served for a node whose Node object existed before this agent, or for a node whose times of the
// start are not known yet.
func TestStartupOfAnAdoptedNode(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Startup{"adopted": {Boot: at(0), Began: at(1), Attempt: at(2), Ready: at(3)}, "": {}} {
		reg := prometheus.NewRegistry()
		if _, err := NewMetrics(MetricsConfig{Registerer: reg, NodeName: "n1", Startup: func() Startup { return s }}); err != nil {
			t.Fatal(err)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "kubelet_node_startup") {
				t.Errorf("%s: %s is served", name, f.GetName())
			}
		}
	}
}

func TestAPICalls(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	synctest.Test(t, func(t *testing.T) {
		ends := time.Now().Add(time.Hour)
		a, err := NewAPICalls(APIConfig{Registerer: reg, ClientEnds: func() time.Time { return ends }, ServingEnds: func() time.Time { return time.Time{} }})
		if err != nil {
			t.Fatal(err)
		}
		a.Answered("GET", "api:6443", 200)
		a.Answered("GET", "api:6443", 0)
		for status := 600; status < 2000; status++ { // a server may send any number as a status
			a.Answered("GET", "api:6443", status)
		}
		a.Repeated("POST", "api:6443", 429)
		a.Read("GET", "api:6443", time.Second, 10, 100)
		a.Read("GET", "api:6443", time.Second, -1, 100)
		a.Limited("GET", "api:6443", time.Second)
		a.Authenticated(201, time.Second)
		a.Authorized(0, time.Second)
		a.ClientRenewalFailed()
		a.ServingRenewalFailed()
		a.ServingReplaced(time.Hour)
		golden(t, "apicalls.prom", text(t, reg))
	})
}

func TestProcessMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	if _, err := NewMetrics(MetricsConfig{Registerer: reg, NodeName: "n1", Process: true}); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{"process_cpu_seconds_total": false, "go_goroutines": false}
	for _, f := range families {
		if _, ok := got[f.GetName()]; ok {
			got[f.GetName()] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"process_cpu_seconds_total": true, "go_goroutines": true}, got); diff != "" {
		t.Error(diff)
	}
}

func TestOperationNames(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]string{
		"RunPodSandbox": "run_podsandbox", "ListContainers": "list_containers", "PodSandboxStatus": "podsandbox_status", "ExecSync": "exec_sync",
		"UpdateContainerResources": "update_container", "Version": "version", "ImageFsInfo": "image_fs_info",
	} {
		if got := operationName(method); got != want {
			t.Errorf("%s is %s, want %s", method, got, want)
		}
	}
	for bytes, want := range map[uint64]string{0: "N/A", 1: "0-10MB", 11 << 20: "10MB-100MB", 600 << 20: "500MB-1GB", 200 << 30: "GT100GB"} {
		if got := sizeBucket(bytes); got != want {
			t.Errorf("%d bytes are %s, want %s", bytes, got, want)
		}
	}
}

// Values that containers, runtimes and clusters choose do not create an unbounded number of series.
func TestLabelsOfStrangersAreBounded(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(MetricsConfig{Registerer: reg, NodeName: "n1", Version: "v1.36.3"})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		m.ContainerEnded("container", int32(i-1000), "Error")
		m.ContainerEnded("container", 1, fmt.Sprint("Reason", i))
		m.Rejected(fmt.Sprint("OutOfexample.com/device-", i))
	}
	m.ContainerEnded("container", 137, "OOMKilled")
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := map[string]int{}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	// There may be 256 series for the exit codes with the reason Error, one for all other codes, one for all reasons that only
	// runtimes use, and one for OOMKilled.
	if ended, refused := series["kubelet_terminated_containers_total"], series["kubelet_admission_rejections_total"]; ended != 256+1+1+1 || refused != 1 {
		t.Errorf("%d series of ends and %d of refusals", ended, refused)
	}
}
