package stats

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// PluginSocket is the socket of a plugin of the node, such as a CSI driver.
type PluginSocket struct {
	Path string
	// Present: the socket exists. Registered: the plugin is registered.
	Present, Registered bool
}

// maxSocketPath bounds the label with the path of a socket, in bytes. A plugin can make directories with long names.
const maxSocketPath = 256

// RegisterPlugins registers the metric of the node's plugins. sockets is called when the metrics are read.
func RegisterPlugins(reg prometheus.Registerer, sockets func() []PluginSocket) error {
	return register(reg, collector{collect: func(out sink) { countPlugins(sockets(), out) }})
}

// countPlugins counts the sockets by path and state. Paths that differ only in what a label cannot show, such as bytes that are not UTF-8, are
// counted together.
func countPlugins(sockets []PluginSocket, out sink) {
	type series struct{ path, state string }
	counts := map[series]int{}
	for _, s := range sockets {
		path := pod.TextMax(s.Path, maxSocketPath)
		if s.Present {
			counts[series{path, "desired_state_of_world"}]++
		}
		if s.Registered {
			counts[series{path, "actual_state_of_world"}]++
		}
	}
	f := newFamily(prometheus.GaugeValue, "plugin_manager_total_plugins", "Plugins of the node, such as CSI drivers, by the path of their socket: those whose socket is in the directory plugins_registry (desired_state_of_world), and those that are registered (actual_state_of_world)",
		"socket_path", "state")
	for s, n := range counts {
		out.put(f, time.Time{}, float64(n), s.path, s.state)
	}
}
