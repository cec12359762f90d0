package stats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// TestEndpoints compares the answers of the three endpoints with testdata: for control groups of both versions, and for
// a simulated node that has none.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, c *Config){
		"v2": func(t *testing.T, c *Config) {
			c.HostRoot, c.PodsGroup = hostV2(t), "/kubepods.slice"
			stub := (&runtimeStub{sandboxErr: errors.New("must not be asked")}).main(1, at(0))
			c.Runtime, c.Images = stub, stub
			c.SystemGroups = map[string]SystemGroup{
				"kubelet": {Path: "/kubepods.slice/kubepods-burstable.slice", Started: at(-30)}, "runtime": {Path: "/kubepods.slice/kubepods-burstable.slice"},
				"misc": {Path: "/gone"},
			}
		},
		"v1": func(t *testing.T, c *Config) {
			c.HostRoot, c.PodsGroup = hostV1(t), "/kubepods"
			stub := (&runtimeStub{}).main(1, at(0))
			c.Runtime, c.Images = stub, stub
		},
		"simulated": func(t *testing.T, c *Config) {
			c.HostRoot = t.TempDir()
			stub := (&runtimeStub{sandboxErr: status.Error(codes.Unimplemented, "no")}).main(2_000_000_000, at(0))
			c.Runtime = stub
		},
		"sandbox-stats": func(t *testing.T, c *Config) {
			c.HostRoot = t.TempDir()
			stub := (&runtimeStub{}).main(2_000_000_000, at(0))
			stub.sandboxes = []*runtimeapi.PodSandboxStats{{
				Attributes: &runtimeapi.PodSandboxAttributes{Id: "sss"},
				Linux: &runtimeapi.LinuxPodSandboxStats{
					Cpu:     &runtimeapi.CpuUsage{Timestamp: at(0).UnixNano(), UsageCoreNanoSeconds: number(3_000_000_000), UsageNanoCores: number(5)},
					Memory:  &runtimeapi.MemoryUsage{Timestamp: at(0).UnixNano(), WorkingSetBytes: number(6000000), Psi: &runtimeapi.PsiStats{Some: &runtimeapi.PsiData{Total: 9, Avg10: 1}}},
					Network: &runtimeapi.NetworkUsage{DefaultInterface: &runtimeapi.NetworkInterfaceUsage{Name: "eth0", RxBytes: number(1), TxBytes: number(2)}},
					Process: &runtimeapi.ProcessUsage{ProcessCount: number(4)},
				},
			}}
			c.Runtime = stub
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStats(t, func(c *Config) { change(t, c) })
			golden(t, name+".summary.json", get(t, s.Summary(), "/stats/summary"))
			golden(t, name+".resource.prom", get(t, s.Resource(), "/metrics/resource"))
			golden(t, name+".cadvisor.prom", get(t, s.CAdvisor(), "/metrics/cadvisor"))
		})
	}
}

// A runtime may report a pressure that is no number. The summary of all other values is served nevertheless.
func TestPressureThatIsNoNumber(t *testing.T) {
	t.Parallel()
	stub := (&runtimeStub{sandboxErr: status.Error(codes.Unimplemented, "no")}).main(2_000_000_000, at(0))
	stub.containers[0].Cpu.Psi = &runtimeapi.PsiStats{Some: &runtimeapi.PsiData{Total: 7, Avg10: math.NaN(), Avg60: math.Inf(1), Avg300: 1.5}, Full: &runtimeapi.PsiData{Avg10: -1}}
	s := newStats(t, func(c *Config) { c.HostRoot, c.Runtime = t.TempDir(), stub })
	var sum statsapi.Summary
	if err := json.Unmarshal([]byte(get(t, s.Summary(), "/stats/summary")), &sum); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&statsapi.PSIStats{Some: statsapi.PSIData{Total: 7, Avg300: 1.5}}, sum.Pods[0].Containers[0].CPU.PSI); diff != "" {
		t.Error(diff)
	}
}

