package configs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	critest "k8s.io/cri-api/pkg/apis/testing"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cgroup"
	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/edge/image"
	"github.com/wherry-node/wherry/internal/edge/userns"
	"github.com/wherry-node/wherry/internal/edge/volume"
	"github.com/wherry-node/wherry/internal/node/perform"
)

// ErrNoVolume says that a volume cannot be set up, because an object or a file that it needs is missing. Neither agent sends a request for
// such a pod, so there is nothing to compare.
var ErrNoVolume = errors.New("a volume cannot be made")

// Wherry is the part of Wherry that carries out actions (perform.Performer), without the rest of the agent.
type Wherry struct {
	world     World
	runtime   *recorder
	performer *perform.Performer
	volumes   *volume.Volumes
	ids       *userns.Ranges
}

// NewWherry creates a performer with substitutes for the runtime and for the host's mounts and cgroups.
func NewWherry(w World) (*Wherry, error) {
	root := filepath.Join(w.Dir, "wherry", "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	x := &Wherry{world: w, runtime: &recorder{requests: newRequests()}, ids: userns.New(userns.Config{})}
	if err := x.ids.Load(); err != nil {
		return nil, err
	}
	facts, err := w.facts(root)
	if err != nil {
		return nil, err
	}
	groups := cgroup.New(cgroup.Config{Root: "/", Driver: cgroup.DriverCgroupfs, PerQOS: true})
	client := cri.New(cri.Config{Runtime: x.runtime, Images: album{}})
	x.volumes = volume.New(volume.Config{RootDir: root, Host: &paper{mounted: map[string]bool{}}, Objects: things{}, Log: slog.New(slog.DiscardHandler)})
	x.performer = perform.New(perform.Config{
		CRI: client, Images: noImages{}, Volumes: x.volumes, Logs: noLogs{}, Cgroups: names{groups}, IDs: x.ids, Objects: things{},
		Recorder: silence{}, Facts: func() perform.Facts { return facts }, Log: slog.New(slog.DiscardHandler),
	})
	return x, nil
}

// facts returns the facts about the node that a running agent would pass to perform. root is the agent's root directory.
func (w World) facts(root string) (perform.Facts, error) {
	text, err := os.ReadFile(filepath.Join(w.Dir, "resolv.conf"))
	if err != nil {
		return perform.Facts{}, err
	}
	resolver, err := crispec.ParseResolvConf(text)
	if err != nil {
		return perform.Facts{}, err
	}
	p := crispec.DefaultPolicy()
	p.CPUCFSQuota, p.SeccompDefault, p.SeccompRoot = w.CPUQuota, w.SeccompDefault, filepath.Join(root, "seccomp")
	p.MemoryCapacity, p.SwapCapacity, p.LimitedSwap = w.Memory, w.Swap, w.LimitedSwap
	groups := cgroup.New(cgroup.Config{Root: "/", Driver: cgroup.DriverCgroupfs, PerQOS: true})
	if p.CgroupV2, err = groups.V2(); err != nil {
		return perform.Facts{}, err
	}
	if p.SwapController, err = groups.SwapController(); err != nil {
		return perform.Facts{}, err
	}
	if _, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"); err == nil {
		p.SwapController = true // a running agent sees this in the cgroups of pods, which do not exist here
	}
	if p.HugePageSizes, err = pageSizes(); err != nil {
		return perform.Facts{}, err
	}
	if p.MaskedPaths, err = filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle"); err != nil {
		return perform.Facts{}, err
	}
	f := perform.Facts{
		NodeName: nodeName, HostIPs: []string{hostIP}, Allocatable: w.node().Status.Allocatable, ClusterDNS: []string{"10.96.0.10"},
		HostResolv: resolver, NodeHosts: []byte("127.0.0.1 localhost\n"), LogRoot: filepath.Join(w.Dir, "wherry", "logs"), Spec: p,
		RecursiveReadOnly: map[string]bool{}, UserNamespaces: map[string]bool{}, RuntimeName: "simcri", RuntimeVersion: "1.0.0",
	}
	for _, h := range handlers() {
		f.RecursiveReadOnly[h.Name] = h.Features.GetRecursiveReadOnlyMounts()
		f.UserNamespaces[h.Name] = h.Features.GetUserNamespaces()
	}
	return f, nil
}

