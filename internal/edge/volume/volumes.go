package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/claims"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Mounter mounts and unmounts. Calls for different directories may be concurrent.
type Mounter interface {
	// MountPoints lists the mount points at or below dir, in mount order.
	MountPoints(dir string) ([]string, error)
	// IsMountPoint reports whether a file system of its own is mounted on dir; false when dir does not exist.
	IsMountPoint(dir string) (bool, error)
	// MountTmpfs mounts a tmpfs with the flags of mount(2). Size 0 means the kernel's default size; a negative gid means the group of
	// root. maySwap says that the machine has swap space and that the kernel cannot keep the tmpfs out of it.
	MountTmpfs(target string, size int64, mode fs.FileMode, gid int, flags uintptr) (maySwap bool, err error)
	// Mount mounts any other file system.
	Mount(source, target, fstype, options string) error
	// Unmount removes the topmost mount of target, and detaches it if it is busy. It is no error if nothing is mounted
	// there.
	Unmount(target string) error
}

// Paths opens, binds and deletes files. It follows no link or mount out of the given directory.
type Paths interface {
	// OpenBeneath opens path below root, for use by Bind. It follows no link out of root.
	OpenBeneath(root, path string) (*os.File, error)
	// MkdirBeneath is like OpenBeneath, but makes missing directories with mode.
	MkdirBeneath(root, path string, mode fs.FileMode) (*os.File, error)
	// Bind mounts an open file or directory on target.
	Bind(f *os.File, target string) error
	// RemoveTree deletes dir and all below it. It enters no mount.
	RemoveTree(ctx context.Context, dir string) error
}

// Host is the machine on which the agent runs. hostfs.Host implements it for a real machine.
type Host interface {
	Mounter
	Paths
	Meter
	Binder
	Tools
	Devices
	SCSI
}

// Objects reads the API objects from which volumes are made. Calls may be concurrent. A call waits until the API server
// has answered for the first time, or until ctx ends.
type Objects interface {
	// ConfigMap and Secret return the object of this name in the pod's namespace.
	ConfigMap(ctx context.Context, p *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, p *v1.Pod, name string) (*v1.Secret, error)
	// ServiceAccountToken returns a token that is bound to the pod. If the token is due for renewal, the call first tries to renew it.
	ServiceAccountToken(ctx context.Context, p *v1.Pod, audience string, expirationSeconds *int64) (token string, expires time.Time, err error)
}

// Credentials returns the certificates of pods, and the trust anchors with which pods verify others. Calls may be concurrent. Like
// the calls of Objects, they wait until the API server has answered for the first time, or until ctx ends. If an error says that an object
// is missing, Config.Notify is called for the pod when this object appears.
type Credentials interface {
	// TrustAnchors returns the certificates that a clusterTrustBundle source selects, in PEM format.
	TrustAnchors(ctx context.Context, p *v1.Pod, src *v1.ClusterTrustBundleProjection) ([]byte, error)
	// PodCertificate returns the private key and the certificate chain of the podCertificate source with this index in a volume of the
	// pod. Both are in PEM format, the key first. have is the key and chain that the volume contains now; it is empty if there are none.
	PodCertificate(ctx context.Context, p *v1.Pod, volume string, source int, have []byte) (bundle []byte, err error)
}

