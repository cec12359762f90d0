package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// DiskDriver is the name of the benchmark's CSI driver.
const DiskDriver = "disks.bench.wherry.dev"

// Disk returns the name of the i-th volume of the CSI driver, and of the claim that is bound to it.
func Disk(i int) string { return fmt.Sprintf("disk-%d", i) }

// MakeDisks creates n volumes of the CSI driver with their claims, and waits until the claims are bound. Volumes that exist already are kept.
func (r *Rig) MakeDisks(ctx context.Context, n int) error {
	attach := false
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: DiskDriver}, Spec: storagev1.CSIDriverSpec{AttachRequired: &attach}}
	if _, err := r.Client.StorageV1().CSIDrivers().Create(ctx, driver, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create CSIDriver: %w", err)
	}
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}
	modes := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	claims := r.Client.CoreV1().PersistentVolumeClaims(Namespace)
	for i := range n {
		name, class := Disk(i), ""
		pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			ClaimRef:               &v1.ObjectReference{Namespace: Namespace, Name: name},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: DiskDriver, VolumeHandle: name}},
		}}
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: modes, Resources: v1.VolumeResourceRequirements{Requests: size}, StorageClassName: &class, VolumeName: name,
		}}
		if _, err := r.Client.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create volume %s: %w", name, err)
		}
		if _, err := claims.Create(ctx, claim, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create claim %s: %w", name, err)
		}
	}
	for {
		list, err := claims.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		bound := 0
		for i := range list.Items {
			if list.Items[i].Status.Phase == v1.ClaimBound {
				bound++
			}
		}
		if bound >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d claims are bound: %w", bound, n, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Disks is a CSI driver on the node of one agent. A volume is a directory below the rig's directory; staging and publishing mount it, as
// drivers do. The driver can stage volumes and report how full they are.
type Disks struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer

	node, data, endpoint string
	servers              []*grpc.Server
	calls                atomic.Int64
}

// Disks starts the CSI driver, and waits until the agent, which must run, has registered it. Close ends the driver.
func (a *Agent) Disks(ctx context.Context) (d *Disks, err error) {
	d = &Disks{node: a.Node, data: a.rig.path("disks"), endpoint: a.path("root", "plugins", DiskDriver, "csi.sock")}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	count := grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		d.calls.Add(1)
		return next(ctx, req)
	})
	driver, registrar := grpc.NewServer(count), grpc.NewServer()
	csi.RegisterIdentityServer(driver, d)
	csi.RegisterNodeServer(driver, d)
	registration.RegisterRegistrationServer(registrar, d)
	if err := d.serve(driver, d.endpoint); err != nil {
		return nil, err
	}
	if err := d.serve(registrar, a.path("root", "plugins_registry", DiskDriver+".sock")); err != nil {
		return nil, err
	}
	for {
		n, err := a.rig.Client.StorageV1().CSINodes().Get(ctx, a.Node, metav1.GetOptions{})
		if err == nil && len(n.Spec.Drivers) > 0 {
			return d, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s has not registered the CSI driver: %w", a.Node, errors.Join(err, ctx.Err()))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (d *Disks) serve(s *grpc.Server, socket string) error {
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	d.servers = append(d.servers, s)
	go func() { _ = s.Serve(l) }() // it returns when Close stops the server
	return nil
}

// Close ends the driver. The agent forgets it.
func (d *Disks) Close() {
	for _, s := range d.servers {
		s.Stop()
	}
}

// Calls returns how many calls the driver has answered since the last call of Calls.
func (d *Disks) Calls() int { return int(d.calls.Swap(0)) }

// GetInfo answers the agent's registration of plugins.
func (d *Disks) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: DiskDriver, Endpoint: d.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus accepts the result of the registration.
func (d *Disks) NotifyRegistrationStatus(context.Context, *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	return &registration.RegistrationStatusResponse{}, nil
}

// GetPluginInfo names the driver.
func (d *Disks) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: DiskDriver, VendorVersion: "1"}, nil
}

// GetPluginCapabilities says that the driver has no controller.
func (d *Disks) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

// Probe says that the driver works.
func (d *Disks) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// NodeGetInfo names the node.
func (d *Disks) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.node}, nil
}

// NodeGetCapabilities says that the driver stages volumes and reports how full they are.
func (d *Disks) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	out := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range []csi.NodeServiceCapability_RPC_Type{csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_GET_VOLUME_STATS} {
		out.Capabilities = append(out.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}}})
	}
	return out, nil
}

// NodeStageVolume mounts the directory of a volume at the staging path.
func (d *Disks) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	source := filepath.Join(d.data, r.GetVolumeId())
	if err := os.MkdirAll(source, 0o755); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &csi.NodeStageVolumeResponse{}, bind(source, r.GetStagingTargetPath())
}

// NodePublishVolume mounts what is staged at the pod's path.
func (d *Disks) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, bind(r.GetStagingTargetPath(), r.GetTargetPath())
}

// NodeUnpublishVolume unmounts the pod's path and removes it.
func (d *Disks) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, unbind(r.GetTargetPath())
}

// NodeUnstageVolume unmounts the staging path and removes it.
func (d *Disks) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	return &csi.NodeUnstageVolumeResponse{}, unbind(r.GetStagingTargetPath())
}

// NodeGetVolumeStats reports how full the file system of a volume is.
func (d *Disks) NodeGetVolumeStats(_ context.Context, r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(r.GetVolumePath(), &fs); err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	all, free := int64(fs.Blocks)*fs.Bsize, int64(fs.Bavail)*fs.Bsize
	return &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: all, Available: free, Used: all - free}}}, nil
}

// bind mounts a directory at another path. If that path is a mount already, it does nothing, because CSI calls may be repeated.
func bind(source, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	if mounted(target) {
		return nil
	}
	if err := syscall.Mount(source, target, "", syscall.MS_BIND, ""); err != nil {
		return status.Errorf(codes.Internal, "mount %s at %s: %v", source, target, err)
	}
	return nil
}

// unbind undoes bind.
func unbind(target string) error {
	if mounted(target) {
		if err := syscall.Unmount(target, 0); err != nil {
			return status.Errorf(codes.Internal, "unmount %s: %v", target, err)
		}
	}
	if err := os.Remove(target); err != nil && !os.IsNotExist(err) {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

// mountedIn reports whether a text in the format of /proc/self/mountinfo has a mount at a path.
func mountedIn(mountinfo, path string) bool {
	for line := range strings.Lines(mountinfo) {
		if f := strings.Fields(line); len(f) > 4 && escaped.Replace(f[4]) == path {
			return true
		}
	}
	return false
}

// mounted reports whether a path is a mount point. The volumes are on the same file system as the rig's directory, so a comparison of device
// numbers would not tell; /proc/self/mountinfo does.
func mounted(path string) bool {
	text, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && mountedIn(string(text), path)
}
