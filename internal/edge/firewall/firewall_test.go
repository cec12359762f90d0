package firewall_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/wherry-node/wherry/internal/edge/firewall"
)

// backend is a set of programs with which a machine filters packets.
type backend struct {
	name string
	// programs maps the name of a program that the firewall runs to the name of the program that runs in the test.
	programs map[string]string
	flush    [][]string
}

func backends() []backend {
	iptables := func(kind string) map[string]string {
		return map[string]string{
			"iptables": "iptables-" + kind, "iptables-restore": "iptables-" + kind + "-restore",
			"ip6tables": "ip6tables-" + kind, "ip6tables-restore": "ip6tables-" + kind + "-restore",
		}
	}
	return []backend{
		{"iptables over nftables", iptables("nft"), [][]string{{"iptables-nft", "-F"}}},
		{"legacy iptables", iptables("legacy"), [][]string{{"iptables-legacy", "-F"}}},
		{"only the jumps are flushed", iptables("nft"), [][]string{{"iptables-nft", "-F", "INPUT"}, {"iptables-nft", "-F", "OUTPUT"}}},
		{"nft alone", map[string]string{"nft": "nft"}, [][]string{{"nft", "flush", "ruleset"}}},
	}
}

// runner returns a Runner that runs the backend's programs in the node's network namespace.
func (b backend) runner(n network) firewall.Runner {
	return func(ctx context.Context, stdin string, argv ...string) (string, error) {
		program, ok := b.programs[argv[0]]
		if !ok {
			return "", fmt.Errorf("%s: %w", argv[0], exec.ErrNotFound)
		}
		return firewall.Exec(ctx, stdin, append([]string{"ip", "netns", "exec", n.node, program}, argv[1:]...)...)
	}
}

// With kube-proxy's route_localnet, a host on the same network reaches services on 127.0.0.1 of the node. The rules drop such
// packets, and no others. They are added again after a flush of the tables.
func TestCVE20208558OtherHostsDoNotReachLoopback(t *testing.T) {
	t.Parallel()
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			trusting, trustingPort := n.service(t, "127.0.0.1")
			public, publicPort := n.service(t, nodeAddress)
			// Packets between two hosts stay in order: when the second packet has arrived, the first one has arrived or was dropped.
			reaches := func() bool {
				send(t, n.other, "127.0.0.1", trustingPort)
				send(t, n.other, nodeAddress, publicPort)
				receive(t, public)
				return received(trusting)
			}
			f := firewall.New(firewall.Config{Run: b.runner(n), Log: slog.New(slog.DiscardHandler)})
			if !reaches() {
				t.Fatal("a packet from another host does not reach 127.0.0.1 of a node without rules: the test proves nothing")
			}
			for _, step := range []string{"the first time", "after a flush"} {
				if made, err := f.Ensure(t.Context()); err != nil || made == "" {
					t.Fatalf("%s: made %q, %v", step, made, err)
				}
				if reaches() {
					t.Errorf("%s: a packet from another host reaches 127.0.0.1", step)
				}
				if made, err := f.Ensure(t.Context()); err != nil || made != "" {
					t.Errorf("%s: added again by %q (%v) although all rules are in place", step, made, err)
				}
				send(t, n.node, "127.0.0.1", trustingPort)
				receive(t, trusting) // the node's own packets pass
				if step == "the first time" {
					for _, argv := range b.flush {
						n.onNode(t, argv...)
					}
					if !reaches() {
						t.Error("the flush removed nothing: the next step proves nothing")
					}
				}
			}
		})
	}
}

