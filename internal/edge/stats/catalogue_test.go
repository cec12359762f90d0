package stats

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"strings"
)

func TestCatalogue(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(MetricsConfig{Registerer: reg, NodeName: "n1", Version: "v1.36.3+wherry.0.1.0", Pods: onePod(),
		PullRecords: func() (int, int) { return 1, 2 }})
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range []*Metrics{m, nil} { // a nil Metrics must take everything, too
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
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if f.GetName() == "kubernetes_build_info" { // its labels contain the version of Go
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "catalogue.prom", b.String())
	if _, err := NewMetrics(MetricsConfig{Registerer: reg, NodeName: "n1"}); err == nil {
		t.Error("one registry took two catalogues")
	}
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
	for bytes, want := range map[uint64]string{0: "N/A", 1: "0-10MB", 11 << 20: "10MB-50MB", 600 << 20: "500MB-1GB", 200 << 30: "GT100GB"} {
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
	// 256 series for the exit codes with Error, one for all other codes, one for the reasons of runtimes, and one for
	// OOMKilled.
	if ended, refused := series["kubelet_terminated_containers_total"], series["kubelet_admission_rejections_total"]; ended != 256+1+1+1 || refused != 1 {
		t.Errorf("%d series of ends and %d of refusals", ended, refused)
	}
}
