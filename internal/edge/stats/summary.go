package stats

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

func (s *Stats) serveSummary(w http.ResponseWriter, r *http.Request) {
	want, measurement := everything, &s.summaries
	if text := r.URL.Query().Get("only_cpu_and_memory"); text != "" {
		only, err := strconv.ParseBool(text)
		if err != nil {
			http.Error(w, fmt.Sprintf("only_cpu_and_memory: %q is neither true nor false", text), http.StatusBadRequest)
			return
		}
		if only {
			want, measurement = cpuAndMemory, &s.shortSummaries
		}
	}
	body, err := measurement.do(r.Context(), func(ctx context.Context) ([]byte, error) {
		body, err := json.MarshalIndent(s.summarize(ctx, want), "", " ")
		return append(body, '\n'), err
	})
	if r.Context().Err() != nil {
		return // the client is gone, or the server ends
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // ignore the error: the client may be gone
}

// Read measures everything and returns it in the form of /stats/summary. Eviction and the node status use it.
func (s *Stats) Read(ctx context.Context) *statsapi.Summary { return s.summarize(ctx, everything) }

// CPUAndMemory measures the CPU and memory of the node and of its containers, and returns them in the form of /stats/summary.
func (s *Stats) CPUAndMemory(ctx context.Context) *statsapi.Summary {
	return s.summarize(ctx, cpuAndMemory)
}

func (s *Stats) summarize(ctx context.Context, want level) *statsapi.Summary {
	r, err := s.collect(ctx, want)
	if err != nil {
		s.cfg.Log.Warn("stats are incomplete", "err", err)
	}
	out := &statsapi.Summary{Node: statsapi.NodeStats{
		NodeName: s.cfg.NodeName, StartTime: s.shown(s.machine().BootTime),
		CPU: s.cpuStats(&r.node), Memory: s.memoryStats(&r.node), Swap: s.swapStats(&r.node),
		SystemContainers: s.systemContainers(r),
	}}
	ctx, cancel := context.WithTimeout(ctx, diskWithin)
	defer cancel()
	disks := s.disks(ctx, r.at)
	if want == everything {
		out.Node.IO = s.ioStats(&r.node)
		out.Node.Network = s.networkStats(r.network, r.at)
		out.Node.Fs = disks.space(s.cfg.RootDir)
		if out.Node.Fs != nil {
			out.Node.Fs.UsedBytes = ptr(less(*out.Node.Fs.CapacityBytes, *out.Node.Fs.AvailableBytes))
			out.Node.Fs.InodesUsed = ptr(less(*out.Node.Fs.Inodes, *out.Node.Fs.InodesFree))
		}
		out.Node.Runtime = disks.runtime()
		out.Node.Rlimit = s.rlimit(r.at)
	}
	out.Pods = make([]statsapi.PodStats, 0, len(r.pods))
	for i := range r.pods {
		p := s.podStats(&r.pods[i], want)
		if want == everything {
			disks.pod(&r.pods[i], &p)
		}
		out.Pods = append(out.Pods, p)
	}
	return out
}

// shown returns what the node's clock shows at an instant.
func (s *Stats) shown(t time.Time) metav1.Time { return metav1.NewTime(s.cfg.Clock.Shows(t)) }

func (s *Stats) podStats(p *podReading, want level) statsapi.PodStats {
	out := statsapi.PodStats{
		PodRef:    statsapi.PodReference{Name: p.ref.Name, Namespace: p.ref.Namespace, UID: string(p.ref.UID)},
		StartTime: s.shown(p.created), CPU: s.cpuStats(&p.usage), Memory: s.memoryStats(&p.usage), Swap: s.swapStats(&p.usage),
		Containers: make([]statsapi.ContainerStats, 0, len(p.containers)),
	}
	if want == everything {
		out.IO = s.ioStats(&p.usage)
		out.Network = s.networkStats(p.network, p.usage.at)
		if p.usage.pids != nil {
			out.ProcessStats = &statsapi.ProcessStats{ProcessCount: p.usage.pids}
		}
	}
	for i := range p.containers {
		c := &p.containers[i]
		one := s.containerStats(c.name, c.started, &c.usage)
		if want != everything {
			one.IO = nil
		}
		out.Containers = append(out.Containers, one)
	}
	return out
}

func (s *Stats) containerStats(name string, started time.Time, u *usage) statsapi.ContainerStats {
	return statsapi.ContainerStats{
		Name: name, StartTime: s.shown(started), CPU: s.cpuStats(u), Memory: s.memoryStats(u), Swap: s.swapStats(u), IO: s.ioStats(u),
	}
}

// systemContainers returns the statistics of the groups outside the pods, and of the group of all pods. Eviction computes from the
// group of all pods how much allocatable memory is left.
func (s *Stats) systemContainers(r *reading) []statsapi.ContainerStats {
	var out []statsapi.ContainerStats
	if r.allPods.cpu != nil || r.allPods.memory != nil {
		out = append(out, s.containerStats(statsapi.SystemContainerPods, r.began, &r.allPods))
	}
	for name, u := range r.system {
		out = append(out, s.containerStats(name, u.started, &u.usage))
	}
	inorder.Sort(out, func(a, b statsapi.ContainerStats) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

func (s *Stats) cpuStats(u *usage) *statsapi.CPUStats {
	if u.cpu == nil {
		return nil
	}
	return &statsapi.CPUStats{Time: s.shown(u.cpu.at), UsageNanoCores: u.cpu.rate, UsageCoreNanoSeconds: &u.cpu.nanos, PSI: psiStats(u.psi.cpu)}
}

func (s *Stats) memoryStats(u *usage) *statsapi.MemoryStats {
	m := u.memory
	if m == nil {
		return nil
	}
	return &statsapi.MemoryStats{
		Time: s.shown(m.at), AvailableBytes: m.available, UsageBytes: m.usage, WorkingSetBytes: m.workingSet,
		RSSBytes: m.rss, PageFaults: m.faults, MajorPageFaults: m.majorFaults, PSI: psiStats(u.psi.memory),
	}
}

func (s *Stats) swapStats(u *usage) *statsapi.SwapStats {
	if u.swap == nil {
		return nil
	}
	return &statsapi.SwapStats{Time: s.shown(u.swap.at), SwapUsageBytes: u.swap.usage, SwapAvailableBytes: u.swap.available}
}

func (s *Stats) ioStats(u *usage) *statsapi.IOStats {
	if u.psi.io == nil {
		return nil
	}
	return &statsapi.IOStats{Time: s.shown(u.at), PSI: psiStats(u.psi.io)}
}

func psiStats(p *psi) *statsapi.PSIStats {
	if p == nil {
		return nil
	}
	one := func(s stall) statsapi.PSIData {
		return statsapi.PSIData{Total: s.nanos, Avg10: s.avg10, Avg60: s.avg60, Avg300: s.avg300}
	}
	return &statsapi.PSIStats{Full: one(p.full), Some: one(p.some)}
}

func (s *Stats) networkStats(devices []device, at time.Time) *statsapi.NetworkStats {
	if len(devices) == 0 {
		return nil
	}
	one := func(d *device) statsapi.InterfaceStats {
		return statsapi.InterfaceStats{Name: d.name, RxBytes: &d.rxBytes, RxErrors: &d.rxErrors, TxBytes: &d.txBytes, TxErrors: &d.txErrors}
	}
	out := &statsapi.NetworkStats{Time: s.shown(at), InterfaceStats: one(primary(devices))}
	for i := range devices {
		out.Interfaces = append(out.Interfaces, one(&devices[i]))
	}
	return out
}

func (s *Stats) rlimit(at time.Time) *statsapi.RlimitStats {
	m := s.machine()
	if m.Tasks == nil || m.MaxPID == nil {
		return nil
	}
	most := m.MaxPID()
	if most == 0 {
		return nil
	}
	tasks, err := m.Tasks()
	if err != nil {
		s.cfg.Log.Warn("cannot count tasks; stats are incomplete", "err", err)
		return nil
	}
	return &statsapi.RlimitStats{Time: s.shown(at), MaxPID: &most, NumOfRunningProcesses: &tasks}
}

// imageFs asks the runtime for the usage of the filesystems of images and of writable layers.
func (s *Stats) imageFs(ctx context.Context) (images, containers *runtimeapi.FilesystemUsage) {
	if s.cfg.Images == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, runtimeWithin)
	defer cancel()
	resp, err := s.cfg.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		s.cfg.Log.Warn("the runtime did not report its image filesystem; stats are incomplete", "err", err)
		return nil, nil
	}
	if list := resp.GetImageFilesystems(); len(list) > 0 {
		images = list[0]
	}
	containers = images
	if list := resp.GetContainerFilesystems(); len(list) > 0 {
		containers = list[0]
	}
	return images, containers
}
