package main

import (
	"log/slog"
	"net/netip"
	"testing"

	"github.com/wherry-node/wherry/internal/config"
)

// A request made of --node-ip alone would lack the node's name, and another would follow as soon as there is a Node. The
// self-signed certificate does not wait: it costs nobody's approval.
func TestServingRequestWaitsForTheNode(t *testing.T) {
	t.Parallel()
	for _, asks := range []bool{false, true} {
		cfg, _, err := config.Load([]string{"--hostname-override=a"})
		if err != nil {
			t.Fatal(err)
		}
		cfg.NodeIPs = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		n := &node{cfg: cfg, name: "a", log: slog.New(slog.DiscardHandler)}
		serving, err := n.servingConfig()
		if err != nil {
			t.Fatal(err)
		}
		if asks {
			serving = n.asking(serving)
		}
		if got := len(serving.Addresses()); (got == 0) != asks {
			t.Errorf("asks the API server %t: %d addresses before there is a Node", asks, got)
		}
	}
}
