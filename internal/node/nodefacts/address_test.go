package nodefacts

import (
	"net/netip"
	"os"
	"strings"
	"testing"
)

func TestDefaultInterface(t *testing.T) {
	t.Parallel()
	const v4 = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"veth0\t0201560A\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n" +
		"eth1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
	const v6 = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo\n" +
		"fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth0\n" +
		"00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth2\n"
	for _, c := range []struct {
		table string
		v6    bool
		want  string
	}{{v4, false, "eth1"}, {v6, true, "eth2"}, {"", false, ""}, {"one two\n", true, ""}, {v4[:80], false, ""}} {
		if got := defaultInterface(strings.NewReader(c.table), c.v6); got != c.want {
			t.Errorf("defaultInterface(%q) = %q, want %q", c.table, got, c.want)
		}
	}
}

func TestAddressOfV6(t *testing.T) {
	t.Parallel()
	const table = "fe80000000000000000000fffe000001 02 40 20 80     eth2\n" +
		"20010db8000000000000000000000007 03 40 00 80     eth0\n" +
		"bad 02 40 00 80     eth2\n" +
		"20010db8000000000000000000000009 02 40 00 80     eth2\n"
	for name, want := range map[string]netip.Addr{
		"eth2": netip.MustParseAddr("2001:db8::9"), "eth0": netip.MustParseAddr("2001:db8::7"), "eth9": {}, "": {},
	} {
		if got := addressOfV6(strings.NewReader(table), name); got != want {
			t.Errorf("address of %q is %v, want %v", name, got, want)
		}
	}
}

// The address that defaultAddress finds with an ioctl is the same as the one that anyV4 finds in the interface's list of addresses.
func TestPrimaryAddress(t *testing.T) {
	t.Parallel()
	if got := primaryV4("lo"); got != netip.MustParseAddr("127.0.0.1") {
		t.Errorf("address of lo is %v", got)
	}
	if got := primaryV4("no-such"); got.IsValid() {
		t.Errorf("address of a missing interface is %v", got)
	}
	routes, err := os.Open("/proc/net/route")
	if err != nil {
		t.Skip(err)
	}
	defer routes.Close()
	name := defaultInterface(routes, false)
	if name == "" {
		t.Skip("this machine has no default route")
	}
	if short, long := defaultAddress("/proc/net", false), anyV4(name); short != long {
		t.Errorf("address of %s: %v by ioctl, %v by the table of addresses", name, short, long)
	}
}