// metrics-server reads /metrics/resource. If the files of the control groups have its values, the agent does not call the
// runtime.
func TestResourceDoesNotAskTheRuntime(t *testing.T) {
	t.Parallel()
	stub := &runtimeStub{err: errors.New("must not be asked"), sandboxErr: errors.New("must not be asked")}
	s := newStats(t, func(c *Config) { c.HostRoot, c.PodsGroup, c.Runtime = hostV2(t), "/kubepods.slice", stub })
	body := get(t, s.Resource(), "/metrics/resource")
	if len(stub.asked) > 0 || !strings.Contains(body, "resource_scrape_error 0") {
		t.Errorf("asked for %v:\n%s", stub.asked, body)
	}
	if want := `container_cpu_usage_seconds_total{container="main",namespace="default",pod="web"} 1 1700000000000`; !strings.Contains(body, want) {
		t.Errorf("no %s in\n%s", want, body)
	}
}

// The name scrape_error was hidden in Kubernetes 1.30; upstream's test of the page accepts no metric beside the documented ones.
func TestScrapeErrorIsReported(t *testing.T) {
	t.Parallel()
	s := newStats(t, func(c *Config) { c.HostRoot, c.Runtime = t.TempDir(), &runtimeStub{err: errors.New("down")} })
	body := get(t, s.Resource(), "/metrics/resource")
	if !strings.Contains(body, "\nresource_scrape_error 1\n") || strings.Contains(body, "\nscrape_error") {
		t.Errorf("want resource_scrape_error 1 and no scrape_error in\n%s", body)
	}
}