// A NodePort on localhost uses DNAT to a loopback address. Its packets are accepted.
func TestRedirectedPacketsPass(t *testing.T) {
	t.Parallel()
	for _, b := range backends() {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			service, port := n.service(t, "127.0.0.1")
			if program := b.programs["iptables"]; program != "" {
				n.onNode(t, program, "-t", "nat", "-A", "PREROUTING", "-p", "udp", "--dport", "7003", "-j", "DNAT", "--to-destination", "127.0.0.1:"+strconv.Itoa(port))
			} else {
				n.onNode(t, "nft", "table ip nat { chain pre { type nat hook prerouting priority dstnat; udp dport 7003 dnat to 127.0.0.1:"+strconv.Itoa(port)+"; }; }")
			}
			f := firewall.New(firewall.Config{Run: b.runner(n), Log: slog.New(slog.DiscardHandler)})
			if _, err := f.Ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			send(t, n.other, nodeAddress, 7003)
			receive(t, service)
		})
	}
}

// The rules and chains are those of upstream's kubelet. Its chains in the table mangle show other programs which variant of iptables
// the machine uses. Rules that other programs added stay in place.
func TestChainsAreKubernetesOwn(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	b := backends()[0]
	n.onNode(t, "iptables-nft", "-N", "KUBE-FIREWALL")
	n.onNode(t, "iptables-nft", "-A", "KUBE-FIREWALL", "-s", "198.51.100.1", "-j", "DROP")
	n.onNode(t, "iptables-nft", "-A", "INPUT", "-s", "198.51.100.2", "-j", "ACCEPT")
	f := firewall.New(firewall.Config{Run: b.runner(n), Log: slog.New(slog.DiscardHandler)})
	if _, err := f.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := "-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n-N KUBE-FIREWALL\n" +
		"-A INPUT -j KUBE-FIREWALL\n-A INPUT -s 198.51.100.2/32 -j ACCEPT\n-A OUTPUT -j KUBE-FIREWALL\n" +
		"-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment \"block incoming localnet connections\" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n" +
		"-A KUBE-FIREWALL -s 198.51.100.1/32 -j DROP\n"
	if diff := cmp.Diff(want, n.onNode(t, "iptables-nft", "-S")); diff != "" {
		t.Errorf("table filter (-want +got):\n%s", diff)
	}
	for _, program := range []string{"iptables-nft", "ip6tables-nft"} {
		chains := n.onNode(t, program, "-t", "mangle", "-S")
		for _, chain := range []string{"-N KUBE-IPTABLES-HINT\n", "-N KUBE-KUBELET-CANARY\n"} {
			if !strings.Contains(chains, chain) {
				t.Errorf("%s: the table mangle lacks %q:\n%s", program, chain, chains)
			}
		}
	}
	if rules := n.onNode(t, "ip6tables-nft", "-S"); strings.Contains(rules, "KUBE") {
		t.Errorf("rules for IPv6:\n%s", rules)
	}
}

// On a machine without a packet filter, Run logs the problem once, tries again regularly, and returns no error.
func TestNoPacketFilter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		calls := 0
		f := firewall.New(firewall.Config{
			Run: func(_ context.Context, _ string, argv ...string) (string, error) {
				calls++
				return "", fmt.Errorf("%s: %w", argv[0], exec.ErrNotFound)
			},
			Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if _, err := f.Ensure(t.Context()); !errors.Is(err, exec.ErrNotFound) {
			t.Errorf("error %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*firewall.RetryAfter+time.Second)
		defer cancel()
		if err := f.Run(ctx); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "is not protected"); n != 1 {
			t.Errorf("logged %d times, want once:\n%s", n, log.String())
		}
		if want := 2 * (1 + 11); calls != want {
			t.Errorf("%d programs called, want %d", calls, want)
		}
	})
}

// The output of a program is bounded, and the error of a program that fails has its output.
func TestProgramsAreBounded(t *testing.T) {
	t.Parallel()
	out, err := firewall.Exec(t.Context(), "", "head", "-c", "1000000", "/dev/zero")
	if err != nil || len(out) != 64<<10 {
		t.Errorf("%d bytes kept, %v", len(out), err)
	}
	var exit *exec.ExitError
	if _, err := firewall.Exec(t.Context(), "", "sh", "-c", "echo no such chain >&2; exit 3"); !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "no such chain") {
		t.Errorf("error %v", err)
	}
}
