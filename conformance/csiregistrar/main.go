// csiregistrar takes the place of csi-node-driver-registrar in the images of upstream's storage tests: it asks a CSI driver for its name, and
// registers the driver's socket with the node agent. It knows the flags that the tests give it.
package main

import (
	"context"
	"flag"
	"fmt"
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

	"github.com/wherry-node/wherry/conformance/internal/registrar"
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
	l, err := registrar.Listen(filepath.Join("/registration", name+"-reg.sock"))
	if err != nil {
		return err
	}
	refused := make(chan string, 1)
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar.Registrar{Driver: name, Endpoint: path, Told: func(registered bool, message string) {
		fmt.Println("registered", registered, message)
		if !registered {
			select {
			case refused <- message:
			default: // the program ends already
			}
		}
	}})
	var serving sync.WaitGroup
	defer serving.Wait()
	defer server.Stop()
	serving.Go(func() { _ = server.Serve(l) })
	select {
	case message := <-refused: // the program ends, and its restart tries again, as the documentation of node-driver-registrar says
		return fmt.Errorf("the node agent refused the driver: %s", message)
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