// pageSizes returns the sizes of huge pages that the machine has, even if no cgroup can limit them: upstream's kubelet sends limits
// in that case too.
func pageSizes() (sizes []string, err error) {
	dirs, err := filepath.Glob("/sys/kernel/mm/hugepages/hugepages-*kB")
	for _, d := range dirs {
		var kB int
		if _, err := fmt.Sscanf(filepath.Base(d), "hugepages-%dkB", &kB); err != nil {
			return nil, err
		}
		switch {
		case kB >= 1<<20:
			sizes = append(sizes, fmt.Sprintf("%dGB", kB>>20))
		case kB >= 1<<10:
			sizes = append(sizes, fmt.Sprintf("%dMB", kB>>10))
		default:
			sizes = append(sizes, fmt.Sprintf("%dKB", kB))
		}
	}
	return sizes, err
}

// Requests lets Wherry's code create the pod's volumes, its sandbox and all of its containers, and returns the requests.
func (x *Wherry) Requests(ctx context.Context, p *v1.Pod) (*Requests, error) {
	x.runtime.requests = newRequests()
	requests := x.runtime.requests
	ref := pod.RefOf(p)
	root := filepath.Join(x.world.Dir, "wherry", "root", "pods", string(p.UID))
	defer os.RemoveAll(root)
	defer x.ids.Release(p.UID)
	if err := x.volumes.SetUp(ctx, volume.Pod{Pod: p, PodIPs: []string{podIP}, HostIPs: []string{hostIP}, NodeAllocatable: x.world.node().Status.Allocatable}); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoVolume, err)
	}
	for i := range p.Spec.Volumes {
		if vol := &p.Spec.Volumes[i]; vol.EmptyDir != nil {
			dir := filepath.Join(root, "volumes", "kubernetes.io~empty-dir", vol.Name)
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, err
			}
			if err := fill(vol, dir); err != nil {
				return nil, err
			}
		}
	}
	job := pod.Job{Ref: ref, Pod: p, Observed: &pod.Observed{Ref: ref, Began: time.Now()}, Action: pod.Action{Op: pod.OpRunSandbox}}
	o := x.performer.Do(ctx, job)
	if requests.Sandbox == nil {
		requests.Failed[""] = o.Message
		return requests, nil
	}
	sandbox := pod.Sandbox{ID: o.ID, Ready: true, HostNetwork: p.Spec.HostNetwork, Handler: requests.Handler}
	if !p.Spec.HostNetwork {
		sandbox.IPs = []string{podIP}
	}
	job.Observed.Sandboxes = []pod.Sandbox{sandbox}
	for _, c := range containersOf(p) {
		job.Action = pod.Action{Op: pod.OpStartContainer, Container: c.Name}
		job.ImageRef = imageOf(c.Image).Id
		o := x.performer.Do(ctx, job)
		if requests.Containers[c.Name] == nil {
			requests.Failed[c.Name] = o.Message
			continue
		}
		id := critest.BuildContainerName(requests.Containers[c.Name].Metadata, sandbox.ID)
		job.Observed.Containers = append(job.Observed.Containers, pod.Container{ID: id, Name: c.Name, SandboxID: sandbox.ID, State: pod.StateRunning})
	}
	return requests, nil
}

// recorder is the fake runtime to which Wherry sends its requests. It records them.
type recorder struct {
	runtimeapi.RuntimeServiceClient // nil: the performer calls only the methods of recorder
	requests                        *Requests
}

