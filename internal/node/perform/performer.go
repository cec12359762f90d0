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

// Volumes are what containers mount, and the pod's own directory. Calls come one at a time per pod, but Mounts of
// several containers; a fleet has volumes without a disk.
type Volumes interface {
	SetUp(ctx context.Context, p volume.Pod) error
	Mounts(ctx context.Context, in volume.MountInput) ([]*runtimeapi.Mount, error)
	TearDown(ctx context.Context, ref pod.Ref) error
	// ReadFile reads a file of a volume, for fileKeyRef.
	ReadFile(p *v1.Pod, volume, path string) ([]byte, error)
	// Remove removes whatever TearDown left: nothing of the pod stays.
	Remove(ctx context.Context, ref pod.Ref) error
}

// Logs keeps the places of container logs. Everything is idempotent.
type Logs interface {
	Make(p *v1.Pod) error
	// Link gives the log of a started container the name that log collectors look for.
	Link(p *v1.Pod, container, id string, attempt uint32) error
	// Remove removes the log of one attempt, rotated parts included; RemovePod all of a pod's.
	Remove(ref pod.Ref, container string, attempt uint32) error
	RemovePod(ref pod.Ref) error
}

// Cgroups holds the pod-level cgroups.
type Cgroups interface {
	// EnsurePod makes the pod's cgroup where there is none and gives it a size; Parent is what the runtime is told of it.
	EnsurePod(ctx context.Context, p *v1.Pod, size pod.Size) (parent string, err error)
	Parent(p *v1.Pod) string
	RemovePod(ctx context.Context, uid types.UID) error
}

// Objects are what a pod refers to by name.
type Objects interface {
	// ConfigMap and Secret are those of the name that the pod means: where they come from may differ between pods.
	ConfigMap(ctx context.Context, p *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, p *v1.Pod, name string) (*v1.Secret, error)
	Services(namespace string) (services []*v1.Service, synced bool)
	// RuntimeHandler resolves spec.runtimeClassName.
	RuntimeHandler(ctx context.Context, class string) (string, error)
	Forget(uid types.UID)
}

// IDs gives pods user IDs of their own (hostUsers: false). A range is the pod's until Release, whatever happens to the
// agent; both calls are idempotent.
type IDs interface {
	Range(uid types.UID) (first, length uint32, err error)
	Release(uid types.UID) error
}

// Images makes sure of images.
type Images interface {
	Ensure(ctx context.Context, r image.Request) (image.Result, *image.Error)
}

// Recorder records events on pods and on the node; container is "" or the name the event is about. It must not block.
type Recorder interface {
	NodeEvent(eventType, reason, message string)
	Event(p *v1.Pod, container, eventType, reason, message string)
}

// Meter counts what is started. Calls may be concurrent and must not block.
type Meter interface {
	// SandboxStarted is told of each RunPodSandbox; own: the pod has a user namespace.
	SandboxStarted(handler string, own bool, took time.Duration, err error)
	// ContainerStarted is told of each try to start a container of a kind (crispec.Kind); reason is why it failed, or "".
	// own: it is a container's first in a pod with a user namespace, where what is wrong with that shows.
	ContainerStarted(kind string, own bool, reason string)
	// ImagePulled is told of each pull that was waited for.
	ImagePulled(bytes uint64, took time.Duration)
}

// Facts is what messages to the runtime depend on besides the pod.
type Facts struct {
	NodeName    string
	HostIPs     []string
	Allocatable v1.ResourceList
	ClusterDNS  []string
	// HostResolv is the node's resolver configuration.
	HostResolv *runtimeapi.DNSConfig
	NodeHosts  []byte
	LogRoot    string
	Spec       crispec.Policy
	// RecursiveReadOnly are the runtime handlers that can mount read-only recursively.
	RecursiveReadOnly map[string]bool
	// UserNamespaces are the runtime handlers that can give pods user namespaces.
	UserNamespaces map[string]bool
	// RuntimeName and RuntimeVersion tell what the runtime can do and does not say.
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
	// Meter may be nil: nobody counts.
	Meter Meter
	Facts func() Facts
	// HTTP sends httpGet hooks.
	HTTP HTTPDoer
	Log  *slog.Logger
}

// Performer does actions. It keeps no state between them, but of what it said of them.
type Performer struct {
	cfg  Config
	said said
}

// noMeter counts nothing.
type noMeter struct{}

func (noMeter) SandboxStarted(string, bool, time.Duration, error) {}
func (noMeter) ContainerStarted(string, bool, string)             {}
func (noMeter) ImagePulled(uint64, time.Duration)                 {}

// New returns a Performer.
func New(cfg Config) *Performer {
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	return &Performer{cfg: cfg}
}

// Do performs one action.
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

// failed is an outcome that carries the field's word for the failure.
func failed(reason string, err error) pod.Outcome {
	return pod.Outcome{Err: err, Reason: reason, Message: cri.Message(err), Unknown: cri.IsUnknown(err)}
}

// event records an event on the job's pod. One whose object is gone has a name to which an event belongs all the same.
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

// byName puts the container's name where a runtime's error has its ID: events of one kind are to count as one.
func byName(a pod.Action, text string) string {
	const shortest = 12 // less may be part of a word
	if a.Container == "" || len(a.ID) < shortest {
		return text
	}
	return strings.ReplaceAll(pod.Text(text), a.ID, a.Container)
}

// container finds the spec of the action's container, of any kind; ephemeral ones are converted.
func container(p *v1.Pod, name string) (*v1.Container, error) {
	if c := pod.SpecOf(p, name); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("container %q is not in the pod's spec", name)
}

// podIPs are where the pod is reached; p may be nil.
func podIPs(o *pod.Observed, hostIPs []string, p *v1.Pod) []string {
	s := o.NewestSandbox()
	switch {
	case p != nil && p.Spec.HostNetwork, p == nil && s != nil && s.HostNetwork:
		return hostIPs
	case s != nil:
		return s.IPs
	}
	return nil
}
