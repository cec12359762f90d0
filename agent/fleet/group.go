package fleet

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/edge/config"
)

// Labels of the Nodes of a fleet.
const (
	LabelFleet = "wherry.dev/fleet" // the fleet's name
	LabelGroup = "wherry.dev/fleet-group"
	// TaintSimulated is the key of the taint that keeps the pods of a real cluster away from simulated nodes.
	TaintSimulated = "wherry.dev/simulated"
)

// MaxNodes is the largest number of nodes of a fleet.
const MaxNodes = 100_000

// Group is a number of nodes of the same size and configuration. In the zero value only Count must be set.
type Group struct {
	// Name is the group's name; "node" when empty.
	Name  string
	Count int
	// NodeName is the pattern of the nodes' names, with {fleet}, {group}, {zone} and {index}, which counts from 1. {index:4} has at
	// least four digits. Empty: "{fleet}-{group}-{index}".
	NodeName string
	// CPUs, Memory and Storage are the size of each machine; zero values mean the defaults of simulated.Config. Kubelet.MaxPods limits the
	// number of pods of a node.
	CPUs            int
	Memory, Storage resource.Quantity
	Labels          map[string]string
	Taints          []v1.Taint
	// Zones are the zones of the nodes: the nodes get one zone after the other, by index. Region is the region of all nodes. They become
	// the labels topology.kubernetes.io/zone and topology.kubernetes.io/region.
	Region string
	Zones  []string
	// ProviderID is a pattern like NodeName, also with {node} and {region}.
	ProviderID string
	// Images, RuntimeHandlers and Latency are like those of simulated.Config.
	Images, RuntimeHandlers []string
	Latency                 map[string]simulated.Latency
	// Devices are the devices of each node that pods request as extended resources, each name at most once.
	Devices []simulated.Devices
	// CSIDrivers are the CSI drivers of each node.
	CSIDrivers []CSIDriver
	// ResourceSlices are the devices of DRA drivers on each node, each driver at most once.
	ResourceSlices []ResourceSlices
	// Kubelet is a complete configuration; nil: agent.DefaultConfiguration. If it has no clusterDNS, the nodes have the address that kubeadm
	// chooses, 10.96.0.10.
	Kubelet *kubelet.KubeletConfiguration
}

const defaultNodeName = "{fleet}-{group}-{index}"

func (g *Group) setDefaults() {
	if g.Name == "" {
		g.Name = "node"
	}
	if g.NodeName == "" {
		g.NodeName = defaultNodeName
	}
	if g.Kubelet == nil {
		k := agent.DefaultConfiguration()
		g.Kubelet = &k
	}
	if len(g.Kubelet.ClusterDNS) == 0 {
		g.Kubelet = g.Kubelet.DeepCopy()
		g.Kubelet.ClusterDNS = []string{clusterDNS}
	}
}

// clusterDNS is the address of the cluster's DNS on nodes whose configuration has none. It is the one that kubeadm chooses. Without an address, each
// pod would get the event MissingClusterDNS, although nothing in a simulated container asks for names.
const clusterDNS = "10.96.0.10"

// zone returns the zone of a node, or "".
func (g *Group) zone(index int) string {
	if len(g.Zones) == 0 {
		return ""
	}
	return g.Zones[(index-1)%len(g.Zones)]
}

// placeholder matches a placeholder in a pattern, such as {index} or {index:4}.
var placeholder = regexp.MustCompile(`\{([a-z]*)(?::([0-9]))?\}`)

// fill replaces the placeholders of a pattern. It returns the first unknown placeholder, or "".
func fill(pattern string, values map[string]string) (text, unknown string) {
	text = placeholder.ReplaceAllStringFunc(pattern, func(found string) string {
		parts := placeholder.FindStringSubmatch(found)
		value, ok := values[parts[1]]
		if !ok {
			unknown = found
			return found
		}
		if width, err := strconv.Atoi(parts[2]); err == nil {
			value = strings.Repeat("0", max(0, width-len(value))) + value
		}
		return value
	})
	return text, unknown
}

// nodeName returns the name of the group's node with this index, which counts from 1.
func (g *Group) nodeName(fleet string, index int) string {
	name, _ := fill(g.NodeName, g.values(fleet, index))
	return name
}

func (g *Group) values(fleet string, index int) map[string]string {
	return map[string]string{"fleet": fleet, "group": g.Name, "zone": g.zone(index), "index": strconv.Itoa(index)}
}

// providerID returns the provider ID of a node, or "".
func (g *Group) providerID(fleet, node string, index int) string {
	values := g.values(fleet, index)
	values["node"], values["region"] = node, g.Region
	id, _ := fill(g.ProviderID, values)
	return id
}

