// hostpathplugin takes the place of the program of the same name in the image of the CSI driver that upstream's storage tests deploy. It
// knows the flags that the tests give it.
//
// With --proxy-endpoint it is a proxy: the test program has the driver, and connects to this address once for each connection that it
// expects at the driver's socket. Without it, the program is upstream's mock driver, which makes empty directories and mounts nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/driver"
	"k8s.io/kubernetes/test/e2e/storage/drivers/csi-test/mock/service"

	"github.com/wherry-node/wherry/conformance/internal/registrar"
)

func main() {
	var config service.Config
	endpoint := flag.String("endpoint", "", "socket of the driver")
	proxy := flag.String("proxy-endpoint", "", "tcp://ADDRESS: serve the socket by the connections that come to this address")
	flag.StringVar(&config.DriverName, "drivername", "", "name of the driver")
	attach := flag.Bool("enable-attach", false, "the driver attaches volumes")
	flag.BoolVar(&config.EnableTopology, "enable-topology", false, "the driver has topology")
	flag.BoolVar(&config.NodeExpansionRequired, "node-expand-required", false, "the node expands volumes, too")
	flag.Int64Var(&config.AttachLimit, "attach-limit", 0, "how many volumes a node can have; 0: any number")
	flag.String("nodeid", "", "not used: the mock driver has a node ID of its own")
	flag.String("statedir", "", "not used: the mock driver keeps no state")
	klog.InitFlags(nil)
	flag.Parse()
	config.DisableAttach = !*attach
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, *endpoint, *proxy, config); err != nil {
		fmt.Fprintln(os.Stderr, "hostpathplugin:", err)
		os.Exit(1)
	}
}

// run serves the driver's socket until ctx ends.
func run(ctx context.Context, endpoint, proxy string, config service.Config) error {
	socket, err := registrar.Listen(endpoint)
	if err != nil {
		return err
	}
	if proxy != "" {
		remote, err := net.Listen("tcp", strings.TrimPrefix(proxy, "tcp://"))
		if err != nil {
			return errors.Join(err, socket.Close())
		}
		return pair(ctx, socket, remote)
	}
	s := service.New(config)
	d := driver.NewCSIDriver(&driver.CSIDriverServers{Controller: s, Identity: s, Node: s})
	if err := d.Start(socket, nil); err != nil { // with no interceptor of ours the driver logs each call as the tests read it
		return errors.Join(err, socket.Close())
	}
	<-ctx.Done()
	d.Stop()
	return nil
}

// pair joins each connection to the driver's socket with one from the test program, until ctx ends.
func pair(ctx context.Context, socket, remote net.Listener) error {
	var joined sync.WaitGroup
	defer joined.Wait()
	end := context.AfterFunc(ctx, func() { _, _ = socket.Close(), remote.Close() })
	defer end()
	for {
		near, err := socket.Accept()
		if err != nil {
			return ended(ctx, err)
		}
		far, err := remote.Accept()
		if err != nil {
			return errors.Join(ended(ctx, err), near.Close())
		}
		joined.Go(func() { join(ctx, near, far) })
	}
}

// join copies in both directions until one side closes its connection, or ctx ends. Then it closes both.
func join(ctx context.Context, near, far net.Conn) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var copies sync.WaitGroup
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		copies.Go(func() {
			defer cancel()
			_, _ = io.Copy(way[0], way[1]) // the sides see the end of the connection, whatever the reason
		})
	}
	<-ctx.Done()
	_, _ = near.Close(), far.Close()
	copies.Wait()
}

// ended returns nil if ctx has ended, which closes the listeners, and otherwise err.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
