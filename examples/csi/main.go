// csi is a small CSI driver that keeps data, for the example in docs/volumes.md. It is not for production.
//
// A volume is a file below --dir. A node that uses it has a loop device of the file, with XFS on it unless the claim asks for a block device.
// So a volume has a real size, which grows online, and its data stays when its pod moves. All processes of the driver share the directory and
// keep nothing in memory: one process is the controller, and each node has one (--node), which also registers with the node agent
// (--register). Upstream's mock driver cannot take its place, because it deletes the data of a volume whenever a pod ends.
//
// The program needs root, and losetup, mount, mkfs.xfs and xfs_growfs (package xfsprogs). It prints a line for each call that changes something.
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
	register := flag.String("register", "", "socket in the node agent's directory plugins_registry, with --node")
	flag.Parse()
	if err := run(*name, *dir, *socket, *node, *register); err != nil {
		fmt.Fprintln(os.Stderr, "csi:", err)
		os.Exit(1)
	}
}

// run serves the sockets until the program gets a signal.
func run(name, dir, socket, node, register string) error {
	if dir == "" || socket == "" || (node == "") != (register == "") {
		return errors.New("--dir and --socket are needed, and --node and --register only together")
	}
	s := store{dir: dir}
	if err := os.MkdirAll(s.inline(""), 0o700); err != nil {
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(printed))
	csi.RegisterIdentityServer(server, &identity{name: name})
	sockets := []string{socket}
	if node == "" {
		csi.RegisterControllerServer(server, &controller{store: s})
	} else {
		csi.RegisterNodeServer(server, &nodeService{store: s, node: node})
		registration.RegisterRegistrationServer(server, &registrar{name: name, socket: socket})
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
}

func (d *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

func (d *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}},
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE}}},
	}}, nil
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
