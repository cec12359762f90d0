package fleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	yamlv3 "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/core/strict"
	"github.com/wherry-node/wherry/internal/edge/config"
)

// These identify a template file.
const (
	TemplateAPIVersion = "wherry.dev/v1alpha1"
	TemplateKind       = "FleetTemplate"
)

// MaxTemplate bounds a template file in bytes.
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
	t := template{name: name}
	if err := t.decode(data); err != nil {
		return nil, err
	}
	var groups []Group
	for i := range t.file.Groups {
		groups = append(groups, t.group(i))
	}
	if len(groups) == 0 {
		t.bad("groups", "a fleet needs at least one group: write groups: [{name: node, count: 10}]")
	}
	if len(t.errs) > 0 {
		return nil, errors.Join(t.errs...)
	}
	if err := checkGroups(groups, func(i int, field, text string) { t.bad(fmt.Sprintf("groups[%d].%s", i, field), text) }); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return groups, errors.Join(t.errs...)
}

// template is the state of ParseTemplate.
type template struct {
	name string
	tree yamlv3.Node
	raw  struct { // the fields that the file sets
		Groups []struct {
			Kubelet map[string]any `json:"kubelet"`
		} `json:"groups"`
	}
	file templateFile
	errs []error
}

// maxProblems bounds how many problems of a template are named.
const maxProblems = 50

// bad adds a problem of a field.
func (t *template) bad(path, text string) {
	switch n := len(t.errs); {
	case n > maxProblems:
	case n == maxProblems:
		t.errs = append(t.errs, fmt.Errorf("%s: more than %d problems in all", t.name, maxProblems))
	default:
		where := t.name
		if line := lineOf(&t.tree, path); line > 0 {
			where += ":" + strconv.Itoa(line)
		}
		t.errs = append(t.errs, fmt.Errorf("%s: %s: %s", where, path, text))
	}
}

// decode reads the file and compares it with the type.
func (t *template) decode(data []byte) error {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err == nil {
		err = yamlv3.Unmarshal(data, &t.tree)
	}
	if err != nil {
		return fmt.Errorf("%s: not valid YAML or JSON: %w", t.name, err)
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("%s: not valid YAML or JSON: %w", t.name, err)
	}
	m, ok := v.(map[string]any)
	if !ok || m["apiVersion"] != TemplateAPIVersion || m["kind"] != TemplateKind {
		return fmt.Errorf("%s: apiVersion %v, kind %v: must be %s and %s", t.name, m["apiVersion"], m["kind"], TemplateAPIVersion, TemplateKind)
	}
	for _, p := range (strict.Types{}).Check(v, &t.file) {
		t.bad(p.Path, p.Detail)
	}
	if len(t.errs) > 0 {
		return errors.Join(t.errs...)
	}
	if err := errors.Join(json.Unmarshal(asJSON, &t.file), json.Unmarshal(asJSON, &t.raw)); err != nil {
		return fmt.Errorf("%s: %w", t.name, err)
	}
	return nil
}

// fleetSets are the fields of KubeletConfiguration that a template may not set, each with what to use instead.
var fleetSets = map[string]string{
	"address": "the fleet chooses the address", "port": "the fleet chooses the port", "healthzPort": "a node of a fleet has no health port",
	"readOnlyPort": "a node of a fleet has no read-only port", "containerRuntimeEndpoint": "the runtime is simulated", "imageServiceEndpoint": "the runtime is simulated",
	"podLogsDir": "the fleet chooses the directory", "tlsCertFile": "the fleet has a certificate of its own", "tlsPrivateKeyFile": "the fleet has a key of its own",
	"serverTLSBootstrap": "the fleet has a certificate of its own", "providerID": "use providerID of the group", "registerWithTaints": "use taints of the group",
	"registerNode": "a fleet registers its nodes",
}

// group returns one group of the file, and adds its problems.
func (t *template) group(i int) Group {
	f := &t.file.Groups[i]
	at := fmt.Sprintf("groups[%d]", i)
	g := Group{
		Name: f.Name, Count: 1, NodeName: f.NodeName, CPUs: f.CPUs, Memory: f.Memory, Storage: f.Storage, Labels: f.Labels, Taints: f.Taints, Region: f.Region,
		Zones: f.Zones, ProviderID: f.ProviderID, Images: f.Images, RuntimeHandlers: f.RuntimeHandlers,
	}
	if f.Count != nil {
		g.Count = *f.Count
	}
	for method, l := range f.Latency {
		if l.Mean.Duration < 0 || l.Jitter.Duration < 0 || l.Mean.Duration > time.Hour || l.Jitter.Duration > l.Mean.Duration {
			t.bad(fmt.Sprintf("%s.latency[%s]", at, method), "use a mean of at most 1h, and a jitter of at most the mean")
		}
		if g.Latency == nil {
			g.Latency = map[string]simulated.Latency{}
		}
		g.Latency[method] = simulated.Latency{Mean: l.Mean.Duration, Jitter: l.Jitter.Duration}
	}
	fields := t.raw.Groups[i].Kubelet
	for field := range fields {
		if why := fleetSets[field]; why != "" {
			t.bad(at+".kubelet."+field, why+": remove the field")
		}
	}
	k, problems := config.SimulatedKubelet(fields)
	for _, p := range problems {
		t.bad(strings.TrimSuffix(at+".kubelet."+p.Path, "."), p.Text)
	}
	g.Kubelet = &k
	return g
}

// lineOf returns the line of a field in a YAML document, or of the nearest field above it; 0: unknown.
func lineOf(tree *yamlv3.Node, path string) int {
	if len(tree.Content) == 0 {
		return 0
	}
	n := tree.Content[0]
	line := n.Line
	for _, step := range steps(path) {
		if n.Kind == yamlv3.AliasNode {
			n = n.Alias
		}
		next, at := child(n, step)
		if next == nil {
			break
		}
		n, line = next, at
	}
	return line
}

// child returns the value of a key or an index, and the line on which it begins.
func child(n *yamlv3.Node, step string) (*yamlv3.Node, int) {
	switch n.Kind {
	case yamlv3.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i+1], n.Content[i].Line
			}
		}
	case yamlv3.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i].Line
		}
	}
	return nil, 0
}

// steps cuts "groups[0].labels[a.b/c]" into names, indexes and keys.
func steps(path string) (out []string) {
	for path != "" {
		if rest, ok := strings.CutPrefix(path, "["); ok {
			key, after, _ := strings.Cut(rest, "]")
			out, path = append(out, key), strings.TrimPrefix(after, ".")
			continue
		}
		end := strings.IndexAny(path, ".[")
		if end < 0 {
			return append(out, path)
		}
		out = append(out, path[:end])
		path = strings.TrimPrefix(path[end:], ".")
	}
	return out
}
