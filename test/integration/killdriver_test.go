package integration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// killDriverEnv is the variable that makes the test program a CSI driver: "directory,name,socket,registration socket" (see killDriver).
const killDriverEnv = "WHERRY_IT_CSI_DRIVER"

// killDriver is the CSI driver of TestVolumeKills, as a process of its own that the test kills. It keeps nothing in memory: what is staged
// and published stands in the mount table. A volume is a directory below dir/volumes, and is bind-mounted. Each call takes a while before
// and after its work, so that many kills interrupt a call. A call that breaks a rule of CSI is written to the file dir/broken.
type killDriver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer
	registration.UnimplementedRegistrationServer
	dir, name, socket string

	mu   sync.Mutex
	busy map[string]bool // volumes that a call stages or unstages now
}

// serveKillDriver serves the driver until the process gets SIGTERM.
func serveKillDriver(config string) error {
	parts := strings.Split(config, ",")
	if len(parts) != 4 {
		return fmt.Errorf("%s=%q: four parts are needed", killDriverEnv, config)
	}
	d := &killDriver{dir: parts[0], name: parts[1], socket: parts[2], busy: map[string]bool{}}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server := grpc.NewServer()
	csi.RegisterIdentityServer(server, d)
	csi.RegisterNodeServer(server, d)
	registration.RegisterRegistrationServer(server, d)
	var wg sync.WaitGroup
	for _, socket := range parts[2:] {
		if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // the socket of a driver that was killed
			return err
		}
		l, err := net.Listen("unix", socket)
		if err != nil {
			return err
		}
		wg.Go(func() { _ = server.Serve(l) })
	}
	<-ctx.Done()
	server.Stop()
	wg.Wait()
	return nil
}

func (d *killDriver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: d.name, Endpoint: d.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (d *killDriver) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Println("registered", s.PluginRegistered, s.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (d *killDriver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: "id"}, nil
}

func (d *killDriver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{
		Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}}}}}, nil
}

func (d *killDriver) NodeStageVolume(_ context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	defer d.shared("NodeStageVolume", r.VolumeId)()
	return &csi.NodeStageVolumeResponse{}, d.slowly(func() error { return d.bind(filepath.Join(d.dir, "volumes", r.VolumeId), r.StagingTargetPath) })
}

func (d *killDriver) NodePublishVolume(_ context.Context, r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	return &csi.NodePublishVolumeResponse{}, d.slowly(func() error {
		if on, err := mountsOn(r.StagingTargetPath); err != nil || on == 0 {
			d.broke("volume %s is published to %s, and is not staged (%v)", r.VolumeId, r.TargetPath, err)
			return status.Error(codes.FailedPrecondition, "the volume is not staged")
		}
		return d.bind(r.StagingTargetPath, r.TargetPath)
	})
}

func (d *killDriver) NodeUnpublishVolume(_ context.Context, r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, d.slowly(func() error {
		if err := d.unbind(r.TargetPath); err != nil {
			return err
		}
		if err := os.Remove(r.TargetPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func (d *killDriver) NodeUnstageVolume(_ context.Context, r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	defer d.shared("NodeUnstageVolume", r.VolumeId)()
	return &csi.NodeUnstageVolumeResponse{}, d.slowly(func() error {
		infos, err := mountinfo.GetMounts(nil)
		if err != nil {
			return err
		}
		for _, m := range infos {
			if strings.HasSuffix(m.Root, filepath.Join(d.dir, "volumes", r.VolumeId)) && strings.Contains(m.Mountpoint, "/volumes/kubernetes.io~csi/") {
				d.broke("volume %s is unstaged while it is published at %s", r.VolumeId, m.Mountpoint)
			}
		}
		return d.unbind(r.StagingTargetPath)
	})
}

// shared marks a volume as being staged or unstaged, until the returned function is called.
func (d *killDriver) shared(method, volume string) (done func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy[volume] {
		d.broke("%s of volume %s while another call stages or unstages it", method, volume)
	}
	d.busy[volume] = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.busy, volume)
	}
}

// slowly does the work of a call, with a pause before and after it.
func (d *killDriver) slowly(f func() error) error {
	pause := func() { <-time.After(rand.N(150 * time.Millisecond)) }
	pause()
	defer pause()
	return f()
}

// bind mounts a directory on target, unless something is mounted there.
func (d *killDriver) bind(source, target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	on, err := mountsOn(target)
	if err != nil || on > 0 {
		return err
	}
	return unix.Mount(source, target, "", unix.MS_BIND, "")
}

func (d *killDriver) unbind(target string) error {
	for range 10 {
		on, err := mountsOn(target)
		if err != nil || on == 0 {
			return err
		}
		if on > 1 {
			d.broke("%s is mounted %d times", target, on)
		}
		if err := unix.Unmount(target, unix.UMOUNT_NOFOLLOW); err != nil {
			return err
		}
	}
	return errors.New("mounted again and again")
}

// broke writes down that a rule was broken.
func (d *killDriver) broke(format string, args ...any) {
	f, err := os.OpenFile(filepath.Join(d.dir, "broken"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	_, _ = fmt.Fprintf(f, format+"\n", args...)
}

// mountsOn returns how many mounts lie on a path.
func mountsOn(path string) (int, error) {
	infos, err := mountinfo.GetMounts(func(m *mountinfo.Info) (skip, stop bool) { return m.Mountpoint != path, false })
	return len(infos), err
}
