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

	"github.com/wherry-node/wherry/internal/core/nodeclock"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Pods returns the pods of the node. It may be called concurrently. The result must not be changed.
type Pods interface {
	// Observed returns the newest inspection of every pod.
	Observed() []*pod.Observed
}

// Runtime is the part of CRI that has statistics. The generated client satisfies it.
type Runtime interface {
	ListContainerStats(ctx context.Context, in *runtimeapi.ListContainerStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListContainerStatsResponse, error)
	ListPodSandboxStats(ctx context.Context, in *runtimeapi.ListPodSandboxStatsRequest, opts ...grpc.CallOption) (*runtimeapi.ListPodSandboxStatsResponse, error)
}

// Images returns how full the image filesystem is. The generated client satisfies it.
type Images interface {
	ImageFsInfo(ctx context.Context, in *runtimeapi.ImageFsInfoRequest, opts ...grpc.CallOption) (*runtimeapi.ImageFsInfoResponse, error)
}

// Disk measures filesystems and directories.
type Disk interface {
	// DiskSpace returns the size and the free space of the file system at path, in bytes and inodes.
	DiskSpace(path string) (capacity, available, inodes, inodesFree uint64, err error)
	// UntrustedDiskUsage adds up the disk usage of a directory. depth is the number of elements at the end of the path that a container
	// may have replaced, for example by a link.
	UntrustedDiskUsage(ctx context.Context, dir string, depth int) (bytes, inodes uint64, err error)
}

// Volumes returns how full the volumes of a pod are. The implementation caches the results of long walks.
type Volumes interface {
	VolumeUsage(ctx context.Context, uid types.UID) ([]Volume, error)
	// FilesUsage returns the disk usage of the files that the agent mounts into a pod's containers: the hosts file and the
	// files of termination messages.
	FilesUsage(uid types.UID) (bytes, inodes uint64, err error)
}

// Volume is how full one volume is.
type Volume struct {
	Name string
	// PVCNamespace and PVCName name the claim of the volume, if it has one.
	PVCNamespace, PVCName string
	// Ephemeral says that the volume is an emptyDir on disk, which counts as the pod's ephemeral storage.
	Ephemeral                                         bool
	CapacityBytes, AvailableBytes, Inodes, InodesFree uint64
	UsedBytes, InodesUsed                             uint64
	Time                                              time.Time
	// Abnormal says whether the CSI driver reports an abnormal condition of the volume; nil: it is not known.
	Abnormal *bool
}

// Machine describes the host. For a simulated node, the values are invented.
type Machine struct {
	CPUs                   int
	Cores, Sockets         int // physical cores and sockets; 0: not known
	MemoryBytes, SwapBytes uint64
	BootTime               time.Time
	MachineID, SystemUUID  string
	BootID                 string
	KernelVersion, OSImage string
	// Tasks counts the tasks that run now; nil: not known. MaxPID returns how many there can be; nil or 0: not known. Both read the kernel
	// each time, because the limit may change.
	Tasks  func() (int64, error)
	MaxPID func() int64
	// MemoryUsed returns the memory in bytes that all processes of a machine without control groups use; nil: it has no processes outside
	// its pods.
	MemoryUsed func() uint64
}

// SystemGroup is a control group outside the group of all pods.
type SystemGroup struct {
	Path    string    // path of the control group, below the mount point of the cgroup file system
	Started time.Time // start of the service in the group; zero: use the time when the group was created
}

// Config configures Stats. NodeName, Pods and Log are required. If another field is not set, the answers leave out the values that
// come from it.
type Config struct {
	NodeName string
	Version  string // the agent's version, for cadvisor_version_info
	// Machine is called for every measurement; nil: the host is not known.
	Machine func() Machine
	Pods    Pods
	Runtime Runtime
	Images  Images
	Disk    Disk
	Volumes Volumes

	// PodsGroup is the path of the control group of all pods, below the mount point of the cgroup file system: /kubepods or
	// /kubepods.slice, with the configured cgroupRoot before it. Empty: this node has no control groups (simulated).
	PodsGroup string
	// SystemGroups are further control groups to report, by their names in the summary: kubelet, runtime, misc.
	SystemGroups map[string]SystemGroup
	// HostRoot is "/", or a directory with proc and sys in tests.
	HostRoot string
	RootDir  string // the agent's directory; the filesystem that it lies on counts as nodefs
	LogDir   string // the directory of the pods' logs: /var/log/pods

	Now func() time.Time // Now returns the current time; nil: time.Now
	// Clock is the node's clock, for the times in answers.
	Clock nodeclock.Clock
	Log   *slog.Logger
}

func (s *Stats) machine() Machine {
	if s.cfg.Machine == nil {
		return Machine{}
	}
	return s.cfg.Machine()
}

// Stats measures the node at each request and answers the request. Its handlers may be called concurrently.
type Stats struct {
	cfg    Config
	rates  rates
	totals totals
	kills  kills
	logs   logSizes
	mounts atomic.Pointer[mounts]

	summaries, shortSummaries shared // the requests for /stats/summary, and those for CPU and memory alone
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
	return &Stats{cfg: cfg, rates: rates{last: map[string]sample{}}, kills: kills{of: map[string]*killed{}}, logs: newLogSizes(cfg.Now())}, nil
}

// Summary serves /stats/summary; with ?only_cpu_and_memory=true, the answer has only CPU and memory. Requests that arrive while a summary is being
// measured get that one.
func (s *Stats) Summary() http.Handler { return http.HandlerFunc(s.serveSummary) }

// Resource serves /metrics/resource.
func (s *Stats) Resource() http.Handler { return s.scrape(s.resourceMetrics) }

// CAdvisor serves /metrics/cadvisor.
func (s *Stats) CAdvisor() http.Handler { return s.scrape(s.cadvisorMetrics) }
