package fleet

import (
	"fmt"
	"math"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// CSIDriver is a CSI driver of each node of a group. Its ID of a node is the node's name.
type CSIDriver struct {
	Name string `json:"name"`
	// MaxVolumes is how many volumes of the driver a node can have; 0: not limited.
	MaxVolumes int `json:"maxVolumes"`
	// Topology says where a node is, and becomes labels of the Node. The values are patterns with {fleet}, {group}, {zone}, {region}, {node}
	// and {index}.
	Topology map[string]string `json:"topology"`
}

// maxDriverName is the maximal length of the name of a CSI driver.
const maxDriverName = 63

// drivers returns the CSI drivers of a node.
func (g *Group) drivers(fleet, node string, index int) (out []simulated.CSIDriver) {
	values := g.values(fleet, index)
	values["node"], values["region"] = node, g.Region
	for _, d := range g.CSIDrivers {
		one := simulated.CSIDriver{Name: d.Name, NodeID: node, MaxVolumes: d.MaxVolumes}
		for key, pattern := range d.Topology {
			if one.Topology == nil {
				one.Topology = make(map[string]string, len(d.Topology))
			}
			one.Topology[key], _ = fill(pattern, values)
		}
		out = append(out, one)
	}
	return out
}

// checkDrivers calls bad for each field of the group's CSI drivers that is not valid.
func (g *Group) checkDrivers(bad func(field, format string, args ...any)) {
	seen := map[string]bool{}
	for i, d := range g.CSIDrivers {
		at := fmt.Sprintf("csiDrivers[%d]", i)
		checkDriverName(at+".name", d.Name, "disks.example.com", bad)
		if seen[d.Name] {
			bad(at+".name", "another driver has the name %q", d.Name)
		}
		seen[d.Name] = true
		if d.MaxVolumes < 0 || d.MaxVolumes > math.MaxInt32 {
			bad(at+".maxVolumes", "%d: use 1 to %d, or leave it out", d.MaxVolumes, math.MaxInt32)
		}
		for key, pattern := range d.Topology {
			g.checkTopology(at+".topology["+key+"]", key, pattern, bad)
		}
	}
}

// checkDriverName calls bad if the name of a driver, of CSI or DRA, is not valid. example is one that is.
func checkDriverName(field, name, example string, bad func(field, format string, args ...any)) {
	if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 || len(name) > maxDriverName {
		bad(field, "%q: use a domain of at most %d lower case characters, such as %s", name, maxDriverName, example)
	}
}

// checkTopology checks a key and its pattern with the values of the first nodes, which have all zones.
func (g *Group) checkTopology(field, key, pattern string, bad func(field, format string, args ...any)) {
	for index := 1; index <= max(1, min(g.Count, len(g.Zones))); index++ {
		values := g.values("f", index)
		values["node"], values["region"] = g.nodeName("f", index), g.Region
		value, unknown := fill(pattern, values)
		errs := validation.IsValidLabelValue(value)
		own, has := g.labels("f", index)[key]
		switch err := nodestatus.ValidateLabels(map[string]string{key: ""}); {
		case unknown != "":
			bad(field, "%s is unknown: use {fleet}, {group}, {zone}, {region}, {node} and {index}", unknown)
		case err != nil:
			bad(field, "%v", err)
		case len(errs) > 0 || value == "":
			bad(field, "%q is no value of a label", value)
		case has && own != value:
			bad(field, "%q: the group gives its nodes this label with the value %q", value, own)
		default:
			continue
		}
		return
	}
}
