package stats

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// device is a network interface with its counters.
type device struct {
	name                                  string
	rxBytes, rxPackets, rxErrors, rxDrops uint64
	txBytes, txPackets, txErrors, txDrops uint64
	packetsKnown, defaultRoute            bool
}

// A container with the right to change its network may have any number of interfaces and routes, so these constants limit how many
// interfaces and how many bytes are read.
const (
	maxNetworkFile = 1 << 20 // bytes; the rest of the file is left out
	maxInterfaces  = 256
)

// readNetwork reads the interfaces of a network namespace from /proc/<pid>/net of a process in it; an empty pid means
// this process. It leaves out loopback and the host's ends of virtual interfaces.
func readNetwork(host, pid string) []device {
	dir := filepath.Join(host, "proc", pid, "net")
	data, err := beginning(filepath.Join(dir, "dev"))
	if err != nil {
		return nil
	}
	route := defaultRoute(dir)
	var out []device
	for line := range strings.Lines(data) {
		if len(out) == maxInterfaces {
			break
		}
		name, rest, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		f := strings.Fields(rest)
		if !ok || len(f) < 12 || ignored(name) {
			continue
		}
		n := make([]uint64, 12)
		for i := range n {
			n[i], _ = strconv.ParseUint(f[i], 10, 64)
		}
		out = append(out, device{
			name: name, packetsKnown: true, defaultRoute: name == route,
			rxBytes: n[0], rxPackets: n[1], rxErrors: n[2], rxDrops: n[3], txBytes: n[8], txPackets: n[9], txErrors: n[10], txDrops: n[11],
		})
	}
	return out
}

// beginning returns the first maxNetworkFile bytes of a file, without an incomplete last line.
func beginning(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxNetworkFile))
	if err != nil {
		return "", err
	}
	return string(data[:bytes.LastIndexByte(data, '\n')+1]), nil
}

func ignored(name string) bool {
	for _, prefix := range [...]string{"lo", "veth", "docker", "nerdctl"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// defaultRoute returns the interface of the IPv4 default route.
func defaultRoute(dir string) string {
	data, err := beginning(filepath.Join(dir, "route"))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(data) {
		if f := strings.Fields(line); len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" {
			return f[0]
		}
	}
	return ""
}

// primary returns the main interface of the summary: that of the default route, or else eth0, or else the first.
func primary(devices []device) *device {
	for i := range devices {
		if devices[i].defaultRoute {
			return &devices[i]
		}
	}
	for i := range devices {
		if devices[i].name == "eth0" {
			return &devices[i]
		}
	}
	if len(devices) > 0 {
		return &devices[0]
	}
	return nil
}

func networkFromCRI(n *runtimeapi.NetworkUsage) []device {
	var out []device
	add := func(i *runtimeapi.NetworkInterfaceUsage, isDefault bool) {
		for _, have := range out {
			if have.name == i.GetName() {
				return
			}
		}
		out = append(out, device{
			name: i.GetName(), defaultRoute: isDefault, rxBytes: i.GetRxBytes().GetValue(), rxErrors: i.GetRxErrors().GetValue(),
			txBytes: i.GetTxBytes().GetValue(), txErrors: i.GetTxErrors().GetValue(),
		})
	}
	if n.GetDefaultInterface() != nil {
		add(n.DefaultInterface, true)
	}
	for _, i := range n.GetInterfaces() {
		add(i, false)
	}
	return out
}