// Config configures Volumes.
type Config struct {
	// RootDir is the agent's directory, for example /var/lib/kubelet.
	RootDir string
	Host    Host
	// Disk has the records of volumes and the directories of pods; nil: the disk of this machine.
	Disk Disk
	// Objects is nil on a node without an API server: a volume that needs an object of the API then fails with an error that says so.
	Objects Objects
	// Credentials is nil on a node without an API server, like Objects.
	Credentials Credentials
	// Claims is nil on a node without an API server, like Objects.
	Claims Claims
	// ClaimStatus is nil if Claims is nil.
	ClaimStatus ClaimStatus
	Log         *slog.Logger
	// Event records an event on a pod or on a claim. It must not block. It may be nil.
	Event func(ref *v1.ObjectReference, eventType, reason, message string)
	// Driver returns a registered CSI driver, or nil. Driver may be nil, if no driver can register.
	Driver func(name string) Driver
	// Exceeded is called when a volume cannot be attached because this node has too many volumes of its CSI driver. It returns true if the pod
	// must give up this node: the limit of the driver in the CSINode is kept up to date, so the scheduler will choose another node for the
	// pod's successor. It must not block. It may be nil.
	Exceeded func(driver string) (giveUp bool)
	// InUseChanged is called after the result of InUse has changed. It must not block. It may be nil.
	InUseChanged func()
	// Notify is called when the caller should try the work on the volumes of a pod again: an earlier try failed because the volumes had to
	// wait for something, and this wait is over. Notify may be called from any goroutine. It must not block. It may be nil.
	Notify func(uid types.UID)
	// Health makes the node ask the CSI drivers that can say so whether the volumes of pods work (feature gate CSIVolumeHealth).
	Health bool
	// SELinux is nil on a machine without SELinux.
	SELinux *SELinux
	// Operated is called after each operation on a volume. It must not block. It may be nil.
	Operated func(Operation)
	// Measured is called after each measurement of how full a volume is, also one that failed. source says how it was measured: "du" (a
	// walk through the directory), "statfs" (the numbers of the volume's file system), or the name of a registered CSI driver, which
	// was asked. It must not block. It may be nil.
	Measured func(source string, took time.Duration)
	// MaySwap is called once if this machine may write memory-backed volumes to its swap space. It may be nil.
	MaySwap func()
}

// Volumes makes and removes the volumes of pods. Volumes of CSI drivers are expanded, republished and unstaged only after Begin was called.
type Volumes struct {
	cfg      Config
	layout   layout
	walks    walks
	measures measures
	swaps    sync.Once // logs the warning about swap space once, and calls MaySwap once
	hangs    hangs
	scsi     inflight
	paths    inflight          // calls to file systems that may not answer: see answers
	stat     func(path string) // stands for stat(2) in touch; only tests set it
	ofVolume keyed             // a lock for each persistent volume, which several pods may use
	ofHosts  keyed             // a lock for the hosts file of each pod, which the containers of the pod share
	waits    waits
	tries    tries
	// nodeChanged wakes the set-ups that wait for the attachment of a volume.
	nodeChanged broadcast
	using       inUse
	visits      visits
	stagings    stagings
}

