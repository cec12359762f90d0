package simulated

import (
	"maps"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcsi"
)

// CSIDriver is a CSI driver of a simulated node. The agent registers it, and stages, publishes and expands its volumes by the calls of CSI, as
// those of a real driver. The volumes are only records in memory. The driver knows the size of a volume from its attribute AttributeSize, and
// from its expansions.
type CSIDriver struct {
	Name string
	// NodeID is the driver's name of the node.
	NodeID string
	// MaxVolumes is how many volumes the node can have; 0: not limited.
	MaxVolumes int
	// Topology says where the node is, as labels of the Node.
	Topology map[string]string
}

// These are attributes of a volume (csi.volumeAttributes of a persistent volume), whole numbers: its size in bytes, how many bytes of it are used when it is made, by how
// many that grows in each second, and when it was made, in seconds of Unix time.
const (
	AttributeSize          = simcsi.AttributeSize
	AttributeUsed          = simcsi.AttributeUsed
	AttributeUsedPerSecond = simcsi.AttributeUsedPerSecond
	AttributeMade          = simcsi.AttributeMade
)

// localDrivers returns the drivers as the agent needs them.
func localDrivers(all []CSIDriver) map[string]func(agent.VolumePaths) csi.NodeServer {
	if len(all) == 0 {
		return nil
	}
	out := make(map[string]func(agent.VolumePaths) csi.NodeServer, len(all))
	for _, d := range all {
		cfg := simcsi.Config{
			Name: d.Name, NodeID: d.NodeID, MaxVolumes: int64(d.MaxVolumes), Topology: maps.Clone(d.Topology), Stage: true, Expand: true, Sized: true, Quiet: true,
		}
		out[d.Name] = func(paths agent.VolumePaths) csi.NodeServer {
			own := cfg
			own.Paths = paths
			return simcsi.New(own)
		}
	}
	return out
}
