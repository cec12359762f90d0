package nodefacts

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// routed returns an interface of this machine with a global IPv4 address, and that address. Without one, it skips the test.
func routed(t *testing.T) (name string, address netip.Addr) {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		if a := anyV4(i.Name); a.IsValid() && primaryV4(i.Name) == a {
			return i.Name, a
		}
	}
	t.Skip("this machine has no IPv4 address")
	return "", netip.Addr{}
}

// The node's address is the one that the machine's name has, in /etc/hosts or at a name server, if it is an address of the machine. The address
// on the default route is used only if the name has none. So an administrator chooses between the networks of a machine, as with upstream's
// kubelet. A name server that does not answer changes nothing.
func TestTheNameOfTheMachineChoosesTheAddress(t *testing.T) {
	t.Parallel()
	device, route := routed(t)
	other, foreign := netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("198.51.100.99")
	none := &net.DNSError{Err: "no such host", IsNotFound: true}
	r := machine(t, map[string]string{"net/route": "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		device + "\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"})
	r.Hostname, r.listed, r.listedAt = "node", []netip.Addr{route, other}, time.Now()
	for _, c := range []struct {
		name  string
		found []netip.Addr
		err   error
		want  netip.Addr
	}{
		{"no server answers at first", nil, errors.New("timeout"), route},
		{"the name has an address", []netip.Addr{netip.MustParseAddr("127.0.1.1"), foreign, other}, nil, other},
		{"no server answers later", nil, errors.New("timeout"), other},
		{"the name has no address any more", nil, none, route},
		{"the name has the address of another machine", []netip.Addr{foreign}, nil, route},
	} {
		r.Lookup = func(_ context.Context, _, name string) ([]netip.Addr, error) {
			if name != "node" {
				t.Errorf("looked up %q", name)
			}
			return c.found, c.err
		}
		r.nameDue = time.Time{}
		n := nodestatus.Build(nodestatus.Settings{Name: "node", Hostname: "node"}, nodestatus.Facts{Network: r.Network()}).Node
		if got := n.Status.Addresses[0].Address; got != c.want.String() {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	r.Lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		t.Error("looked up again at once, or although the addresses are configured")
		return nil, none
	}
	r.Network()
	r.AllAddresses, r.nameDue = true, time.Time{}
	r.Network()
}

// A name server that does not answer delays the first measurement of the network only. After that the node goes on with the last answer, and one
// lookup at a time runs beside. A lookup that hangs ends with the agent.
func TestASilentNameServerDelaysNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, answer := 0, []netip.Addr{netip.MustParseAddr("198.51.100.7")}
		r := &Real{Hostname: "node", Lookup: func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			if asked++; asked > 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			time.Sleep(time.Second)
			return answer, nil
		}}
		measure := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			if got := r.addressesOfName(); !slices.Equal(got, answer) || time.Since(began) != want {
				t.Errorf("after %s: %v, want %v after %s", time.Since(began), got, answer, want)
			}
		}
		measure(time.Second)
		time.Sleep(nameFor)
		measure(0)
		measure(0)
		time.Sleep(nameWithin + nameAgain)
		measure(0)
		if synctest.Wait(); asked != 3 {
			t.Errorf("%d lookups, want 3", asked)
		}
		began := time.Now()
		r.Close()
		if time.Sleep(nameFor); !time.Now().Equal(began.Add(nameFor)) {
			t.Errorf("the end took until %s", time.Since(began))
		}
		if measure(0); asked != 3 {
			t.Error("looked up after the end")
		}
	})
}

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
