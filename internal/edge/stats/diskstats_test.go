package stats

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestDeviceCounters(t *testing.T) {
	t.Parallel()
	root := hostV2(t)
	got := deviceCounters(root, "/dev/vda")
	want := diskCounters{211663, 30030, 10731426, 164722, 67479, 215082, 29017224, 184056, 2, 87520, 403048}
	if got == nil || *got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, device := range []string{"/dev/vd", "/dev/vdb", "0:42", ""} { // a device without a line, one with a bad line, a file system in memory, and no device
		if got := deviceCounters(root, device); got != nil {
			t.Errorf("%q has %+v", device, got)
		}
	}
	if got := deviceCounters(t.TempDir(), "/dev/vda"); got != nil {
		t.Errorf("without the file: %+v", got)
	}
}

func TestDeviceRows(t *testing.T) {
	t.Parallel()
	s := newStats(t, func(c *Config) { c.HostRoot = hostV2(t) })
	for _, withCounts := range []bool{true, false} {
		metrics := make(chan prometheus.Metric, 32)
		v := scene{f: newCadvisorFamilies(), out: sink{to: metrics}, r: &reading{at: at(0)}, disks: s.disks(t.Context(), time.Time{})}
		v.device("/dev/vda", withCounts, labels{1: "/"})
		if got, want := len(metrics), map[bool]int{true: 11, false: 9}[withCounts]; got != want {
			t.Errorf("with counts %v: %d rows, want %d", withCounts, got, want)
		}
	}
}