func TestOnlyCPUAndMemory(t *testing.T) {
	t.Parallel()
	s := newStats(t, func(c *Config) { c.HostRoot, c.PodsGroup = hostV2(t), "/kubepods.slice" })
	var sum statsapi.Summary
	if err := json.Unmarshal([]byte(get(t, s.Summary(), "/stats/summary?only_cpu_and_memory=true")), &sum); err != nil {
		t.Fatal(err)
	}
	if sum.Node.Fs != nil || sum.Node.Network != nil || sum.Pods[0].EphemeralStorage != nil || sum.Pods[0].Containers[0].CPU == nil {
		t.Errorf("only CPU and memory were asked for: %+v", sum)
	}
	w := httptest.NewRecorder()
	s.Summary().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/stats/summary?only_cpu_and_memory=perhaps", nil))
	if w.Code != http.StatusBadRequest {
		t.Errorf("a bad value gets %d", w.Code)
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	r := rates{last: map[string]sample{}}
	type step struct {
		second int
		nanos  uint64
		since  time.Time
		want   uint64
		known  bool
	}
	for name, steps := range map[string][]step{
		"the first is over its life": {{0, 50_000_000_000, at(-100), 500_000_000, true}},
		"nothing is known of its life": {
			{0, 5_000_000_000, time.Time{}, 0, false}, {3, 9_000_000_000, time.Time{}, 0, false}, {10, 6_000_000_000, time.Time{}, 100_000_000, true},
		},
		"two questions in a row have one answer": {
			{0, 0, at(-10), 0, true}, {10, 1_000_000_000, at(-10), 100_000_000, true}, {12, 3_000_000_000, at(-10), 100_000_000, true},
			{20, 3_000_000_000, at(-10), 200_000_000, true},
		},
		"a counter that starts anew": {{0, 9_000_000_000, at(-10), 900_000_000, true}, {10, 1_000_000_000, at(5), 200_000_000, true}},
		"a clock that is set back": {
			{3600, 0, at(3590), 0, true}, {3610, 1_000_000_000, at(3590), 100_000_000, true},
			{20, 2_000_000_000, at(3590), 100_000_000, true}, // the last rate, because nobody knows how long the time in between was
			{30, 5_000_000_000, at(3590), 300_000_000, true},
		},
		"readings that overtake each other": {{10, 1_000_000_000, at(0), 100_000_000, true}, {8, 1_000_000_000, at(0), 100_000_000, true}, {20, 3_000_000_000, at(0), 200_000_000, true}},
		"a container too young":             {{0, 9, at(0), 0, false}},
	} {
		for i, s := range steps {
			got, known := r.of(name, s.nanos, at(s.second), s.since)
			if got != s.want || known != s.known {
				t.Errorf("%s, reading %d: %d %t, want %d %t", name, i, got, known, s.want, s.known)
			}
		}
	}
	r.keep(map[string]bool{"a container too young": true})
	if len(r.last) != 1 {
		t.Errorf("%d samples are kept of containers that are gone", len(r.last)-1)
	}
}

// When a container is gone, Stats drops its last CPU reading.
func TestSamplesGoWithTheirContainers(t *testing.T) {
	t.Parallel()
	list := onePod()
	s := newStats(t, func(c *Config) {
		c.HostRoot, c.PodsGroup, c.Pods = hostV2(t), "/kubepods.slice", podsFunc(func() []*pod.Observed { return list })
	})
	s.Read(t.Context())
	if _, ok := s.rates.last["ccc"]; !ok {
		t.Fatal("no sample of a running container")
	}
	list = nil
	s.Read(t.Context())
	if _, ok := s.rates.last["ccc"]; ok || len(s.rates.last) != 2 {
		t.Errorf("samples of nothing: %v", s.rates.last)
	}
}

type podsFunc func() []*pod.Observed

func (f podsFunc) Observed() []*pod.Observed { return f() }

func TestFindGroups(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		top   string
		paths []string
		want  found
	}{
		"cgroupfs": {"/x/kubepods", []string{
			"/x/kubepods/podg/c1", "/x/kubepods/burstable/podb/c2", "/x/kubepods/besteffort/pode/crio-conmon-c3", "/x/kubepods/other/podx/c4",
		}, found{
			pods:       map[types.UID]string{"g": "/x/kubepods/podg", "b": "/x/kubepods/burstable/podb", "e": "/x/kubepods/besteffort/pode"},
			containers: map[string]string{"c1": "/x/kubepods/podg/c1", "c2": "/x/kubepods/burstable/podb/c2"},
			classes:    []string{"/x/kubepods/besteffort", "/x/kubepods/burstable"},
		}},
		"systemd": {"/kubepods.slice", []string{
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice/crio-c1.scope", "/kubepods.slice/kubepods-podc_d.slice/cri-containerd-c2.scope",
		}, found{
			pods: map[types.UID]string{"a-b": "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice", "c-d": "/kubepods.slice/kubepods-podc_d.slice"},
			containers: map[string]string{
				"c1": "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice/crio-c1.scope", "c2": "/kubepods.slice/kubepods-podc_d.slice/cri-containerd-c2.scope",
			},
			classes: []string{"/kubepods.slice/kubepods-besteffort.slice"},
		}},
		"no pod has run yet": {"/kubepods", nil, found{pods: map[types.UID]string{}, containers: map[string]string{}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for _, p := range tc.paths {
				if err := os.MkdirAll(filepath.Join(root, "sys/fs/cgroup/memory", p), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			got, err := openTree(root).find(tc.top)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(found{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// PodsUsed reads the usage of all pods, without page cache, from memory.stat. If the usage with page cache is already small, PodsUsed
// returns this usage.
func TestPodsUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		group        string
		enough, want uint64
		ok           bool
	}{
		"the pods'": {"/kubepods.slice", 0, 19000000, true}, "little": {"/kubepods.slice", 1 << 40, 20000000, true},
		"none": {"", 0, 0, false}, "gone": {"/other", 0, 0, false},
	} {
		s := newStats(t, func(cfg *Config) { cfg.HostRoot, cfg.PodsGroup = hostV2(t), c.group })
		if got, ok := s.PodsUsed(c.enough); got != c.want || ok != c.ok {
			t.Errorf("%s: %d, %v, want %d, %v", name, got, ok, c.want, c.ok)
		}
	}
}

// BenchmarkResource measures a node with a hundred pods; it takes milliseconds.
func BenchmarkResource(b *testing.B) {
	root := b.TempDir()
	var list pods
	for i := range 100 {
		uid := types.UID(fmt.Sprintf("uid%d", i))
		id := fmt.Sprintf("id%d", i)
		dir := filepath.Join(root, "sys/fs/cgroup/kubepods/pod"+string(uid), id)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for _, d := range []string{dir, filepath.Dir(dir)} {
			for name, content := range map[string]string{
				"cpu.stat": "usage_usec 1\n", "memory.stat": strings.Repeat("anon 1\n", 50), "memory.current": "5", "memory.max": "max", "memory.events": "max 0\n",
			} {
				if err := os.WriteFile(filepath.Join(d, name), []byte(content), 0o644); err != nil {
					b.Fatal(err)
				}
			}
		}
		list = append(list, &pod.Observed{
			Ref: pod.Ref{Namespace: "d", Name: id, UID: uid}, Sandboxes: []pod.Sandbox{{ID: "s" + id, Ready: true}},
			Containers: []pod.Container{{ID: id, Name: "main", State: pod.StateRunning, StartedAt: at(-5)}},
		})
	}
	if err := os.WriteFile(filepath.Join(root, "sys/fs/cgroup/cgroup.controllers"), nil, 0o644); err != nil {
		b.Fatal(err)
	}
	s, err := New(Config{NodeName: "n", Pods: list, HostRoot: root, PodsGroup: "/kubepods", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Resource().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}
}

// The agent can read the control groups of the machine that runs the test.
func TestThisMachine(t *testing.T) {
	t.Parallel()
	tr := openTree("/")
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		t.Skip("no control groups here: ", err)
	}
	u, ok := tr.read("/", time.Now(), everything)
	if !ok || u.cpu == nil || u.memory == nil || u.memory.workingSet == nil || *u.memory.workingSet == 0 {
		t.Errorf("read of the root group: %+v", u)
	}
	if len(readNetwork("/", "")) == 0 {
		t.Log("this machine has no network interface but loopback")
	}
}

// A measurement of memory does not wait for a runtime that hangs. On a node with control groups the runtime is not asked, and a
// pod whose control group does not exist is unknown. On a node without control groups the runtime is asked, and if it does not
// answer, PodUses returns an error.
func TestPodUses(t *testing.T) {
	t.Parallel()
	stub := (&runtimeStub{sandboxErr: errors.New("must not be asked")}).main(1, at(0))
	pods := onePod()
	pods = append(pods, &pod.Observed{Ref: pod.Ref{UID: "ends"}, Sandboxes: []pod.Sandbox{{ID: "other", Ready: true}}})
	s := newStats(t, func(c *Config) {
		c.HostRoot, c.PodsGroup, c.Runtime, c.Pods = hostV2(t), "/kubepods.slice", stub, pods
	})
	if peak, ok := s.MemoryPeak(webUID); !ok || peak != 9999999 {
		t.Errorf("memory peak %d, %v", peak, ok)
	}
	if peak, ok := s.MemoryPeak("unknown"); ok {
		t.Errorf("memory peak %d of an unknown pod", peak)
	}
	uses, err := s.PodUses(t.Context())
	if err != nil || len(stub.asked) != 0 {
		t.Errorf("%v; the runtime was asked for %q", err, stub.asked)
	}
	if web := uses[webUID]; web.Unknown || web.Memory == 0 || web.Processes != 3 || !uses["ends"].Unknown {
		t.Errorf("%+v", uses)
	}
	stub.err = errors.New("hung")
	s = newStats(t, func(c *Config) { c.HostRoot, c.Runtime = t.TempDir(), stub })
	if uses, err := s.PodUses(t.Context()); err == nil || len(stub.asked) == 0 {
		t.Errorf("%+v, %v; the runtime was asked for %q", uses, err, stub.asked)
	}
}

// If the runtime does not answer, the sizes of writable layers are unknown, but those of logs are known.
func TestPodDisks(t *testing.T) {
	t.Parallel()
	stub := (&runtimeStub{}).main(1, at(0))
	s := newStats(t, func(c *Config) { c.Runtime, c.Images, c.HostRoot = stub, stub, hostV1(t) })
	got, err := s.PodDisks(t.Context(), "")
	if web := got[webUID]; err != nil || web.NoLayers || web.Layers.Bytes != 4096 || web.Logs.Bytes != 111 {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := s.PodDisks(t.Context(), webUID); err != nil || len(got) != 1 || !slices.Equal(got[webUID].Containers, []ContainerDisk{{Name: "main", Layer: 4096, Logs: 111}}) {
		t.Errorf("of one pod: %+v %v", got, err)
	}
	asked := len(stub.asked)
	if got, err := s.PodDisks(t.Context(), "2"); err != nil || len(got) != 0 || len(stub.asked) != asked {
		t.Errorf("of a pod that has ended: %+v %v; the runtime was asked %q", got, err, stub.asked[asked:])
	}
	stub.err = errors.New("hung")
	got, err = s.PodDisks(t.Context(), "")
	if web := got[webUID]; err == nil || !web.NoLayers || web.NoLogs || web.Err != nil || web.Logs.Bytes != 111 {
		t.Errorf("of a runtime that fails: %+v %v", got, err)
	}
}

// A pod says when the runtime measured its layers. A layer that the runtime has not measured yet, or that its answer lacks, was empty when the
// container started.
func TestPodDisksSayWhenLayersWereMeasured(t *testing.T) {
	t.Parallel()
	stub := (&runtimeStub{}).main(1, at(0))
	s := newStats(t, func(c *Config) { c.Runtime, c.Images, c.HostRoot = stub, stub, hostV1(t) })
	layer := stub.containers[0].WritableLayer
	for name, tt := range map[string]struct {
		timestamp time.Time
		want      time.Time
	}{"measured": {at(-7), at(-7)}, "not measured yet": {time.Unix(0, 0), at(-50)}, "not in the answer": {want: at(-50)}} {
		stub.containers[0].WritableLayer = nil
		if !tt.timestamp.IsZero() {
			layer.Timestamp = tt.timestamp.UnixNano()
			stub.containers[0].WritableLayer = layer
		}
		got, err := s.PodDisks(t.Context(), webUID)
		if err != nil || !got[webUID].LayersAt.Equal(tt.want) || got[webUID].NoLayers {
			t.Errorf("%s: %+v, %v; want the layers of %s", name, got[webUID], err, tt.want)
		}
	}
}

// unreadable is a disk whose directories cannot be read completely.
type unreadable struct{ Disk }

func (d unreadable) UntrustedDiskUsage(ctx context.Context, dir string, depth int) (bytes, inodes uint64, err error) {
	bytes, inodes, _ = d.Disk.UntrustedDiskUsage(ctx, dir, depth)
	return bytes, inodes, errors.New("input/output error")
}

// If the logs of a pod cannot be measured completely, the pod says so, and why. What was found counts.
func TestPodDisksSayWhichLogsCouldNotBeMeasured(t *testing.T) {
	t.Parallel()
	stub := (&runtimeStub{}).main(1, at(0))
	s := newStats(t, func(c *Config) { c.Runtime, c.Images, c.HostRoot, c.Disk = stub, stub, hostV1(t), unreadable{c.Disk} })
	got, err := s.PodDisks(t.Context(), "")
	if web := got[webUID]; err != nil || !web.NoLogs || web.NoLayers || web.Logs.Bytes != 111 || web.Err == nil ||
		!strings.Contains(web.Err.Error(), `logs of container "main"`) {
		t.Errorf("%+v %v", got, err)
	}
}

// DiskLayout and LayerDir do not ask the runtime. They return the directories of images and layers after Run has asked the runtime.
func TestDiskLayoutDoesNotWait(t *testing.T) {
	t.Parallel()
	stub := &runtimeStub{}
	s := newStats(t, func(c *Config) { c.Runtime, c.Images = stub, stub })
	if _, _, known := s.DiskLayout(); known || s.LayerDir() != "" || len(stub.asked) != 0 {
		t.Errorf("known before the runtime has answered: %t, %q, asked for %q", known, s.LayerDir(), stub.asked)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, known := s.DiskLayout(); !known || s.LayerDir() != "/images" {
		t.Errorf("not known after the runtime has answered: %t, %q", known, s.LayerDir())
	}
}