// New returns Volumes with the configuration cfg. It does no IO.
func New(cfg Config) *Volumes {
	if cfg.Disk == nil {
		cfg.Disk = ownDisk{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Notify == nil {
		cfg.Notify = func(types.UID) {}
	}
	if cfg.Driver == nil {
		cfg.Driver = func(string) Driver { return nil }
	}
	if cfg.Event == nil {
		cfg.Event = func(*v1.ObjectReference, string, string, string) {}
	}
	if cfg.Operated == nil {
		cfg.Operated = func(Operation) {}
	}
	if cfg.Measured == nil {
		cfg.Measured = func(string, time.Duration) {}
	}
	if cfg.InUseChanged == nil {
		cfg.InUseChanged = func() {}
	}
	return &Volumes{cfg: cfg, layout: layout{root: cfg.RootDir}, walks: walks{pods: map[types.UID]map[string]walked{}}}
}

// Pod is a pod with the facts about its node that its volumes need.
type Pod struct {
	Pod *v1.Pod
	// PodIPs and HostIPs may become known late or never, so the set-up of volumes must not depend on them.
	PodIPs, HostIPs []string
	// NodeAllocatable limits the size of memory-backed volumes. In files of the downward API, it stands for a limit that a container does
	// not have.
	NodeAllocatable v1.ResourceList
}

// ReasonFailedMount is the reason of the events about errors of SetUp and Mounts.
const ReasonFailedMount = "FailedMount"

// Error is the failure to make or remove a volume.
type Error struct {
	// Volume is the name of the volume; empty if the failure concerns the pod's directory.
	Volume string
	// Reason is the reason for the event about the failure, for example FailedMount.
	Reason string
	// Message says what is wrong with Volume and what to do, without its name. If other volumes of the pod failed too, their failures
	// follow, each with the name of its volume.
	Message string
	Lack    pod.Lack // what the volume needs and does not have
	Err     error
}

// Error returns the message with the name of the volume.
func (e *Error) Error() string {
	if e.Volume == "" {
		return e.Message
	}
	return fmt.Sprintf("volume %q: %s", e.Volume, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func failed(volume string, err error) *Error {
	return &Error{Volume: volume, Reason: ReasonFailedMount, Message: err.Error(), Lack: lackOf(err), Err: err}
}

// lackOf returns what a volume needs and does not have.
func lackOf(err error) pod.Lack {
	switch lack := pod.LackOf(err); {
	case lack != pod.LackNone:
		return lack
	case errors.Is(err, ErrUnsupported), errors.Is(err, claims.ErrBlock), errors.Is(err, errNoObjects), errors.Is(err, errNoClaims),
		errors.Is(err, errNoDrivers):
		return pod.LackSupport
	case unansweredCall(err):
		return pod.LackMount
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return pod.LackRight
	case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsServiceUnavailable(err), apierrors.IsTooManyRequests(err),
		errors.Is(err, context.DeadlineExceeded), unanswered(err):
		return pod.LackServer
	}
	return pod.LackNone
}

// unansweredCall reports whether a CSI driver did not answer a call in time, or says that its own storage did not.
func unansweredCall(err error) bool {
	var call *csispec.CallError
	return errors.As(err, &call) && call.Code == csispec.CodeDeadlineExceeded
}

// unanswered reports whether a request to the API server got no answer.
func unanswered(err error) bool {
	var request *url.Error
	return errors.As(err, &request)
}

// SetUp makes all volumes that a container of the pod mounts, and updates existing ones. A volume that fails does not
// stop the others. The error is an *Error; with several failures it names the first volume, and its Message lists all
// failures.
func (v *Volumes) SetUp(ctx context.Context, p Pod) error {
	if err := v.setUpDirs(p.Pod); err != nil {
		return err
	}
	wanted := usedVolumes(p.Pod)
	errs := make([]*Error, len(wanted))
	var wg sync.WaitGroup
	for i, vol := range wanted {
		setUp := func() {
			began := time.Now()
			err := v.setUpVolume(ctx, p, vol)
			v.mounted(ctx, p.Pod, vol, began, err)
			if err != nil {
				errs[i] = failed(vol.Name, err)
			}
		}
		if i == len(wanted)-1 { // the last volume, often the only one, is set up in this goroutine
			setUp()
			break
		}
		wg.Go(setUp)
	}
	wg.Wait()
	return joinErrors(errs)
}

func (v *Volumes) setUpDirs(p *v1.Pod) error {
	if err := checkName("metadata.uid", string(p.UID)); err != nil {
		return failed("", err)
	}
	for _, dir := range []string{v.layout.pod(p.UID), v.layout.volumes(p.UID)} {
		if err := v.cfg.Disk.MkdirAll(dir, 0o750); err != nil {
			return failed("", fmt.Errorf("make pod directory: %w", err))
		}
	}
	return nil
}

// usedVolumes returns the volumes that some container mounts. SetUp makes only these volumes.
func usedVolumes(p *v1.Pod) []*v1.Volume {
	used := map[string]bool{}
	for c := range crispec.Containers(p) {
		for i := range c.VolumeMounts {
			used[c.VolumeMounts[i].Name] = true
		}
		for i := range c.VolumeDevices {
			used[c.VolumeDevices[i].Name] = true
		}
	}
	var wanted []*v1.Volume
	for i := range p.Spec.Volumes {
		if used[p.Spec.Volumes[i].Name] {
			wanted = append(wanted, &p.Spec.Volumes[i])
		}
	}
	return wanted
}

// joinErrors returns nil, the only error, or one that lists all. What that one lacks is what the first lacks, unless the pod has to give up this node for another.
func joinErrors(errs []*Error) error {
	var first *Error
	lack := pod.LackNone
	var messages []string
	var causes []error
	for _, e := range errs {
		if e == nil {
			continue
		}
		if first == nil {
			first, lack = e, e.Lack
			messages = append(messages, e.Message)
		} else {
			messages = append(messages, e.Error())
		}
		if e.Lack == pod.LackVolumeLimit {
			lack = e.Lack
		}
		causes = append(causes, e.Err)
	}
	if len(messages) < 2 {
		if first == nil {
			return nil // not a nil *Error, because a nil *Error in an error interface is not nil
		}
		return first
	}
	return &Error{Volume: first.Volume, Reason: first.Reason, Message: strings.Join(messages, "; "), Lack: lack, Err: errors.Join(causes...)}
}
