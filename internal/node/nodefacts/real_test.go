package nodefacts

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// machine returns a Real that reads the given files below proc.
func machine(t *testing.T, files map[string]string) *Real {
	t.Helper()
	r := &Real{Proc: hostfs.Machine{Root: t.TempDir()}, RootDir: t.TempDir(), ImageDir: func() string { return "" }}
	write(t, r, files)
	return r
}

func write(t *testing.T, r *Real, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(r.Proc.Root, "proc", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The pods use little memory, but have much page cache, which the kernel frees when it needs memory. No threshold of the pods' memory is met,
// however large the threshold is. A threshold is met if the pods use too much without page cache.
func TestPageCacheMeetsNoThreshold(t *testing.T) {
	t.Parallel()
	const mi = 1 << 20
	for name, c := range map[string]struct {
		threshold, reclaim string
		used               int64 // without page cache
		met                bool
	}{
		"a small threshold":           {"100Mi", "", 200 * mi, false},
		"40 %":                        {"40%", "", 200 * mi, false},
		"300 MiB":                     {"300Mi", "", 200 * mi, false},
		"the whole limit":             {"900Mi", "", 0, false},
		"with the minimum reclaim":    {"200Mi", "400Mi", 200 * mi, false},
		"40 %, and the pods use much": {"40%", "", 545 * mi, true},
	} {
		in := pressure.ParseInput{Hard: map[string]string{"memory.available": c.threshold}, EnforceNodeAllocatable: []string{"pods"}}
		if c.reclaim != "" {
			in.MinimumReclaim = map[string]string{"memory.available": c.reclaim}
		}
		parsed, err := pressure.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		var thresholds []pressure.Threshold
		for _, th := range parsed {
			if th.Signal == pressure.AllocatableMemoryAvailable {
				thresholds = append(thresholds, th)
			}
		}
		r := machine(t, nil)
		r.PodsMemory = func() int64 { return 900 * mi }
		r.Wanted = func(limit int64) int64 { return thresholds[0].Wanted(limit) }
		cache := int64(620*mi) - c.used
		r.Pods = func(enough uint64) (uint64, bool) {
			if all := uint64(c.used + cache); all <= enough {
				return all, true
			}
			return uint64(c.used), true
		}
		// The threshold was met before, so its minimum reclaim counts.
		was := pressure.Evaluate(pressure.Input{
			Signals:    pressure.Signals{pressure.AllocatableMemoryAvailable: {Available: 1, Capacity: 900 * mi}},
			Thresholds: thresholds, Now: time.Unix(1, 0),
		})
		now := pressure.Evaluate(pressure.Input{Signals: r.Signals(t.Context()), Thresholds: thresholds, Previous: was.State, Now: time.Unix(2, 0)})
		if len(now.Missing) > 0 || (len(now.Met) > 0) != c.met {
			t.Errorf("%s: met are %v, missing %v; want met: %t", name, now.Met, now.Missing, c.met)
		}
	}
}

// An administrator changes the limits of process IDs while the agent runs. The next measurement uses the new limit.
func TestTheLimitOfProcessIDsMayChange(t *testing.T) {
	t.Parallel()
	r := machine(t, map[string]string{
		"sys/kernel/pid_max": "32768\n", "sys/kernel/threads-max": "8000000\n", "loadavg": "0 0 0 2/30000 6789\n",
		"cpuinfo": "processor\t: 0\n", "meminfo": "MemTotal: 1024 kB\n",
	})
	if _, err := r.Facts(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		limit string
		want  pressure.Observation
	}{
		{"32768\n", pressure.Observation{Available: 2768, Capacity: 32768}}, {"4194304\n", pressure.Observation{Available: 4164304, Capacity: 4194304}},
		{"", pressure.Observation{Available: 7970000, Capacity: 8000000}},
	} {
		write(t, r, map[string]string{"sys/kernel/pid_max": c.limit})
		if got := r.Signals(t.Context())[pressure.PIDAvailable]; got != c.want {
			t.Errorf("pid_max %q: %+v, want %+v", c.limit, got, c.want)
		}
	}
}

// BenchmarkSignals measures what one measurement for evictions costs, with the files of this machine. Near a threshold of memory there are
// twenty of them in a second.
func BenchmarkSignals(b *testing.B) {
	dir := b.TempDir()
	r := &Real{Proc: hostfs.Machine{Root: "/"}, Disk: hostfs.Host{}, RootDir: dir, ImageDir: func() string { return dir }}
	if s := r.Signals(b.Context()); s[pressure.MemoryAvailable].Capacity == 0 || s[pressure.ImagefsAvailable].Capacity == 0 {
		b.Skipf("this machine cannot be measured: %v", s)
	}
	for b.Loop() {
		r.Signals(b.Context())
	}
}
