package stats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/wherry-node/wherry/internal/pod"
	"github.com/wherry-node/wherry/internal/pressure"
)

var epoch = time.Unix(1_700_000_000, 0).UTC()

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// host writes files and makes every directory as old as epoch.
func host(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Symlink(target, file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = os.Chtimes(path, epoch, epoch)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return root
}

const (
	webUID = types.UID("11111111-aaaa-bbbb-cccc-000000000001")
	netDev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0
  eth0: 1000 10 1 2 0 0 0 0 2000 20 3 4 0 0 0 0
`
	route = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\neth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\n"
)

// under puts a set of files into several directories.
func under(files map[string]string, sets map[string]map[string]string) map[string]string {
	for dir, set := range sets {
		for name, content := range set {
			files[filepath.Join(dir, name)] = content
		}
	}
	return files
}

func hostV2(t *testing.T) string {
	group := func(usec, current, inactive, max string) map[string]string {
		return map[string]string{
			"cpu.stat":       "usage_usec " + usec + "\nuser_usec 600000\nsystem_usec 400000\nnr_periods 10\nnr_throttled 2\nthrottled_usec 5000\n",
			"memory.current": current + "\n", "memory.max": max + "\n", "memory.swap.current": "4096\n", "memory.swap.max": "max\n", "memory.peak": "9999999\n",
			"memory.stat":   "anon 4000000\nfile 3000000\nkernel 100000\nfile_mapped 200000\ninactive_file " + inactive + "\nactive_file 1000000\npgfault 50\npgmajfault 5\n",
			"memory.events": "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n", "memory.low": "0\n",
			"cpu.weight": "39\n", "cpu.max": "50000 100000\n", "pids.current": "3\n", "pids.max": "max\n",
			"cpu.pressure":    "some avg10=1.50 avg60=0.50 avg300=0.10 total=3000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n",
			"memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
			"io.pressure":     "some avg10=0.00 avg60=0.00 avg300=0.00 total=20\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=10\n",
			"io.stat":         "253:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n", "cgroup.procs": "42\n43\n",
		}
	}
	top := "sys/fs/cgroup"
	pods := top + "/kubepods.slice"
	web := pods + "/kubepods-burstable.slice/kubepods-burstable-pod11111111_aaaa_bbbb_cccc_000000000001.slice"
	return host(t, under(map[string]string{
		top + "/cgroup.controllers": "cpu memory\n", "proc/meminfo": "MemTotal: 16000 kB\nMemFree: 4000 kB\n",
		"proc/net/dev": netDev, "proc/net/route": route, "proc/42/net/dev": netDev, "proc/42/net/route": route,
		"sys/dev/block/253:0": "-> ../../devices/virtual/block/vda",
	}, map[string]map[string]string{
		top:                                {"cpu.stat": "usage_usec 90000000\nuser_usec 1\nsystem_usec 1\n", "memory.stat": "anon 1\ninactive_file 1024000\n"},
		pods:                               group("5000000", "20000000", "0", "100000000"),
		pods + "/kubepods-burstable.slice": group("5000000", "20000000", "0", "max"),
		web:                                group("3000000", "10000000", "2000000", "20000000"),
		web + "/cri-containerd-ccc.scope":  group("1000000", "8000000", "1000000", "16000000"),
		web + "/cri-containerd-sss.scope":  group("100000", "500000", "0", "max"),
	}))
}

func hostV1(t *testing.T) string {
	files := map[string]string{
		"proc/net/dev": netDev, "proc/net/route": route, "proc/42/net/dev": netDev, "sys/dev/block/8:0": "-> ../../devices/sda",
	}
	put := func(group string, nanos, usage, limit string) {
		c := "sys/fs/cgroup/"
		under(files, map[string]map[string]string{
			c + "cpuacct" + group: {"cpuacct.usage": nanos, "cpuacct.usage_user": "600", "cpuacct.usage_sys": "400"},
			c + "cpu" + group:     {"cpu.stat": "nr_periods 10\nnr_throttled 2\nthrottled_time 5000000\n", "cpu.shares": "1024", "cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
			c + "pids" + group:    {"pids.current": "3", "pids.max": "100"},
			c + "memory" + group: {
				"memory.usage_in_bytes": usage, "memory.limit_in_bytes": limit, "memory.max_usage_in_bytes": "9999999", "memory.failcnt": "7",
				"memory.memsw.usage_in_bytes": usage + "0", "memory.memsw.limit_in_bytes": "9223372036854771712", "memory.kmem.usage_in_bytes": "100000",
				"memory.soft_limit_in_bytes": "9223372036854771712", "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
				"memory.stat":  "rss 1\npgfault 40\npgmajfault 4\ntotal_rss 4000000\ntotal_cache 3000000\ntotal_mapped_file 200000\ntotal_inactive_file 1000000\ntotal_active_file 1000000\ntotal_pgfault 50\ntotal_pgmajfault 5\n",
				"cgroup.procs": "42\n",
			},
			c + "blkio" + group: {
				"blkio.throttle.io_service_bytes_recursive": "8:0 Read 4096\n8:0 Write 8192\n8:0 Total 12288\nTotal 12288\n",
				"blkio.throttle.io_serviced_recursive":      "8:0 Read 1\n8:0 Write 2\nTotal 3\n",
			},
		})
	}
	none := "9223372036854771712"
	put("", "90000000000", "12000000", none)
	put("/kubepods", "5000000000", "9000000", none)
	put("/kubepods/pod"+string(webUID), "3000000000", "8000000", "20000000")
	put("/kubepods/pod"+string(webUID)+"/ccc", "1000000000", "8000000", "16000000")
	put("/kubepods/pod"+string(webUID)+"/sss", "100000000", "1500000", none)
	return host(t, files)
}

type pods []*pod.Observed

func (p pods) Observed() []*pod.Observed { return p }

func onePod() pods {
	return pods{{
		Ref:       pod.Ref{Namespace: "default", Name: "web", UID: webUID},
		Sandboxes: []pod.Sandbox{{ID: "sss", Ready: true, CreatedAt: at(-100)}},
		Containers: []pod.Container{
			{ID: "ccc", Name: "main", Image: "web:1", Attempt: 1, State: pod.StateRunning, CreatedAt: at(-51), StartedAt: at(-50)},
			{ID: "old", Name: "main", Image: "web:1", State: pod.StateExited, CreatedAt: at(-99), StartedAt: at(-99)},
		},
	}, {
		Ref:        pod.Ref{Namespace: "default", Name: "done", UID: "2"},
		Sandboxes:  []pod.Sandbox{{ID: "gone"}},
		Containers: []pod.Container{{ID: "ddd", Name: "main", State: pod.StateExited}},
	}}
}

// runtimeStub answers with what it is given.
type runtimeStub struct {
	containers []*runtimeapi.ContainerStats
	sandboxes  []*runtimeapi.PodSandboxStats
	sandboxErr error
	err        error
	asked      []string
}

func (r *runtimeStub) ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest, ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error) {
	r.asked = append(r.asked, "containers")
	return &runtimeapi.ListContainerStatsResponse{Stats: r.containers}, r.err
}

func (r *runtimeStub) ListPodSandboxStats(context.Context, *runtimeapi.ListPodSandboxStatsRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	r.asked = append(r.asked, "sandboxes")
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: r.sandboxes}, r.sandboxErr
}

func (r *runtimeStub) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest, ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error) {
	r.asked = append(r.asked, "images")
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{filesystem(777, 7)}}, nil
}

func number(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

func filesystem(bytes, inodes uint64) *runtimeapi.FilesystemUsage {
	return &runtimeapi.FilesystemUsage{
		Timestamp: at(0).UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}, UsedBytes: number(bytes), InodesUsed: number(inodes),
	}
}

func (r *runtimeStub) main(nanos uint64, when time.Time) *runtimeStub {
	r.containers = []*runtimeapi.ContainerStats{{
		Attributes:    &runtimeapi.ContainerAttributes{Id: "ccc"},
		Cpu:           &runtimeapi.CpuUsage{Timestamp: when.UnixNano(), UsageCoreNanoSeconds: number(nanos)},
		Memory:        &runtimeapi.MemoryUsage{Timestamp: when.UnixNano(), WorkingSetBytes: number(5000000), UsageBytes: number(6000000)},
		WritableLayer: filesystem(4096, 3),
	}}
	return r
}

type disk struct{}

func (disk) DiskSpace(path string) (uint64, uint64, uint64, uint64, error) {
	if path == "/images" {
		return 2000, 500, 200, 50, nil
	}
	return 1000, 400, 100, 40, nil
}

func (disk) DiskUsage(_ context.Context, dir string) (uint64, uint64, error) {
	if !strings.HasSuffix(dir, "/default_web_"+string(webUID)+"/main") {
		return 0, 0, fs.ErrNotExist
	}
	return 111, 2, nil
}

func (disk) VolumeUsage(_ context.Context, uid types.UID) ([]Volume, error) {
	return []Volume{
		{Name: "scratch", Ephemeral: true, CapacityBytes: 1000, AvailableBytes: 400, UsedBytes: 50, Inodes: 100, InodesFree: 40, InodesUsed: 5, Time: at(0)},
		{Name: "data", PVCNamespace: "default", PVCName: "claim", CapacityBytes: 9, UsedBytes: 3, Time: at(0)},
	}, nil
}

func newStats(t *testing.T, change func(*Config)) *Stats {
	t.Helper()
	cfg := Config{
		NodeName: "n1", Version: "v1.36.3+wherry.0.1.0", Pods: onePod(), Disk: disk{}, Volumes: disk{}, LogDir: "/var/log/pods", RootDir: "/var/lib/kubelet-of-no-machine",
		Machine: Machine{CPUs: 4, MemoryBytes: 16384000, SwapBytes: 1024, BootTime: at(-1000), MachineID: "m", SystemUUID: "s", BootID: "b",
			KernelVersion: "6.1", OSImage: "Debian", MaxPID: 1000, Tasks: func() (int64, error) { return 77, nil }},
		Now: func() time.Time { return at(0) }, Log: slog.New(slog.DiscardHandler),
	}
	change(&cfg)
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func get(t *testing.T, h http.Handler, target string) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("GET %s: %d %v %s", target, w.Code, err, body)
	}
	return string(body)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("GOLDEN") != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (GOLDEN=1 rewrites it):\n%s", file, diff)
	}
}

// TestEndpoints compares all that the three endpoints say with testdata: control groups of both versions, and a
// simulated node that has none.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, c *Config){
		"v2": func(t *testing.T, c *Config) {
			c.HostRoot, c.PodsGroup = hostV2(t), "/kubepods.slice"
			stub := (&runtimeStub{sandboxErr: errors.New("must not be asked")}).main(1, at(0))
			c.Runtime, c.Images = stub, stub
			c.SystemGroups = map[string]string{"kubelet": "/kubepods.slice/kubepods-burstable.slice"}
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

// metrics-server asks /metrics/resource; where the files have the answer, the runtime is left alone.
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

func TestScrapeErrorIsTold(t *testing.T) {
	t.Parallel()
	s := newStats(t, func(c *Config) { c.HostRoot, c.Runtime = t.TempDir(), &runtimeStub{err: errors.New("down")} })
	for _, want := range []string{"resource_scrape_error 1", "scrape_error 1"} {
		if body := get(t, s.Resource(), "/metrics/resource"); !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
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
		"a container too young":      {{0, 9, at(0), 0, false}},
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

// A container that has gone leaves nothing behind.
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

func TestSignals(t *testing.T) {
	t.Parallel()
	stub := &runtimeStub{}
	s := newStats(t, func(c *Config) {
		c.HostRoot, c.PodsGroup, c.Images = hostV2(t), "/kubepods.slice", stub
	})
	got, err := s.Signals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	one := func(available, capacity int64) pressure.Observation {
		return pressure.Observation{Available: available, Capacity: capacity, At: at(0)}
	}
	want := pressure.Signals{
		pressure.MemoryAvailable: one(16384000-11264000, 16384000), pressure.AllocatableMemoryAvailable: one(80000000, 100000000),
		pressure.NodefsAvailable: one(400, 1000), pressure.NodefsInodesFree: one(40, 100),
		pressure.ImagefsAvailable: one(500, 2000), pressure.ImagefsInodesFree: one(50, 200),
		pressure.ContainerfsAvailable: one(500, 2000), pressure.ContainerfsInodesFree: one(50, 200),
		pressure.PIDAvailable: one(1000-77, 1000),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := s.Signals(t.Context()); err != nil || strings.Join(stub.asked, " ") != "images" {
		t.Errorf("the runtime was asked for %v (%v), want images once", stub.asked, err)
	}
}

func TestSignalsThatCannotBeReadAreAbsent(t *testing.T) {
	t.Parallel()
	s := newStats(t, func(c *Config) {
		c.HostRoot, c.PodsGroup, c.Disk = t.TempDir(), "/kubepods", brokenDisk{}
		c.Machine.Tasks = func() (int64, error) { return 0, errors.New("no /proc") }
	})
	got, err := s.Signals(t.Context())
	if len(got) != 0 || err == nil || !strings.Contains(err.Error(), "no /proc") || !strings.Contains(err.Error(), "no disk") {
		t.Errorf("signals %v, error %v", got, err)
	}
}

type brokenDisk struct{ disk }

func (brokenDisk) DiskSpace(string) (uint64, uint64, uint64, uint64, error) {
	return 0, 0, 0, 0, errors.New("no disk")
}

// A node with a hundred pods is measured in milliseconds.
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

// This machine's own groups can be read.
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
