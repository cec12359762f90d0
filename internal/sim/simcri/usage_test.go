package simcri_test

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// limited returns a request for a container with a CPU limit in thousandths of a core; 0: no limit.
func limited(sandbox, pod string, attempt uint32, milli int64) *runtimeapi.CreateContainerRequest {
	req := createRequest(sandbox, pod, "main", attempt)
	req.Config.Linux = &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, CpuQuota: milli * 100}}
	return req
}

func statsOf(t *testing.T, r *simcri.Runtime, id string) *runtimeapi.ContainerStats {
	t.Helper()
	resp, err := r.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Stats
}

// A container gets no more CPU time than its limit allows, as from a kernel. After a resize the new limit counts, and only from then on.
func TestCPUIsThrottled(t *testing.T) {
	const most = time.Millisecond
	for name, annotations := range map[string]map[string]string{
		"annotation": {simcri.AnnotationCPU: "2"}, "rule": {simcri.AnnotationDo: "cpu: {value: 2}"},
		"wave": {simcri.AnnotationDo: "cpu: {value: 3, wave: {amplitude: 1, period: 10s}}"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
				id := startContainer(t, r, limited(runSandbox(t, r, "p", annotations), "p", 0, 500))
				is := func(after string, total time.Duration, cores float64) {
					t.Helper()
					c := statsOf(t, r, id).Cpu
					if d := time.Duration(c.UsageCoreNanoSeconds.Value) - total; d.Abs() > most || c.UsageNanoCores.Value != uint64(cores*1e9) { //nolint:gosec // small
						t.Errorf("%s: %v, want %s and %v cores", after, c, total, cores)
					}
				}
				resize := func(quota int64) {
					t.Helper()
					_, err := r.UpdateContainerResources(t.Context(), &runtimeapi.UpdateContainerResourcesRequest{
						ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, CpuQuota: quota},
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(10 * time.Second)
				is("10 s with half a core", 5*time.Second, 0.5)
				resize(100_000)
				is("a higher limit", 5*time.Second, 1)
				time.Sleep(10 * time.Second)
				is("10 s with a core", 15*time.Second, 1)
				resize(10_000)
				time.Sleep(10 * time.Second)
				is("10 s with a tenth of a core", 16*time.Second, 0.1)
				if name == "wave" {
					return
				}
				resize(-1)
				time.Sleep(10 * time.Second)
				is("10 s without a limit", 36*time.Second, 2)
			})
		})
	}
}

// CPU counters only grow: that of a container stays when it has ended, and that of a sandbox also counts the containers that have ended or are
// removed. Whoever computes a rate from two readings takes a counter that falls for a broken one.
func TestCPUCountersNeverFall(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		sandbox := runSandbox(t, r, "p", map[string]string{simcri.AnnotationCPU: "1", simcri.AnnotationRunFor: "10s", simcri.AnnotationFailAttempts: "1"})
		first := startContainer(t, r, limited(sandbox, "p", 0, 0))
		is := func(what string, want time.Duration) {
			t.Helper()
			resp, err := r.PodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: sandbox})
			if err != nil {
				t.Fatal(err)
			}
			if got := time.Duration(resp.Stats.Linux.Cpu.UsageCoreNanoSeconds.Value); got != want { //nolint:gosec // small
				t.Errorf("%s: the sandbox has used %s, want %s", what, got, want)
			}
		}
		time.Sleep(5 * time.Second)
		is("one container", 5*time.Second)
		time.Sleep(10 * time.Second)
		is("it has ended", 10*time.Second)
		if c := statsOf(t, r, first).Cpu; c.UsageCoreNanoSeconds.Value != 10e9 || c.UsageNanoCores.Value != 0 {
			t.Errorf("a container that has ended after 10 s: %v", c)
		}
		startContainer(t, r, limited(sandbox, "p", 1, 0))
		time.Sleep(5 * time.Second)
		is("its next attempt", 15*time.Second)
		if _, err := r.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: first}); err != nil {
			t.Fatal(err)
		}
		is("the first is removed", 15*time.Second)
	})
}

// A container that runs has used some CPU time and some memory, whatever its annotations say: metrics-server takes a 0 for a failed measurement and
// then drops the whole pod.
func TestRunningContainersUseSomething(t *testing.T) {
	inBubble(t, simcri.Config{}, func(t *testing.T, r *simcri.Runtime) {
		id := startContainer(t, r, limited(runSandbox(t, r, "p", map[string]string{simcri.AnnotationCPU: "0", simcri.AnnotationMemory: "0"}), "p", 0, 0))
		before := statsOf(t, r, id)
		time.Sleep(time.Hour)
		after := statsOf(t, r, id)
		if before.Cpu.UsageCoreNanoSeconds.Value == 0 || before.Memory.WorkingSetBytes.Value == 0 {
			t.Errorf("it seems to use nothing: %v", before)
		}
		if after.Cpu.UsageCoreNanoSeconds.Value != before.Cpu.UsageCoreNanoSeconds.Value {
			t.Errorf("it used CPU time in its idle hour: %v, then %v", before.Cpu, after.Cpu)
		}
		if _, _, processes := r.Used(); processes != 1 {
			t.Errorf("there are %d processes, want 1", processes)
		}
	})
}

// A runtime that is late with disks, as containerd is, says nothing of a new layer, then what it found the last time. The files of a removed container
// take their space for a while.
func TestDisksAreLate(t *testing.T) {
	lag := simcri.Lag{Layers: 10 * time.Second, Deletion: time.Second}
	inBubble(t, simcri.Config{Lag: lag}, func(t *testing.T, r *simcri.Runtime) {
		time.Sleep(3 * time.Second)
		sandbox := runSandbox(t, r, "p", map[string]string{simcri.AnnotationDisk: "1000", simcri.AnnotationDiskGrows: "1000"})
		id := startContainer(t, r, createRequest(sandbox, "p", "main", 0))
		began := time.Now()
		for _, tt := range []struct {
			after, measured time.Duration
			bytes           uint64
		}{{5 * time.Second, -1, 0}, {8 * time.Second, 7 * time.Second, 8000}, {16 * time.Second, 7 * time.Second, 8000}, {18 * time.Second, 17 * time.Second, 18000}} {
			time.Sleep(time.Until(began.Add(tt.after)))
			at := int64(0)
			if tt.measured >= 0 {
				at = began.Add(tt.measured).UnixNano()
			}
			if l := statsOf(t, r, id).WritableLayer; l.Timestamp != at || l.UsedBytes.Value != tt.bytes {
				t.Errorf("after %s: %v, want %d bytes after %s", tt.after, l, tt.bytes, tt.measured)
			}
		}
		_, before, _ := r.Used()
		if _, err := r.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
			t.Fatal(err)
		}
		if _, now, _ := r.Used(); now != before {
			t.Errorf("%d bytes are in use right after the removal, want %d", now, before)
		}
		time.Sleep(time.Second)
		if _, now, _ := r.Used(); now != before-19000 {
			t.Errorf("%d bytes are in use after the deletion, want %d", now, before-19000)
		}
	})
}
