package hostfs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func fakeRoot(t *testing.T, files map[string]string) Machine {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
	}
	return Machine{Root: root}
}

func TestFacts(t *testing.T) {
	t.Parallel()
	m := fakeRoot(t, map[string]string{
		"etc/machine-id":                 "0123abc\n",
		"etc/os-release":                 "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
		"proc/sys/kernel/random/boot_id": "boot-1\n",
		"proc/sys/kernel/osrelease":      "6.1.0\n",
		"proc/sys/kernel/pid_max":        "32768\n",
		"proc/sys/kernel/threads-max":    "10000\n",
		"proc/meminfo":                   "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:   2 kB\nHugePages_Total:       0\nSwapTotal: 4 kB\nSwapFree: 3 kB\n",
		"proc/stat":                      "cpu 1 2 3\nbtime 1700000000\n",
		"proc/loadavg":                   "0.12 0.10 0.09 2/345 6789\n",
		"sys/devices/system/cpu/online":  "0-2,8\n",
		"sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages": "1\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":    "7\n",
	})
	got, err := m.Facts()
	must(t, err)
	want := Facts{
		MachineID: "0123abc", SystemUUID: "0123abc", BootID: "boot-1", KernelVersion: "6.1.0",
		OSImage: "Debian GNU/Linux 12 (bookworm)",
		CPUs:    4, MemoryBytes: 16384 << 10, SwapBytes: 4096, BootTime: time.Unix(1700000000, 0),
		HugePages: []HugePages{{2 << 20, 7}, {1 << 30, 1}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if n := m.PIDMax(); n != 10000 {
		t.Errorf("PIDMax %d", n)
	}
	if n, err := m.Tasks(); err != nil || n != 345 {
		t.Errorf("Tasks %d, %v", n, err)
	}
	mem, err := m.Memory()
	if diff := cmp.Diff(Memory{16384 << 10, 1024, 2048, 4096, 3072}, mem); err != nil || diff != "" {
		t.Errorf("%v -want +got:\n%s", err, diff)
	}
}

func TestFactsSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files map[string]string
		err   string
	}{
		"no CPUs":   {map[string]string{"proc/meminfo": "MemTotal: 1 kB\n"}, "count CPUs"},
		"no memory": {map[string]string{"proc/cpuinfo": "processor\t: 0\n"}, "read memory size"},
		"bad memory": {map[string]string{"proc/cpuinfo": "processor\t: 0\n", "proc/meminfo": "MemTotal: lots\n"},
			`line "MemTotal: lots"`},
	} {
		_, err := fakeRoot(t, tt.files).Facts()
		if err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %v, want %q", name, err, tt.err)
		}
	}
	got, err := fakeRoot(t, map[string]string{"proc/cpuinfo": "processor\t: 0\nmodel name: x\nprocessor\t: 1\n", "proc/meminfo": "MemTotal: 1 kB\n"}).Facts()
	if err != nil || got.CPUs != 2 || got.OSImage != "Linux" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestThisMachineHasFacts(t *testing.T) {
	t.Parallel()
	got, err := Machine{}.Facts()
	if err != nil || got.CPUs < 1 || got.MemoryBytes == 0 || got.KernelVersion == "" || got.BootTime.IsZero() || (Machine{}).PIDMax() == 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestParseCPUList(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int{"0": 1, "0-3": 4, "0-1,4-5,9": 5, "": -1, "3-1": -1, "a": -1} {
		n, err := parseCPUList(s)
		if (err != nil) != (want < 0) || (err == nil && n != want) {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
}

// Two threads of one core count as one core; a CPU that is offline, or whose topology is not known, is not counted.
func TestTopology(t *testing.T) {
	t.Parallel()
	files := map[string]string{"sys/devices/system/cpu/present": "0-4\n"}
	for cpu, at := range map[string][2]string{"cpu0": {"0", "0"}, "cpu1": {"0", "0"}, "cpu2": {"0", "1"}, "cpu3": {"1", "0"}} {
		dir := "sys/devices/system/cpu/" + cpu + "/topology/"
		files[dir+"physical_package_id"], files[dir+"core_id"] = at[0]+"\n", at[1]+"\n"
	}
	if cores, sockets := fakeRoot(t, files).Topology(); cores != 3 || sockets != 2 {
		t.Errorf("%d cores, %d sockets", cores, sockets)
	}
	for _, present := range []string{"", "x", "0-4294967295"} {
		if cores, sockets := fakeRoot(t, map[string]string{"sys/devices/system/cpu/present": present}).Topology(); cores != 0 || sockets != 0 {
			t.Errorf("present %q: %d cores, %d sockets", present, cores, sockets)
		}
	}
}
