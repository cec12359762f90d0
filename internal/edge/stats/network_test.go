package stats

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A container that has made very many interfaces and routes costs the agent a bounded amount of memory and of series.
func TestManyInterfaces(t *testing.T) {
	t.Parallel()
	host := t.TempDir()
	dir := filepath.Join(host, "proc", "42", "net")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var dev, route strings.Builder
	dev.WriteString("Inter-|   Receive\n face |bytes\n")
	for i := range 20_000 {
		fmt.Fprintf(&dev, "  if%d: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n", i)
	}
	route.WriteString("Iface\tDestination\tGateway\n")
	for route.Len() < 3*maxNetworkFile {
		route.WriteString("if1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n")
	}
	route.WriteString("if7\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	for name, text := range map[string]string{"dev": dev.String(), "route": route.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	devices := readNetwork(host, "42")
	if len(devices) != maxInterfaces || devices[0].name != "if0" || devices[0].rxBytes != 1 || devices[0].txBytes != 5 {
		t.Errorf("%d interfaces, first %+v", len(devices), devices[:min(1, len(devices))])
	}
	if d := primary(devices); d == nil || d.defaultRoute {
		t.Errorf("the default route was read beyond the bound: %+v", d)
	}
}
