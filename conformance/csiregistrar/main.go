// csiregistrar takes the place of csi-node-driver-registrar in the images of upstream's storage tests: it asks a CSI driver for its name, and
// registers the driver's socket with the node agent. It knows the flags that the tests give it.
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
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

func main() {
	address := flag.String("csi-address", "", "socket of the driver")
	path := flag.String("kubelet-registration-path", "", "the same socket, as the node agent finds it")
	timeout := flag.Duration("timeout", time.Second, "how long the driver may take for its name; then the question is asked again")
	flag.Int("v", 0, "not used")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *address, *path, *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "csiregistrar:", err)
		os.Exit(1)
	}
}

// run serves the registration socket, which is in the directory /registration, until ctx ends or the node agent refuses the driver.
func run(ctx context.Context, address, path string, timeout time.Duration) error {
	name, err := driverName(ctx, address, timeout)
	if err != nil {
		return err
	}
	socket := filepath.Join("/registration", name+"-reg.sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an earlier process
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	r := &registrar{name: name, endpoint: path, refused: make(chan error, 1)}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, r)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer server.Stop()
	serving.Go(func() { _ = server.Serve(l) })
	select {
	case err := <-r.refused:
		return err
	case <-ctx.Done():
		return nil
	}
}

// driverName asks the driver for its name until it answers.
func driverName(ctx context.Context, address string, timeout time.Duration) (string, error) {
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	for {
		call, cancel := context.WithTimeout(ctx, timeout)
		info, err := csi.NewIdentityClient(conn).GetPluginInfo(call, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
		cancel()
		if err == nil {
			return info.GetName(), nil
		}
		if ctx.Err() != nil {
			return "", fmt.Errorf("ask the driver for its name: %w", err)
		}
		fmt.Println("ask the driver for its name again:", err)
		time.Sleep(100 * time.Millisecond)
	}
}

// registrar answers the node agent's registration of plugins.
type registrar struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
	refused        chan error
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus prints the outcome. A refusal ends the program, whose restart tries again, as the documentation of
// node-driver-registrar says.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Println("registered", s.PluginRegistered, s.Error)
	if !s.PluginRegistered {
		select {
		case r.refused <- fmt.Errorf("the node agent refused the driver: %s", s.Error):
		default:
		}
	}
	return &registration.RegistrationStatusResponse{}, nil
}
