package perform

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/edge/image"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// Volumes makes the volumes that containers mount, and the pod's own directory. Calls for one pod do not overlap, except those of
// Mounts for several containers. Simulated nodes have an implementation without a disk.
type Volumes interface {
	SetUp(ctx context.Context, p volume.Pod) error
	Mounts(ctx context.Context, in volume.MountInput) ([]*runtimeapi.Mount, error)
	// Devices returns the block devices of a container.
	Devices(p *v1.Pod, c *v1.Container) ([]*runtimeapi.Device, error)
	TearDown(ctx context.Context, ref pod.Ref) error
	// ReadFile reads a file of a volume, for fileKeyRef.
	ReadFile(p *v1.Pod, volume, path string) ([]byte, error)
	// Remove removes whatever TearDown left, so that nothing of the pod stays.
	Remove(ctx context.Context, ref pod.Ref) error
}

// Logs keeps the directories and links of container logs. All calls are idempotent.
type Logs interface {
	Make(p *v1.Pod) error
	// Link creates the link by which log collectors find the log of a started container.
	Link(p *v1.Pod, container, id string, attempt uint32) error
	// Remove removes the log of one attempt with its rotated parts. RemovePod removes all logs of a pod.
	Remove(ref pod.Ref, container string, attempt uint32) error
	RemovePod(ref pod.Ref) error
}

// Cgroups keeps the cgroups of pods.
type Cgroups interface {
	// EnsurePod creates the pod's cgroup if it is missing and sets its size. Parent is the cgroup name for the runtime.
	EnsurePod(ctx context.Context, p *v1.Pod, size pod.Size) (parent string, err error)
	Parent(p *v1.Pod) string
	RemovePod(ctx context.Context, uid types.UID) error
}

// Objects finds the objects that a pod refers to by name.
type Objects interface {
	// ConfigMap and Secret return the object that the pod refers to by name. For two pods, the same name may mean objects from different
	// sources: the API, or manifests on the node.
	ConfigMap(ctx context.Context, p *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, p *v1.Pod, name string) (*v1.Secret, error)
	Services(namespace string) (services []*v1.Service, synced bool)
	// RuntimeHandler returns the runtime handler that the RuntimeClass of this name selects.
	RuntimeHandler(ctx context.Context, class string) (string, error)
	Forget(uid types.UID)
}

// IDs gives each pod with "hostUsers: false" a range of user IDs of its own. The pod keeps the range until Release, also over
// restarts of the agent. Both calls are idempotent.
type IDs interface {
	Range(uid types.UID) (first, length uint32, err error)
	Release(uid types.UID) error
}

// Images makes images present on the node.
type Images interface {
	Ensure(ctx context.Context, r image.Request) (image.Result, *image.Error)
}

// Recorder records events on pods and on the node. container is the name of the container that the event is about, or "". A call must not
// block.
type Recorder interface {
	NodeEvent(eventType, reason, message string)
	Event(p *v1.Pod, container, eventType, reason, message string)
}

// Meter counts what the Performer starts. Calls may be concurrent and must not block.
type Meter interface {
	// SandboxStarted is called after each RunPodSandbox. own is true if the pod has a user namespace of its own.
	SandboxStarted(handler string, own bool, took time.Duration, err error)
	// ContainerStarted is called after each attempt to start a container. kind is the result of crispec.Kind. reason says why the
	// start failed; "": the container started. own is true for the first attempt of a container in a pod with a user namespace, whose
	// result shows whether the namespace works.
	ContainerStarted(kind string, own bool, reason string)
	// ImagePulled is called after each pull that an action waited for.
	ImagePulled(bytes uint64, took time.Duration)
	// ImageVolumes is called when a container with image volumes was created, and when mounting them failed.
	ImageVolumes(volumes int, failed bool)
	// SleepCut is called when a hook ended before its sleep was over.
	SleepCut()
	// HookFellBack is called when a hook's HTTPS request got an HTTP answer, and the request succeeded when it was repeated by
	// HTTP.
	HookFellBack()
}

// Facts are the facts of the node that requests to the runtime depend on.
type Facts struct {
	NodeName    string
	HostIPs     []string
	Allocatable v1.ResourceList
	ClusterDNS  []string
	// HostResolv is the node's resolver configuration. HostResolvErr says why its file (resolvConf) cannot be read; nil: it can.
	HostResolv    *runtimeapi.DNSConfig
	HostResolvErr error
	NodeHosts     []byte
	LogRoot       string
	Spec          crispec.Policy
	// RecursiveReadOnly has the runtime handlers that support recursive read-only mounts.
	RecursiveReadOnly map[string]bool
	// UserNamespaces has the runtime handlers that support user namespaces.
	UserNamespaces map[string]bool
	// RuntimeName and RuntimeVersion show which features the runtime has. The node uses them for features that the runtime does not
	// report.
	RuntimeName, RuntimeVersion string
}