func (e *recorder) RunPodSandbox(_ context.Context, r *runtimeapi.RunPodSandboxRequest, _ ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	e.requests.Sandbox, e.requests.Handler = r.Config, r.RuntimeHandler
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: critest.BuildSandboxName(r.Config.Metadata)}, nil
}

func (e *recorder) CreateContainer(_ context.Context, r *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	e.requests.Containers[r.Config.Metadata.Name] = r.Config
	return &runtimeapi.CreateContainerResponse{ContainerId: r.Config.Metadata.Name}, nil
}

func (e *recorder) StartContainer(context.Context, *runtimeapi.StartContainerRequest, ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	return nil, errKept
}

// album is the fake image service of Wherry. Every image is present in it.
type album struct{ runtimeapi.ImageServiceClient }

func (album) ImageStatus(_ context.Context, r *runtimeapi.ImageStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: imageOf(r.Image.Image)}, nil
}

// paper replaces the host for package volume. It creates real files and directories, but no mounts; mounted contains the mount points
// that it claims to have.
type paper struct {
	hostfs.Host
	mu      sync.Mutex
	mounted map[string]bool
}

func (h *paper) IsMountPoint(dir string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mounted[dir], nil
}

func (h *paper) MountTmpfs(target string, _ int64, _ fs.FileMode, _ int, _ uintptr) (bool, error) {
	return false, h.Mount("", target, "", "")
}

func (h *paper) Mount(_, target, _, _ string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mounted[target] = true
	return nil
}

func (h *paper) Bind(*os.File, string) error { return nil }

func (h *paper) Unmount(target string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mounted, target)
	return nil
}

// names is cgroup.Cgroups without effects: it returns the names of cgroups and creates none.
type names struct{ *cgroup.Cgroups }

func (n names) EnsurePod(_ context.Context, p *v1.Pod, _ pod.Size) (string, error) {
	return n.Parent(p), nil
}

func (names) RemovePod(context.Context, types.UID) error { return nil }

// things returns the ConfigMaps and other API objects to which the pods refer.
type things struct{}

func (things) ConfigMap(_ context.Context, p *v1.Pod, name string) (*v1.ConfigMap, error) {
	for _, c := range configMaps() {
		if c.Namespace == p.Namespace && c.Name == name {
			return c, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (things) Secret(_ context.Context, p *v1.Pod, name string) (*v1.Secret, error) {
	for _, s := range secrets() {
		if s.Namespace == p.Namespace && s.Name == name {
			return s, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func (things) ServiceAccountToken(context.Context, *v1.Pod, string, *int64) (string, time.Time, error) {
	return "token", time.Now().Add(time.Hour), nil
}

func (things) Services(namespace string) (found []*v1.Service, synced bool) {
	for _, s := range services() {
		if s.Namespace == namespace {
			found = append(found, s)
		}
	}
	return found, true
}

func (things) RuntimeHandler(_ context.Context, class string) (string, error) {
	for _, c := range runtimeClasses() {
		if c.Name == class {
			return c.Handler, nil
		}
	}
	return "", apierrors.NewNotFound(schema.GroupResource{Resource: "runtimeclasses"}, class)
}

func (things) Forget(types.UID) {}

type noImages struct{}

func (noImages) Ensure(_ context.Context, r image.Request) (image.Result, *image.Error) {
	return image.Result{Ref: imageOf(r.Image).Id, Image: imageOf(r.Image)}, nil
}

type noLogs struct{}

func (noLogs) Make(*v1.Pod) error                         { return nil }
func (noLogs) Link(*v1.Pod, string, string, uint32) error { return nil }
func (noLogs) Remove(pod.Ref, string, uint32) error       { return nil }
func (noLogs) RemovePod(pod.Ref) error                    { return nil }

type silence struct{}

func (silence) NodeEvent(string, string, string)              {}
func (silence) Event(*v1.Pod, string, string, string, string) {}
