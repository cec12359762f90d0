package simcsi

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Config configures a Driver.
type Config struct {
	Name, NodeID string
	MaxVolumes   int64
	Topology     map[string]string
	// Stage, MountGroup and Expand say which of these capabilities the driver has.
	Stage, MountGroup, Expand bool
	// Usage is the usage of each volume that the driver reports. Nil: the driver does not have the capability GET_VOLUME_STATS.
	Usage []*csi.VolumeUsage
	// Sized: the driver reports the size of each volume instead of Usage. It knows the size from the attribute AttributeSize of the volume and
	// from the calls that expand it. A volume whose size it does not know has no usage.
	Sized bool
	// Condition is the condition of each volume that the driver reports with Usage. Nil: the driver does not have the capability
	// VOLUME_CONDITION.
	Condition *csi.VolumeCondition
	// Type, Endpoint and Versions replace the true values in the answer to the registration, if they are not empty.
	Type, Endpoint string
	Versions       []string
	// Mount is called after the driver has made a target path, and Unmount before it removes one. Nil: the path is an ordinary directory.
	Mount func(volume, target string) error
	// Device is called instead of Mount for a block volume, with a target path that is an empty file.
	Device  func(volume, target string) error
	Unmount func(target string) error
	// Paths makes and removes the paths of volumes, which are then in memory. Mount, Device and Unmount are not called. Nil: the paths are on
	// the disk of this machine.
	Paths Paths
	// Quiet: the driver does not remember its calls and the last requests, so that it needs no more memory the longer it lives.
	Quiet bool
	// Called, if it is not nil, is called each time after an element was added to the results of Calls or Told. It must not block.
	Called func()
}

// Paths makes the directories at which volumes are staged and published, each with a mount. Calls may be concurrent.
type Paths interface {
	MountDir(target string) error
	// UnmountDir does nothing if there is no such directory.
	UnmountDir(target string) error
}

// Fault changes what the calls of a method do.
type Fault struct {
	// Err, unless it is nil, is the answer. If After is true, the call takes effect before that; otherwise it has no effect.
	Err   error
	After bool
	// Hang, unless it is nil, holds each call until the channel is closed or the caller gives up.
	Hang chan struct{}
	// Lie: the call has no effect, and the answer says that it succeeded.
	Lie bool
}

// Driver is a CSI driver.
type Driver struct {
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	cfg Config

	mu        sync.Mutex
	calls     []string
	broken    []string          // see Broken
	busy      map[string]bool   // volumes that a call stages or unstages
	staged    map[string]string // staging path, by volume
	published map[string]string // volume, by target path
	last      lastRequests
	uses      map[string]volumeUse // by volume, with Config.Sized
	faults    map[string]*Fault    // by method
	told      []string             // see Told
	servers   []*grpc.Server
	wg        sync.WaitGroup
}

// New returns a driver. Serve and Announce open its sockets.
func New(cfg Config) *Driver {
	if cfg.Called == nil {
		cfg.Called = func() {}
	}
	return &Driver{cfg: cfg, busy: map[string]bool{}, staged: map[string]string{}, published: map[string]string{}, uses: map[string]volumeUse{}, faults: map[string]*Fault{}}
}

// Serve opens the driver's own socket.
func (d *Driver) Serve(socket string) error {
	if d.cfg.Endpoint == "" {
		d.cfg.Endpoint = socket
	}
	l, err := listen(socket)
	if err != nil {
		return err
	}
	d.ServeOn(l)
	return nil
}

// ServeOn serves the driver's own service on a listener, which may be in memory.
func (d *Driver) ServeOn(l net.Listener) {
	d.serve(l, func(s *grpc.Server) { csi.RegisterNodeServer(s, d) })
}

// Announce opens the socket by which the driver registers.
func (d *Driver) Announce(socket string) error {
	l, err := listen(socket)
	if err != nil {
		return err
	}
	d.serve(l, func(s *grpc.Server) { registration.RegisterRegistrationServer(s, d) })
	return nil
}

// listen opens a socket.
func listen(socket string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o750); err != nil {
		return nil, err
	}
	return net.Listen("unix", socket)
}

func (d *Driver) serve(l net.Listener, register func(*grpc.Server)) {
	s := grpc.NewServer()
	register(s)
	d.mu.Lock()
	d.servers = append(d.servers, s)
	d.mu.Unlock()
	d.wg.Go(func() { _ = s.Serve(l) })
}

// Close ends the driver and removes its sockets, as at the regular end of a process. Mounts stay.
func (d *Driver) Close() {
	d.mu.Lock()
	servers := d.servers
	d.servers = nil
	d.mu.Unlock()
	for _, s := range servers {
		s.Stop()
	}
	d.wg.Wait()
}

// Forget makes the driver forget all volumes, as a reboot of the machine does, which ends their mounts.
func (d *Driver) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.staged)
	clear(d.published)
	clear(d.uses)
}

