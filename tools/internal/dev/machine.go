package dev

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/tools/internal/proc"
	"github.com/wherry-node/wherry/tools/internal/runtime"
)

// machineAddress returns an IP address of this machine that pods can reach; "" if the machine has only loopback addresses.
func machineAddress() string {
	// No packet is sent: connecting a UDP socket only chooses the route.
	if conn, err := net.Dial("udp4", "192.88.99.1:9"); err == nil {
		defer func() { _ = conn.Close() }()
		if addr, ok := conn.LocalAddr().(*net.UDPAddr); ok && !addr.IP.IsLoopback() && !addr.IP.IsUnspecified() {
			return addr.IP.String()
		}
	}
	addrs, _ := net.InterfaceAddrs()
	for _, addr := range addrs {
		if ip, ok := addr.(*net.IPNet); ok && ip.IP.To4() != nil && ip.IP.IsGlobalUnicast() {
			return ip.IP.String()
		}
	}
	return ""
}

// On a machine with only loopback addresses, Up creates an interface with this name and address, so that pods can reach the node.
const (
	dummyName    = "wherry0"
	dummyAddress = "172.31.255.1"
)

func makeDummy(ctx context.Context) error {
	for _, args := range [][]string{
		{"link", "add", dummyName, "type", "dummy"}, {"addr", "replace", dummyAddress + "/32", "dev", dummyName}, {"link", "set", dummyName, "up"},
	} {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil && !strings.Contains(string(out), "File exists") {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

func removeDummy(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	if _, err := net.InterfaceByName(name); err != nil {
		return nil
	}
	out, err := exec.CommandContext(ctx, "ip", "link", "del", name).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip link del %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// unmountBelow unmounts everything that is mounted below dir, innermost first.
func unmountBelow(dir string) error {
	mounts, err := runtime.MountsBelow(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range mounts {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// removeProxyTables removes the netfilter tables that kube-proxy created since Up, in case the control plane was killed. Otherwise the
// control plane removes them itself.
func removeProxyTables(ctx context.Context, before []string) error {
	tables, err := runtime.Tables(ctx)
	if err != nil {
		return err
	}
	for _, table := range []string{"ip kube-proxy", "ip6 kube-proxy"} {
		if slices.Contains(tables, table) && !slices.Contains(before, table) {
			args := append([]string{"delete", "table"}, strings.Fields(table)...)
			if out, err := exec.CommandContext(ctx, "nft", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("delete netfilter table %s: %w: %s", table, err, strings.TrimSpace(string(out)))
			}
		}
	}
	return runtime.RemoveVoidTables(ctx, before)
}

// strays returns processes of this checkout that run although their pid file is gone.
func (e *Env) strays() ([]proc.Process, error) {
	return proc.Matching(func(args []string) bool {
		return args[0] == e.Agent[0] && slices.Contains(args, "--config="+e.path("node", "config.yaml")) ||
			args[0] == e.bin("wherry-controlplane") && slices.Contains(args, "--data-dir="+e.path("controlplane"))
	})
}
