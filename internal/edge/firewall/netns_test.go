package firewall_test

import (
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// network is two hosts on one wire, the node and another host. Each is a network namespace.
type network struct {
	node, other string
}

const nodeAddress, otherAddress = "192.0.2.2", "192.0.2.1"

// newNetwork creates a node that routes packets to its loopback addresses (as kube-proxy configures it for NodePorts), and a
// host that sends packets for 127.0.0.1 to it.
func newNetwork(t *testing.T) network {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("network namespaces need root")
		}
		t.Skip("network namespaces need root")
	}
	id := strconv.FormatUint(rand.Uint64(), 36)
	n := network{node: "wherry-fw-node-" + id, other: "wherry-fw-other-" + id}
	for _, name := range []string{n.node, n.other} {
		command(t, "ip", "netns", "add", name)
		t.Cleanup(func() { command(t, "ip", "netns", "delete", name) })
		for _, conf := range []string{"all", "default"} {
			command(t, "ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.conf."+conf+".route_localnet=1", "net.ipv4.conf."+conf+".rp_filter=0")
		}
	}
	command(t, "ip", "-n", n.node, "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", n.other)
	for _, args := range []string{
		"-n " + n.node + " address add " + nodeAddress + "/24 dev near",
		"-n " + n.node + " link set near up",
		"-n " + n.node + " link set lo up",
		"-n " + n.other + " address add " + otherAddress + "/24 dev far",
		"-n " + n.other + " link set far up",
		// The loopback interface of the other host is down, so it does not claim the address.
		"-n " + n.other + " route add 127.0.0.1/32 via " + nodeAddress + " dev far src " + otherAddress,
	} {
		command(t, "ip", strings.Fields(args)...)
	}
	return n
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// onNode runs a program on the node.
func (n network) onNode(t *testing.T, argv ...string) string {
	t.Helper()
	return command(t, "ip", append([]string{"netns", "exec", n.node}, argv...)...)
}

// inside runs f on a thread in a network namespace. Sockets that f opens stay in that namespace.
func inside(t *testing.T, namespace string, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread is never unlocked, so it ends with the goroutine
		ns, err := os.Open("/run/netns/" + namespace)
		if err == nil {
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			_ = ns.Close()
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("in %s: %v", namespace, err)
	}
}

// service opens a socket on the node.
func (n network) service(t *testing.T, address string) (socket int, port int) {
	t.Helper()
	inside(t, n.node, func() error {
		var err error
		socket, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(address).To4())}); err != nil {
			return err
		}
		name, err := unix.Getsockname(socket)
		port = name.(*unix.SockaddrInet4).Port
		return err
	})
	t.Cleanup(func() { _ = unix.Close(socket) })
	return socket, port
}

// send sends a packet from a namespace.
func send(t *testing.T, namespace, address string, port int) {
	t.Helper()
	inside(t, namespace, func() error {
		conn, err := net.Dial("udp4", net.JoinHostPort(address, strconv.Itoa(port)))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("hello"))
		return err
	})
}

// receive waits for a packet.
func receive(t *testing.T, socket int) {
	t.Helper()
	poll := []unix.PollFd{{Fd: int32(socket), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(poll, 30_000)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			t.Fatalf("no packet in 30 s (%v)", err)
		}
		break
	}
	if !received(socket) {
		t.Fatal("a packet has arrived but cannot be read")
	}
}

// received reports whether a packet has arrived, and reads it.
func received(socket int) bool {
	n, _, err := unix.Recvfrom(socket, make([]byte, 64), unix.MSG_DONTWAIT)
	return err == nil && n > 0
}