// SetMaxVolumes replaces Config.MaxVolumes.
func (d *Driver) SetMaxVolumes(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg.MaxVolumes = n
}

// SetExpand replaces Config.Expand, as a newer version of the driver would.
func (d *Driver) SetExpand(can bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg.Expand = can
}

// SetCondition replaces Config.Condition, which must not have been nil.
func (d *Driver) SetCondition(c *csi.VolumeCondition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cfg.Condition = c
}

// SetFault sets the fault of a method; nil: none.
func (d *Driver) SetFault(method string, f *Fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[method] = f
}

// Calls returns all calls so far, as "method volume".
func (d *Driver) Calls() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.calls)
}

// Count returns the number of calls of a method.
func (d *Driver) Count(method string) (n int) {
	for _, c := range d.Calls() {
		if strings.HasPrefix(c, method+" ") {
			n++
		}
	}
	return n
}

// Broken describes the calls that have broken a rule.
func (d *Driver) Broken() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.broken)
}

// Told returns the registration results that the driver has received, each "registered" or an error.
func (d *Driver) Told() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.told)
}

// Holds returns how many volumes are staged, and at how many target paths volumes are published.
func (d *Driver) Holds() (staged, published int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.staged), len(d.published)
}

// GetInfo returns the driver's type, name, endpoint and versions, with which the node agent registers it.
func (d *Driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	info := &registration.PluginInfo{Type: registration.CSIPlugin, Name: d.cfg.Name, Endpoint: d.cfg.Endpoint, SupportedVersions: d.cfg.Versions}
	if d.cfg.Type != "" {
		info.Type = d.cfg.Type
	}
	if info.SupportedVersions == nil {
		info.SupportedVersions = []string{"1.0.0"}
	}
	return info, nil
}

// NotifyRegistrationStatus records the result of the registration (see Told).
func (d *Driver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	said := "registered"
	if !s.PluginRegistered {
		said = s.Error
	}
	d.mu.Lock()
	d.told = append(d.told, said)
	d.mu.Unlock()
	d.cfg.Called()
	return &registration.RegistrationStatusResponse{}, nil
}

// NodeGetCapabilities returns the capabilities that Config gives the driver.
func (d *Driver) NodeGetCapabilities(ctx context.Context, _ *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	out := &csi.NodeGetCapabilitiesResponse{}
	add := func(t csi.NodeServiceCapability_RPC_Type) {
		out.Capabilities = append(out.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: t}}})
	}
	if d.cfg.Stage {
		add(csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	}
	if d.cfg.MountGroup {
		add(csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
	}
	if d.cfg.Expand {
		add(csi.NodeServiceCapability_RPC_EXPAND_VOLUME)
	}
	if d.cfg.Usage != nil || d.cfg.Sized {
		add(csi.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	}
	if d.cfg.Condition != nil {
		add(csi.NodeServiceCapability_RPC_VOLUME_CONDITION)
	}
	return out, d.do(ctx, "NodeGetCapabilities", "", func() error { return nil })
}

// NodeGetInfo returns the node ID, the maximal number of volumes and the topology.
func (d *Driver) NodeGetInfo(ctx context.Context, _ *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	d.mu.Lock()
	limit := d.cfg.MaxVolumes
	d.mu.Unlock()
	out := &csi.NodeGetInfoResponse{NodeId: d.cfg.NodeID, MaxVolumesPerNode: limit, AccessibleTopology: &csi.Topology{Segments: d.cfg.Topology}}
	return out, d.do(ctx, "NodeGetInfo", "", func() error { return nil })
}

// NodeGetVolumeStats returns Config.Usage. The volume must be published at the path.
func (d *Driver) NodeGetVolumeStats(ctx context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	d.mu.Lock()
	condition, usage := d.cfg.Condition, d.cfg.Usage
	if use, known := d.uses[r.VolumeId]; known {
		usage = use.usage(time.Now())
	}
	d.mu.Unlock()
	return &csi.NodeGetVolumeStatsResponse{Usage: usage, VolumeCondition: condition}, d.do(ctx, "NodeGetVolumeStats", r.VolumeId, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.published[r.VolumePath] != r.VolumeId {
			return status.Errorf(codes.NotFound, "volume %s is not published at %s", r.VolumeId, r.VolumePath)
		}
		return nil
	})
}

// NodeStageVolume stages a volume.
func (d *Driver) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	return &csi.NodeStageVolumeResponse{}, d.do(ctx, "NodeStageVolume", r.VolumeId, func() error {
		d.mu.Lock()
		_, again := d.staged[r.VolumeId]
		d.staged[r.VolumeId] = r.StagingTargetPath
		d.learnUse(r.VolumeId, r.VolumeContext)
		if !d.cfg.Quiet {
			d.last.stage = r
		}
		d.mu.Unlock()
		if again || r.VolumeCapability.GetBlock() != nil {
			return nil
		}
		return d.mount(r.VolumeId, r.StagingTargetPath)
	})
}

