package stats

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Pods tells what runs. It may be called concurrently; what it returns is only read.
type Pods interface {
	// Observed returns the newest inspection of every pod.
	Observed() []*pod.Observed
}

// Runtime is the part of CRI that has numbers. The generated client satisfies it.
type Runtime interface {
	ListContainerStats(ctx context.Context, in *runtimeapi.ListContainerStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error)
	ListPodSandboxStats(ctx context.Context, in *runtimeapi.ListPodSandboxStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error)
}

// Images tells how full the image filesystem is. The generated client satisfies it.
type Images interface {
	ImageFsInfo(ctx context.Context, in *runtimeapi.ImageFsInfoRequest, opts ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error)
}

// Disk measures filesystems and directories.
type Disk interface {
	// DiskSpace is what the file system at path has in all, and what is left: bytes and inodes.
	DiskSpace(path string) (capacity, available, inodes, inodesFree uint64, err error)
	// UntrustedDiskUsage sums up what a directory takes that a container may have replaced, as it may the last depth
	// directories of its path.
	UntrustedDiskUsage(ctx context.Context, dir string, depth int) (bytes, inodes uint64, err error)
}

// Volumes tells how full the volumes of a pod are. Walks that take long are remembered by the implementation.
type Volumes interface {
	VolumeUsage(ctx context.Context, uid types.UID) ([]Volume, error)
	// FilesUsage is what the files take that the agent gives a pod's containers: hosts, termination messages.
	FilesUsage(uid types.UID) (bytes, inodes uint64, err error)
}

// Volume is how full one volume is.
type Volume struct {
	Name string
	// PVCNamespace and PVCName are set for a volume that a claim stands for.
	PVCNamespace, PVCName string
	// Ephemeral: an emptyDir on disk, which counts as the pod's ephemeral storage.
	Ephemeral                                         bool
	CapacityBytes, AvailableBytes, Inodes, InodesFree uint64
	UsedBytes, InodesUsed                             uint64
	Time                                              time.Time
}

// Machine is the host. A simulated node has one that is made up.
type Machine struct {
	CPUs                   int
	MemoryBytes, SwapBytes uint64
	BootTime               time.Time
	MachineID, SystemUUID  string
	BootID                 string
	KernelVersion, OSImage string
	MaxPID                 int64
	// Tasks is how many tasks run now; nil: not known.
	Tasks func() (int64, error)
}

// SystemGroup is a control group beside the pods.
type SystemGroup struct {
	Path    string    // below the mount point
	Started time.Time // of what is in it; zero: when the group was made
}

// Config of Stats. NodeName, Pods and Log are required; everything else that is missing is left out of the answers.
type Config struct {
	NodeName string
	Version  string // of the agent, for cadvisor_version_info
	// Machine is asked whenever something is measured; nil: nothing is known of it.
	Machine func() Machine
	Pods    Pods
	Runtime Runtime
	Images  Images
	Disk    Disk
	Volumes Volumes

	// PodsGroup is the control group of all pods, below the mount point: /kubepods or /kubepods.slice, with the
	// configured cgroupRoot before it. Empty: this node has no control groups (simulated).
	PodsGroup string
	// SystemGroups are groups to tell of by the names of the summary: kubelet, runtime, misc.
	SystemGroups map[string]SystemGroup
	// HostRoot is "/", or a directory with proc and sys in tests.
	HostRoot string
	RootDir  string // of the agent: its filesystem is the node's
	LogDir   string // of pods: /var/log/pods

	Now func() time.Time // nil: time.Now
	Log *slog.Logger
}

func (s *Stats) machine() Machine {
	if s.cfg.Machine == nil {
		return Machine{}
	}
	return s.cfg.Machine()
}

// Stats answers. Its handlers may be called concurrently.
type Stats struct {
	cfg    Config
	rates  rates
	mounts atomic.Pointer[mounts]
}

// New checks the configuration. It does no IO and starts nothing.
func New(cfg Config) (*Stats, error) {
	switch {
	case cfg.NodeName == "":
		return nil, errors.New("stats: Config.NodeName is empty")
	case cfg.Pods == nil:
		return nil, errors.New("stats: Config.Pods is missing")
	case cfg.Log == nil:
		return nil, errors.New("stats: Config.Log is missing")
	}
	if cfg.HostRoot == "" {
		cfg.HostRoot = "/"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Stats{cfg: cfg, rates: rates{last: map[string]sample{}}}, nil
}

// Summary serves /stats/summary; ?only_cpu_and_memory=true leaves the rest out.
func (s *Stats) Summary() http.Handler { return http.HandlerFunc(s.serveSummary) }

// Resource serves /metrics/resource.
func (s *Stats) Resource() http.Handler { return s.scrape(s.resourceMetrics) }

// CAdvisor serves /metrics/cadvisor.
func (s *Stats) CAdvisor() http.Handler { return s.scrape(s.cadvisorMetrics) }