// Config is what a Performer works with.
type Config struct {
	CRI      *cri.Client
	Images   Images
	Volumes  Volumes
	Logs     Logs
	Cgroups  Cgroups
	IDs      IDs
	Objects  Objects
	Recorder Recorder
	// Meter counts what the Performer starts; nil: nothing is counted.
	Meter Meter
	Facts func() Facts
	// DevicesPrepared says that the devices of resource claims need no preparation on this node, because its containers run no programs.
	// Otherwise a pod with resource claims does not start.
	DevicesPrepared bool
	// HTTP sends httpGet hooks.
	HTTP HTTPDoer
	Log  *slog.Logger
}

// Performer executes actions. Between actions it remembers only which Killing events it has recorded.
type Performer struct {
	cfg       Config
	announced announced
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) SandboxStarted(string, bool, time.Duration, error) {}
func (noMeter) ContainerStarted(string, bool, string)             {}
func (noMeter) ImagePulled(uint64, time.Duration)                 {}
func (noMeter) ImageVolumes(int, bool)                            {}
func (noMeter) SleepCut()                                         {}
func (noMeter) HookFellBack()                                     {}

// New returns a Performer.
func New(cfg Config) *Performer {
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	return &Performer{cfg: cfg}
}

// Do executes one action.
func (x *Performer) Do(ctx context.Context, job pod.Job) pod.Outcome {
	if job.Pod == nil && job.Action.Op.Starts() {
		return failed("InternalError", fmt.Errorf("%s: no source has this pod any more", job.Action.Op))
	}
	switch job.Action.Op {
	case pod.OpSetUp:
		return x.setUp(ctx, job)
	case pod.OpRunSandbox:
		return x.runSandbox(ctx, job)
	case pod.OpPullImage:
		return x.pullImage(ctx, job)
	case pod.OpStartContainer:
		return x.startContainer(ctx, job)
	case pod.OpPostStart:
		return x.postStart(ctx, job)
	case pod.OpPreStop:
		return x.preStop(ctx, job)
	case pod.OpStopContainer:
		return x.stopContainer(ctx, job)
	case pod.OpStopSandbox:
		return x.stopSandbox(ctx, job)
	case pod.OpTearDown:
		return x.tearDown(ctx, job)
	case pod.OpRemoveContainer:
		return x.removeContainer(ctx, job)
	case pod.OpRemoveSandbox:
		return x.removeSandbox(ctx, job)
	case pod.OpForget:
		return x.forget(ctx, job)
	case pod.OpResize:
		return x.resize(ctx, job)
	case pod.OpNone:
	}
	return failed("InternalError", fmt.Errorf("perform %s: unknown verb", job.Action.Op))
}

// failed returns an outcome with the reason that Kubernetes uses for the failure.
func failed(reason string, err error) pod.Outcome {
	return pod.Outcome{Err: err, Reason: reason, Message: cri.Message(err), Unknown: cri.IsUnknown(err)}
}

// event records an event on the job's pod. If the pod's object is gone, the event names the pod by its reference.
func (x *Performer) event(job pod.Job, eventType, reason, format string, args ...any) {
	p := job.Pod
	if p == nil && job.Ref.Name == "" {
		return
	}
	if p == nil {
		p = pod.Remnant(job.Ref, job.Kind, job.Action.Container)
	}
	x.cfg.Recorder.Event(p, job.Action.Container, eventType, reason, byName(job.Action, fmt.Sprintf(format, args...)))
}

// byName replaces the container's ID by its name in the text of an error, so that equal events are counted together.
func byName(a pod.Action, text string) string {
	const shortest = 12 // a shorter ID may be part of an ordinary word
	if a.Container == "" || len(a.ID) < shortest {
		return text
	}
	return strings.ReplaceAll(pod.Text(text), a.ID, a.Container)
}

// container returns the spec of a container of any kind by its name. The spec of an ephemeral container is converted to a v1.Container.
func container(p *v1.Pod, name string) (*v1.Container, error) {
	if c := pod.SpecOf(p, name); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %q is not in the pod's spec", name)
}

// podIPs returns the addresses that the API shows of the pod, the primary one first; p may be nil.
func podIPs(o *pod.Observed, hostIPs []string, p *v1.Pod) []string {
	s := o.NewestSandbox()
	switch {
	case p != nil && p.Spec.HostNetwork, p == nil && s != nil && s.HostNetwork:
		return hostIPs
	case s != nil:
		return pod.Addresses(s.IPs, hostIPs)
	}
	return nil
}
