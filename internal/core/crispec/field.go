package crispec

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	resourcehelper "k8s.io/component-helpers/resource"
)

// FieldInput holds the values that a fieldRef may read.
type FieldInput struct {
	Pod      *v1.Pod
	PodIPs   []string
	HostIPs  []string
	NodeName string
}

// Field resolves a fieldRef, of an environment variable or of a downward API volume: metadata.name, namespace,
// uid, labels, annotations, labels['key'], annotations['key'], spec.nodeName, spec.serviceAccountName,
// status.hostIP(s), status.podIP(s).
func Field(in FieldInput, ref *v1.ObjectFieldSelector) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", ref.APIVersion)
	}
	if path, key, ok := subscript(ref.FieldPath); ok {
		return keyedField(in.Pod, path, key)
	}
	switch ref.FieldPath {
	case "metadata.name":
		return in.Pod.Name, nil
	case "metadata.namespace":
		return in.Pod.Namespace, nil
	case "metadata.uid":
		return string(in.Pod.UID), nil
	case "metadata.labels":
		return formatMap(in.Pod.Labels), nil
	case "metadata.annotations":
		return formatMap(in.Pod.Annotations), nil
	case "spec.nodeName", "spec.host":
		if in.Pod.Spec.NodeName == "" {
			return in.NodeName, nil
		}
		return in.Pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return in.Pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		if len(in.HostIPs) == 0 {
			return "", fmt.Errorf("fieldPath %s: the node has no IP address yet", ref.FieldPath)
		}
		return firstOrAll(in.HostIPs, ref.FieldPath), nil
	case "status.podIP", "status.podIPs":
		return firstOrAll(in.PodIPs, ref.FieldPath), nil
	case "spec.restartPolicy", "spec.schedulerName", "status.phase":
		// The API accepts these names in field selectors, but the downward API does not offer them.
		return "", fmt.Errorf("unsupported fieldPath: %s", ref.FieldPath)
	}
	return "", fmt.Errorf("field label not supported: %s", ref.FieldPath)
}

func firstOrAll(ips []string, path string) string {
	if len(ips) == 0 {
		return ""
	}
	if strings.HasSuffix(path, "s") {
		return strings.Join(ips, ",")
	}
	return ips[0]
}

// subscript splits metadata.labels['key'] into field and key.
func subscript(path string) (field, key string, ok bool) {
	field, rest, found := strings.Cut(path, "['")
	if !found || !strings.HasSuffix(rest, "']") || field == "" {
		return "", "", false
	}
	return field, strings.TrimSuffix(rest, "']"), true
}

func keyedField(p *v1.Pod, field, key string) (string, error) {
	var m map[string]string
	check := key
	switch field {
	case "metadata.labels":
		m = p.Labels
	case "metadata.annotations":
		m, check = p.Annotations, strings.ToLower(key)
	default:
		return "", fmt.Errorf("field label does not support subscript: %s['%s']", field, key)
	}
	if errs := validation.IsQualifiedName(check); len(errs) > 0 {
		return "", fmt.Errorf("invalid key subscript in %s['%s']: %s", field, key, strings.Join(errs, ";"))
	}
	return m[key], nil
}

// formatMap returns labels or annotations in the form of the downward API: key="escaped value", one per line, sorted.
func formatMap(m map[string]string) string {
	var b strings.Builder
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "%s=%q", k, m[k])
	}
	return b.String()
}

// ResourceField resolves a resourceFieldRef in units of its divisor, rounded up. If a container has no limit, the result is the pod's
// limit, or else the node's allocatable ("If CPU and memory limits are not specified for a container, the kubelet default exposes the
// maximum allocatable value"). c is the container with the reference; it may be nil if the reference names a container.
func ResourceField(ref *v1.ResourceFieldSelector, p *v1.Pod, c *v1.Container, allocatable v1.ResourceList) (string, error) {
	if ref.ContainerName != "" {
		c = findContainer(p, ref.ContainerName)
		if c == nil {
			return "", fmt.Errorf("container %s not found", ref.ContainerName)
		}
	}
	if c == nil {
		return "", fmt.Errorf("resourceFieldRef %s: containerName is missing", ref.Resource)
	}
	kind, name, ok := strings.Cut(ref.Resource, ".")
	res := v1.ResourceName(name)
	known := res == v1.ResourceCPU || res == v1.ResourceMemory || res == v1.ResourceEphemeralStorage ||
		strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
	if !ok || !known || (kind != "limits" && kind != "requests") {
		return "", fmt.Errorf("unsupported container resource : %s", ref.Resource)
	}
	q := c.Resources.Requests[res]
	if kind == "limits" {
		q = effectiveLimit(p, c, res, allocatable)
	}
	return divide(q, ref.Divisor, res == v1.ResourceCPU), nil
}

func effectiveLimit(p *v1.Pod, c *v1.Container, res v1.ResourceName, allocatable v1.ResourceList) resource.Quantity {
	if q, ok := c.Resources.Limits[res]; ok && !q.IsZero() {
		return q
	}
	if strings.HasPrefix(string(res), v1.ResourceHugePagesPrefix) {
		return c.Resources.Limits[res] // huge pages are never overcommitted and have no default
	}
	if p.Spec.Resources != nil && resourcehelper.IsSupportedPodLevelResource(res) {
		if q, ok := p.Spec.Resources.Limits[res]; ok && !q.IsZero() {
			return q
		}
	}
	return allocatable[res]
}

func divide(q, divisor resource.Quantity, milli bool) string {
	if divisor.IsZero() {
		divisor = *resource.NewQuantity(1, resource.DecimalSI)
	}
	a, b := q.Value(), divisor.Value()
	if milli {
		a, b = q.MilliValue(), divisor.MilliValue()
	}
	if b == 0 { // a negative divisor smaller than one unit rounds to zero
		b = 1
	}
	return strconv.FormatInt(int64(math.Ceil(float64(a)/float64(b))), 10)
}

func findContainer(p *v1.Pod, name string) *v1.Container {
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == name {
			return &p.Spec.Containers[i]
		}
	}
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == name {
			return &p.Spec.InitContainers[i]
		}
	}
	return nil
}
