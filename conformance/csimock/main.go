// csimock is upstream's CSI mock driver as a program, registered with the node agent of this machine. Tests use it as a driver that this
// project did not write.
//
// The driver has the volumes 1, 2 and 3. A volume is an empty directory; nothing is mounted. The program prints each call of the node
// service to its standard output: method and volume.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path"
	"sync"
	"syscall"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"

	"github.com/wherry-node/wherry/conformance/internal/registrar"
)

func main() {
	name := flag.String("name", "", "name of the driver")
	socket := flag.String("socket", "", "socket of the driver")
	register := flag.String("register", "", "socket in the node agent's directory plugins_registry")
	flag.Parse()
	if err := run(*name, *socket, *register); err != nil {
		fmt.Fprintln(os.Stderr, "csimock:", err)
		os.Exit(1)
	}
}

// run serves the driver's socket and the registration socket until the program gets a signal.
func run(name, socket, register string) error {
	s := service.New(service.Config{DriverName: name, DisableAttach: true, NodeExpansionRequired: true})
	d := driver.NewCSIDriver(&driver.CSIDriverServers{Controller: s, Identity: s, Node: s})
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	if err := d.Start(l, printed); err != nil {
		return err
	}
	defer d.Stop()
	r, err := net.Listen("unix", register)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar.Registrar{Driver: name, Endpoint: socket, Told: func(registered bool, message string) {
		fmt.Println("Registered", registered, message)
	}})
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(r) })
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	<-ctx.Done()
	server.Stop()
	wg.Wait()
	return nil
}

// printed prints a call, its volume and its error.
func printed(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, req)
	volume := ""
	if v, ok := req.(interface{ GetVolumeId() string }); ok {
		volume = v.GetVolumeId()
	}
	fmt.Println(path.Base(info.FullMethod), volume, err)
	return answer, err
}
