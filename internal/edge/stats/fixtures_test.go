package stats

import (
	"context"
	"flag"
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
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

var epoch = time.Unix(1_700_000_000, 0).UTC()

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

// host writes files below a new root directory, and sets the time of every directory to epoch.
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

// under adds files to the map files and returns it. files maps a path to the content of a file. sets maps a directory to its files,
// which are given by name and content.
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
			"cpu.stat":       "usage_usec " + usec + "\nuser_usec 600000\nsystem_usec 400000\nnr_periods 10\nnr_throttled 2\nthrottled_usec 5000\nnr_bursts 1\nburst_usec 700\n",
			"memory.current": current + "\n", "memory.max": max + "\n", "memory.swap.current": "4096\n", "memory.swap.max": "max\n", "memory.peak": "9999999\n",
			"memory.stat":   "anon 4000000\nfile 3000000\nkernel 100000\nfile_mapped 200000\ninactive_file " + inactive + "\nactive_file 1000000\npgfault 50\npgmajfault 5\n",
			"memory.events": "low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\n", "memory.low": "0\n",
			"cpu.weight": "39\n", "cpu.max": "50000 100000\n", "pids.current": "3\n", "pids.max": "max\n",
			"cpu.pressure":    "some avg10=1.50 avg60=0.50 avg300=0.10 total=3000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1000\n",
			"memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
			"io.pressure":     "some avg10=0.00 avg60=0.00 avg300=0.00 total=20\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=10\n",
			"io.stat":         "253:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0 cost.vrate=100.00 cost.usage=2500000 cost.wait=1 cost.indebt=0 cost.indelay=500000\n", "cgroup.procs": "42\n43\n",
		}
	}
	top := "sys/fs/cgroup"
	pods := top + "/kubepods.slice"
	web := pods + "/kubepods-burstable.slice/kubepods-burstable-pod11111111_aaaa_bbbb_cccc_000000000001.slice"
	return host(t, under(map[string]string{
		top + "/cgroup.controllers": "cpu memory\n", "proc/meminfo": "MemTotal: 16000 kB\nMemFree: 4000 kB\nSwapTotal: 2000 kB\nSwapFree: 1500 kB\n",
		"proc/net/dev": netDev, "proc/net/route": route, "proc/42/net/dev": netDev, "proc/42/net/route": route,
		"proc/diskstats": "   7       0 loop0 9 9 9 9 9 9 9 9 9 9 9\n 253       0 vda 211663 30030 10731426 164722 67479 215082 29017224 184056 2 87520 403048 44227 83 10060256 46728 2956 7540\n 254 0 vdb a\n",
		"proc/42/fd/0":   "-> /dev/null", "proc/42/fd/1": "-> pipe:[1]", "proc/42/fd/3": "-> socket:[2]", "proc/43/fd/0": "-> socket:[3]",
		"proc/42/limits":      "Limit                     Soft Limit           Hard Limit           Units\nMax open files            1024                 4096                 files\n",
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
		"proc/net/dev": netDev, "proc/net/route": route, "proc/42/net/dev": netDev, "proc/42/limits": "Max open files            unlimited            unlimited            files\n", "proc/42/fd/0": "-> /dev/null",
		"sys/dev/block/8:0": "-> ../../devices/sda",
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

// runtimeStub is a runtime with fixed answers.
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

func (disk) UntrustedDiskUsage(_ context.Context, dir string, _ int) (uint64, uint64, error) {
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

func (disk) FilesUsage(uid types.UID) (uint64, uint64, error) { return 7000, 3, nil }

func newStats(t *testing.T, change func(*Config)) *Stats {
	t.Helper()
	cfg := Config{
		NodeName: "n1", Version: "v1.36.3+wherry.0.1.0", Pods: onePod(), Disk: disk{}, Volumes: disk{}, LogDir: "/var/log/pods", RootDir: "/var/lib/kubelet-of-no-machine",
		Machine: func() Machine {
			return Machine{CPUs: 4, Cores: 2, Sockets: 1, MemoryBytes: 16384000, SwapBytes: 2048000, BootTime: at(-1000), MachineID: "m", SystemUUID: "s", BootID: "b",
				KernelVersion: "6.1", OSImage: "Debian", MaxPID: func() int64 { return 1000 }, Tasks: func() (int64, error) { return 77, nil }}
		},
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

var update = flag.Bool("update", false, "rewrite the expected answers in testdata")

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
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
		t.Errorf("%s (-update rewrites it):\n%s", file, diff)
	}
}
