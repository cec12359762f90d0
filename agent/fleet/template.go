package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/core/yamldoc"
	"github.com/wherry-node/wherry/internal/edge/config"
)

// These identify a template file.
const (
	TemplateAPIVersion = "wherry.dev/v1alpha1"
	TemplateKind       = "FleetTemplate"
)

// MaxTemplate is the largest size of a template file in bytes.
const MaxTemplate = 1 << 20

// templateFile is the content of a template file.
type templateFile struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Groups     []groupFile `json:"groups"`
}

// groupFile is a Group in a template file.
type groupFile struct {
	Name            string                       `json:"name"`
	Count           *int                         `json:"count"`
	NodeName        string                       `json:"nodeName"`
	CPUs            int                          `json:"cpus"`
	Memory          resource.Quantity            `json:"memory"`
	Storage         resource.Quantity            `json:"storage"`
	Labels          map[string]string            `json:"labels"`
	Taints          []v1.Taint                   `json:"taints"`
	Region          string                       `json:"region"`
	Zones           []string                     `json:"zones"`
	ProviderID      string                       `json:"providerID"`
	Images          []string                     `json:"images"`
	RuntimeHandlers []string                     `json:"runtimeHandlers"`
	Latency         map[string]latencyFile       `json:"latency"`
	Devices         []simulated.Devices          `json:"devices"`
	CSIDrivers      []CSIDriver                  `json:"csiDrivers"`
	ResourceSlices  []ResourceSlices             `json:"resourceSlices"`
	Kubelet         kubelet.KubeletConfiguration `json:"kubelet"`
}

type latencyFile struct {
	Mean   metav1.Duration `json:"mean"`
	Jitter metav1.Duration `json:"jitter"`
}

// ParseTemplate reads the groups of a fleet from a file in YAML or JSON. name is the file's name for errors. The error joins all
// problems, each with file, line and field.
func ParseTemplate(name string, data []byte) ([]Group, error) {
	if len(data) > MaxTemplate {
		return nil, fmt.Errorf("%s: the template has %d bytes, more than %d", name, len(data), MaxTemplate)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, fmt.Errorf("%s: the template is empty: write apiVersion: %s, kind: %s and groups", name, TemplateAPIVersion, TemplateKind)
	}
	t := template{Document: yamldoc.Document{Name: name}}
	if err := t.Decode(data, TemplateAPIVersion, TemplateKind, &t.file, &t.raw); err != nil {
		return nil, err
	}
	groups := t.groups()
	if err := t.check(groups); err != nil {
		return nil, err
	}
	return groups, nil
}

// groups converts the groups of the file, and adds a problem for each field that is not valid by itself.
func (t *template) groups() []Group {
	var groups []Group
	for i := range t.file.Groups {
		groups = append(groups, t.group(i))
	}
	if len(groups) == 0 {
		t.Bad("groups", "a fleet needs at least one group: write groups: [{name: node, count: 10}]")
	}
	return groups
}

// check returns the problems that were found so far. If there are none, it checks the groups together.
func (t *template) check(groups []Group) error {
	if len(t.Errs) > 0 {
		return errors.Join(t.Errs...)
	}
	if err := checkGroups(groups, func(i int, field, text string) { t.Bad(fmt.Sprintf("groups[%d].%s", i, field), text) }); err != nil {
		return fmt.Errorf("%s: %w", t.Name, err)
	}
	return errors.Join(t.Errs...)
}

// template is the state of ParseTemplate while it reads a template file.
type template struct {
	yamldoc.Document
	raw struct { // the same file again, parsed to find which fields of KubeletConfiguration it sets
		Groups []struct {
			Kubelet map[string]any `json:"kubelet"`
		} `json:"groups"`
	}
	file templateFile
}

// fleetSets are the fields of KubeletConfiguration that a template may not set, each with the reason or the field to use instead.
var fleetSets = map[string]string{
	"address": "the fleet chooses the address", "port": "the fleet chooses the port", "healthzPort": "a node of a fleet has no health port",
	"readOnlyPort": "a node of a fleet has no read-only port", "containerRuntimeEndpoint": "the runtime is simulated", "imageServiceEndpoint": "the runtime is simulated",
	"podLogsDir": "the fleet chooses the directory", "tlsCertFile": "the fleet has a certificate of its own", "tlsPrivateKeyFile": "the fleet has a key of its own",
	"serverTLSBootstrap": "the fleet has a certificate of its own", "providerID": "use providerID of the group", "registerWithTaints": "use taints of the group",
	"registerNode": "a fleet registers its nodes",
}

// group converts group i of the file, and adds a problem for each field that is not valid.
func (t *template) group(i int) Group {
	f := &t.file.Groups[i]
	at := fmt.Sprintf("groups[%d]", i)
	g := Group{
		Name: f.Name, Count: 1, NodeName: f.NodeName, CPUs: f.CPUs, Memory: f.Memory, Storage: f.Storage, Labels: f.Labels, Taints: f.Taints, Region: f.Region,
		Zones: f.Zones, ProviderID: f.ProviderID, Images: f.Images, RuntimeHandlers: f.RuntimeHandlers,
		Devices: f.Devices, CSIDrivers: f.CSIDrivers, ResourceSlices: f.ResourceSlices,
	}
	if f.Count != nil {
		g.Count = *f.Count
	}
	for method, l := range f.Latency {
		if l.Mean.Duration < 0 || l.Jitter.Duration < 0 || l.Mean.Duration > time.Hour || l.Jitter.Duration > l.Mean.Duration {
			t.Bad(fmt.Sprintf("%s.latency[%s]", at, method), "use a mean of at most 1h, and a jitter of at most the mean")
		}
		if g.Latency == nil {
			g.Latency = map[string]simulated.Latency{}
		}
		g.Latency[method] = simulated.Latency{Mean: l.Mean.Duration, Jitter: l.Jitter.Duration}
	}
	fields := t.raw.Groups[i].Kubelet
	for field := range fields {
		if why := fleetSets[field]; why != "" {
			t.Bad(at+".kubelet."+field, why+": remove the field")
		}
	}
	k, problems := config.SimulatedKubelet(fields)
	for _, p := range problems {
		t.Bad(strings.TrimSuffix(at+".kubelet."+p.Path, "."), p.Text)
	}
	g.Kubelet = &k
	return g
}
