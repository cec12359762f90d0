package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func number(n uint64) *uint64 { return &n }

func TestUsageV2(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	h := &hierarchy{v2: true, mounts: map[string]string{"": root}}
	write(t, filepath.Join(root, "p"), map[string]string{
		"cpu.stat":       "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\nnr_periods 10\nnr_throttled 2\nthrottled_usec 30\n",
		"memory.current": "1000\n", "memory.max": "max\n", "memory.swap.current": "7\n",
		"memory.stat":  "anon 300\nfile 500\nfile_mapped 20\ninactive_file 400\npgfault 9\npgmajfault 1\n",
		"pids.current": "3\n",
		"cpu.pressure": "some avg10=1.50 avg60=0.20 avg300=0.03 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=6\n",
	})
	got, err := h.usage("/p")
	if err != nil {
		t.Fatal(err)
	}
	want := Usage{
		CPU: &CPU{Nanos: 1500000, Periods: 10, Throttled: 2, Throttle: 30000},
		Memory: &Memory{
			Usage: 1000, WorkingSet: 600, RSS: 300, Cache: 500, MappedFile: 20, Swap: 7, PageFaults: 9, MajorPageFaults: 1,
		},
		Pids: number(3),
		PSI:  &PSI{CPU: &Pressure{Some: Stall{1.5, 0.2, 0.03, 12345}, Full: Stall{Total: 6}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestUsageV2OfTheRoot(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	h := &hierarchy{v2: true, mounts: map[string]string{"": root}}
	write(t, root, map[string]string{"memory.stat": "anon 300\nfile 500\ninactive_file 400\n", "cpu.stat": "usage_usec 2\n"})
	got, err := h.usage("/")
	if err != nil {
		t.Fatal(err)
	}
	want := Usage{CPU: &CPU{Nanos: 2000}, Memory: &Memory{Usage: 800, WorkingSet: 400, RSS: 300, Cache: 500}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestUsageV1(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	h := &hierarchy{mounts: map[string]string{}, controllers: []string{"cpu", "cpuacct", "memory", "pids"}}
	for _, c := range h.controllers {
		h.mounts[c] = filepath.Join(root, c)
	}
	write(t, filepath.Join(root, "cpuacct/p"), map[string]string{"cpuacct.usage": "77\n"})
	write(t, filepath.Join(root, "cpu/p"), map[string]string{"cpu.stat": "nr_periods 4\nnr_throttled 1\nthrottled_time 9\n"})
	write(t, filepath.Join(root, "pids/p"), map[string]string{"pids.current": "5\n"})
	write(t, filepath.Join(root, "memory/p"), map[string]string{
		"memory.usage_in_bytes": "100\n", "memory.limit_in_bytes": "9223372036854771712\n",
		"memory.stat": "rss 1\ntotal_rss 40\ntotal_cache 50\ntotal_inactive_file 120\ntotal_pgfault 8\ntotal_mapped_file 6\n",
	})
	got, err := h.usage("/p")
	if err != nil {
		t.Fatal(err)
	}
	want := Usage{
		CPU:    &CPU{Nanos: 77, Periods: 4, Throttled: 1, Throttle: 9},
		Memory: &Memory{Usage: 100, WorkingSet: 0, RSS: 40, Cache: 50, MappedFile: 6, PageFaults: 8},
		Pids:   number(5),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestUsageNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	h := &hierarchy{v2: true, mounts: map[string]string{"": root}}
	if _, err := h.usage("/gone"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group that is gone: got %v, want fs.ErrNotExist", err)
	}
	write(t, filepath.Join(root, "p"), map[string]string{"pids.current": "many\n"})
	if _, err := h.usage("/p"); err == nil {
		t.Error("a file that is no number was read as one")
	}
}
