// csi is a small CSI driver that keeps data, for the example in docs/volumes.md. It is not for production.
//
// By default (--kind=disk) a volume is a disk that is attached to one node at a time: a file below --dir. A node that uses it has a loop device
// of the file, with XFS (or ext4) on it unless the claim asks for a block device. So a volume has a real size, which grows online, and its data
// stays when its pod moves. With --kind=local a disk stays on the node for which it was made, as its topology says. With --kind=share a volume
// is a directory that all nodes can use at once, as on a file server; it has no size.
//
// All processes of the driver share the directory and keep nothing in memory: one process is the controller, and each node has one (--node),
// which also registers with the node agent (--register). Upstream's mock driver cannot take its place, because it deletes the data of a volume
// whenever a pod ends. Upstream's tests of storage run with this driver, too: make conformance-external.
//
// The program needs root, and losetup, mount, mkfs.xfs and xfs_growfs (package xfsprogs); for ext4 mkfs.ext4, e2fsck and resize2fs. It prints a line for
// each call that changes something.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path"
	"strings"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	name := flag.String("name", "files.example.com", "name of the driver")
	dir := flag.String("dir", "", "directory of the volumes")
	socket := flag.String("socket", "", "socket of the driver")
	node := flag.String("node", "", "name of the node whose volumes this process mounts; without it, the process is the controller")
	kinds := flag.String("kind", string(disk), "what a volume is: disk, local or share")
	most := flag.Int64("max-volumes", 0, "how many volumes a node can have, with --node; 0: any number")
	register := flag.String("register", "", "socket in the node agent's directory plugins_registry, with --node")
	flag.Parse()
	s := store{dir: *dir, kind: kind(*kinds)}
	if err := run(s, &nodeService{store: s, name: *name, node: *node, most: *most}, *socket, *register); err != nil {
		fmt.Fprintln(os.Stderr, "csi:", err)
		os.Exit(1)
	}
}

// run serves the sockets until the program gets a signal. d is the node service, without the name of a node for the controller.
func run(s store, d *nodeService, socket, register string) error {
	if s.dir == "" || socket == "" || (d.node == "") != (register == "") {
		return errors.New("--dir and --socket are needed, and --node and --register only together")
	}
	if s.kind != disk && s.kind != local && s.kind != share {
		return fmt.Errorf("--kind=%s is none of %s, %s and %s", s.kind, disk, local, share)
	}
	if err := os.MkdirAll(s.inline(""), 0o700); err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(printed))
	csi.RegisterIdentityServer(server, &identity{name: d.name, kind: s.kind})
	sockets := []string{socket}
	if d.node == "" {
		csi.RegisterControllerServer(server, &controller{store: s, name: d.name})
	} else {
		csi.RegisterNodeServer(server, d)
		registration.RegisterRegistrationServer(server, &registrar{name: d.name, socket: socket})
		sockets = append(sockets, register)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer server.Stop()
	for _, socket := range sockets {
		if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an earlier process
			return err
		}
		l, err := net.Listen("unix", socket)
		if err != nil {
			return err
		}
		wg.Go(func() { _ = server.Serve(l) })
	}
	<-ctx.Done()
	return nil
}

// printed prints a call that changes something, its volume and its error.
func printed(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, req)
	method, volume := path.Base(info.FullMethod), ""
	switch r := req.(type) {
	case interface{ GetVolumeId() string }:
		volume = r.GetVolumeId()
	case *csi.CreateVolumeRequest:
		volume = r.GetName()
	}
	result := "ok"
	if err != nil {
		result = err.Error()
	}
	if volume != "" && !strings.HasPrefix(method, "NodeGet") {
		fmt.Println(method, volume, result)
	}
	return answer, err
}

// identity is the driver's identity service.
type identity struct {
	csi.UnimplementedIdentityServer
	name string
	kind kind
}

func (d *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

func (d *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_CONTROLLER_SERVICE}
	if d.kind == local {
		services = append(services, csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS)
	}
	out := &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
	}}
	for _, s := range services {
		out.Capabilities = append(out.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: s}}})
	}
	return out, nil
}

func (d *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// registrar answers the node agent's registration of plugins.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, socket string
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Println("registered", s.PluginRegistered, s.Error)
	return &registration.RegistrationStatusResponse{}, nil
}