// labels returns the labels with which a node registers.
func (g *Group) labels(fleet string, index int) map[string]string {
	out := map[string]string{LabelFleet: fleet, LabelGroup: g.Name}
	if g.Region != "" {
		out[v1.LabelTopologyRegion] = g.Region
	}
	if z := g.zone(index); z != "" {
		out[v1.LabelTopologyZone] = z
	}
	for k, v := range g.Labels {
		out[k] = v
	}
	return out
}

// checkGroups calls bad for each field of a group that is not valid. It returns an error if the groups have too many nodes in total.
func checkGroups(groups []Group, bad func(group int, field, text string)) error {
	seen := map[string]bool{}
	total := 0
	for i := range groups {
		g := groups[i]
		g.setDefaults()
		if seen[g.Name] {
			bad(i, "name", fmt.Sprintf("another group has the name %q", g.Name))
		}
		seen[g.Name] = true
		g.check(func(field, format string, args ...any) { bad(i, field, fmt.Sprintf(format, args...)) })
		total += max(0, min(g.Count, MaxNodes+1))
	}
	if total > MaxNodes {
		return fmt.Errorf("the groups have more than %d nodes together", MaxNodes)
	}
	return nil
}

// check calls bad for each field of the group that is not valid.
func (g *Group) check(bad func(field, format string, args ...any)) {
	if errs := validation.IsDNS1123Label(g.Name); len(errs) > 0 {
		bad("name", "%q: %s", g.Name, strings.Join(errs, "; "))
	}
	if g.Count < 0 || g.Count > MaxNodes {
		bad("count", "%d: use 0 to %d", g.Count, MaxNodes)
	}
	g.checkPatterns(bad)
	g.checkDevices(bad)
	g.checkDrivers(bad)
	g.checkSlices(bad)
	if g.CPUs < 0 || g.CPUs > 1<<20 {
		bad("cpus", "%d: use a whole number from 1 on, or leave it out", g.CPUs)
	}
	for field, q := range map[string]resource.Quantity{"memory": g.Memory, "storage": g.Storage} {
		if q.Sign() < 0 {
			bad(field, "%s: must not be negative", q.String())
		}
	}
	for i, z := range g.Zones {
		if errs := validation.IsValidLabelValue(z); len(errs) > 0 || z == "" {
			bad(fmt.Sprintf("zones[%d]", i), "%q is no value of a label", z)
		}
	}
	if errs := validation.IsValidLabelValue(g.Region); len(errs) > 0 {
		bad("region", "%q is no value of a label", g.Region)
	}
	for _, own := range []string{LabelFleet, LabelGroup, v1.LabelHostname} {
		if _, ok := g.Labels[own]; ok {
			bad("labels["+own+"]", "the fleet sets this label itself: remove it")
		}
	}
	for k, v := range g.Labels {
		if err := nodestatus.ValidateLabels(map[string]string{k: v}); err != nil {
			bad("labels["+k+"]", "%s", strings.TrimPrefix(err.Error(), "--node-labels: ")) // a file has no flag
		}
	}
	for i, t := range g.Taints {
		if err := config.CheckTaint(t); err != nil {
			bad(fmt.Sprintf("taints[%d]", i), "%v", err)
		}
	}
	for method := range g.Latency {
		if err := simulated.CheckMethod(method); err != nil {
			bad("latency["+method+"]", "%v", err)
		}
	}
}

// checkPatterns checks the names of the group's nodes.
func (g *Group) checkPatterns(bad func(field, format string, args ...any)) {
	name, unknown := fill(g.NodeName, g.values("f", max(1, g.Count)))
	switch errs := validation.IsDNS1123Subdomain(name); {
	case unknown != "":
		bad("nodeName", "%s is unknown: use {fleet}, {group}, {zone} and {index}", unknown)
	case !strings.Contains(g.NodeName, "{index"):
		bad("nodeName", "%q: the names of the nodes must differ: add {index}", g.NodeName)
	case len(errs) > 0:
		bad("nodeName", "the name %q: %s", name, strings.Join(errs, "; "))
	case len(name) > validation.LabelValueMaxLength:
		bad("nodeName", "the name %q is longer than %d characters, which a label allows", name, validation.LabelValueMaxLength)
	}
	values := g.values("f", 1)
	values["node"], values["region"] = name, g.Region
	if _, unknown := fill(g.ProviderID, values); unknown != "" {
		bad("providerID", "%s is unknown: use {fleet}, {group}, {zone}, {region}, {node} and {index}", unknown)
	}
}

// checkName returns an error if the name is not valid as the name of a fleet.
func checkName(name string) error {
	if errs := validation.IsDNS1123Label(name); len(errs) > 0 || len(name) > 40 {
		return errors.New("the name of a fleet has at most 40 lower case letters, digits and dashes: it is part of the nodes' names")
	}
	return nil
}