// NodeUnstageVolume undoes NodeStageVolume.
func (d *Driver) NodeUnstageVolume(ctx context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, d.do(ctx, "NodeUnstageVolume", r.VolumeId, func() error {
		d.mu.Lock()
		for target, volume := range d.published {
			if volume == r.VolumeId {
				d.broken = append(d.broken, "volume "+volume+" is unstaged while it is published at "+target)
			}
		}
		_, was := d.staged[r.VolumeId]
		delete(d.staged, r.VolumeId)
		delete(d.uses, r.VolumeId)
		d.mu.Unlock()
		switch {
		case d.cfg.Paths != nil:
			return d.cfg.Paths.UnmountDir(r.StagingTargetPath)
		case !was || d.cfg.Unmount == nil:
			return nil
		}
		return d.cfg.Unmount(r.StagingTargetPath)
	})
}

// NodePublishVolume publishes a volume.
func (d *Driver) NodePublishVolume(ctx context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, d.do(ctx, "NodePublishVolume", r.VolumeId, func() error {
		d.mu.Lock()
		if _, ok := d.staged[r.VolumeId]; d.cfg.Stage && r.StagingTargetPath != "" && !ok {
			d.broken = append(d.broken, "volume "+r.VolumeId+" is published and was not staged")
		}
		_, again := d.published[r.TargetPath]
		d.published[r.TargetPath] = r.VolumeId
		if !d.cfg.Quiet {
			d.last.publish = r
		}
		d.mu.Unlock()
		if again {
			return nil
		}
		if r.VolumeCapability.GetBlock() != nil {
			return d.device(r.VolumeId, r.TargetPath)
		}
		return d.mount(r.VolumeId, r.TargetPath)
	})
}

// NodeUnpublishVolume undoes NodePublishVolume.
func (d *Driver) NodeUnpublishVolume(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, d.do(ctx, "NodeUnpublishVolume", r.VolumeId, func() error {
		d.mu.Lock()
		_, was := d.published[r.TargetPath]
		delete(d.published, r.TargetPath)
		d.mu.Unlock()
		if d.cfg.Paths != nil {
			return d.cfg.Paths.UnmountDir(r.TargetPath)
		}
		if was && d.cfg.Unmount != nil {
			if err := d.cfg.Unmount(r.TargetPath); err != nil {
				return err
			}
		}
		_ = os.Remove(r.TargetPath) // a directory with files stays, as with many drivers
		return nil
	})
}

// NodeExpandVolume makes a volume larger. The volume must be staged or published at the path.
func (d *Driver) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	return &csi.NodeExpandVolumeResponse{CapacityBytes: r.GetCapacityRange().GetRequiredBytes()}, d.do(ctx, "NodeExpandVolume", r.VolumeId, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.published[r.VolumePath] != r.VolumeId && d.staged[r.VolumeId] != r.VolumePath {
			d.broken = append(d.broken, "volume "+r.VolumeId+" is expanded at "+r.VolumePath+", where it is neither staged nor published")
		}
		if !d.cfg.Quiet {
			d.last.expand = r
		}
		if size := r.GetCapacityRange().GetRequiredBytes(); d.cfg.Sized && size > 0 {
			use, known := d.uses[r.VolumeId]
			if use.size = size; !known {
				use.made = time.Now()
			}
			d.uses[r.VolumeId] = use
		}
		return nil
	})
}

// device makes a block volume at a target path.
func (d *Driver) device(volume, target string) error {
	err := os.WriteFile(target, nil, 0o600)
	if err == nil && d.cfg.Device != nil {
		err = d.cfg.Device(volume, target)
	}
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func (d *Driver) mount(volume, target string) error {
	if d.cfg.Paths != nil {
		return d.cfg.Paths.MountDir(target)
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if d.cfg.Mount == nil {
		return nil
	}
	if err := d.cfg.Mount(volume, target); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// do runs a call with its fault. It records a call that stages or unstages a volume while another such call runs.
func (d *Driver) do(ctx context.Context, method, volume string, f func() error) error {
	d.mu.Lock()
	if !d.cfg.Quiet {
		d.calls = append(d.calls, method+" "+volume)
	}
	fault := d.faults[method]
	shared := volume != "" && strings.Contains(method, "tage") // NodeStageVolume or NodeUnstageVolume, which concern all pods of the node
	if shared && d.busy[volume] {
		d.broken = append(d.broken, fmt.Sprintf("%s of volume %s while another call stages or unstages it", method, volume))
	}
	if shared {
		d.busy[volume] = true
		defer func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.busy, volume)
		}()
	}
	d.mu.Unlock()
	d.cfg.Called()
	if fault != nil && fault.Hang != nil {
		select {
		case <-fault.Hang:
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	if fault != nil && fault.Err != nil && !fault.After {
		return fault.Err
	}
	if fault != nil && fault.Lie {
		return nil
	}
	if err := f(); err != nil {
		return err
	}
	if fault != nil {
		return fault.Err
	}
	return nil
}
