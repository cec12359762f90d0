package configs

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/wherry-node/wherry/bench/internal/differ"
)

// Difference is a difference between the two agents' requests for a pod.
type Difference struct {
	// Class is the name of the difference. Package differ uses the same names, so that both share one table of decisions.
	Class string
	// Where is the name of the container and the differing field; for the sandbox it is only the field.
	Where            string
	Upstream, Wherry string
}

var (
	ownDirectory = regexp.MustCompile(`/[^\s:]*/(upstream|wherry)/(root|logs)\b`)
	messageFile  = regexp.MustCompile(`(containers/[^/]+/)[0-9a-f]{8}\b`)
	specHash     = regexp.MustCompile(`^1-[0-9a-f]{12,64}$`)
	instant      = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	podUID       = regexp.MustCompile(`00000000-0000-4000-8000-[0-9a-f]{12}`)
	quoted       = regexp.MustCompile(`"[^"]*"`)
	mountAt      = regexp.MustCompile(`volumeMounts\[\d+\] at [^:]*:`)
	element      = regexp.MustCompile(`\[[^\]]*\]`)
)

// normal replaces the parts of a value that differ between the agents or between runs: directories, UIDs, hashes and times.
func normal(value string) string {
	value = ownDirectory.ReplaceAllString(value, "/AGENT/$2")
	value = messageFile.ReplaceAllString(value, "${1}HASH")
	value = podUID.ReplaceAllString(value, "UID")
	value = instant.ReplaceAllString(value, "TIME")
	if value == handler || value == plainHandler {
		return "HANDLER"
	}
	return specHash.ReplaceAllString(value, "1-ID")
}

// optionalFile returns an addition to the class of a difference if the container reads a variable from an optional file (fileKeyRef). The
// file is always missing, because no volume of the compared pods has it. Without such a variable it returns "".
func optionalFile(p *v1.Pod, name string) string {
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		for _, e := range c.Env {
			if c.Name == name && e.ValueFrom != nil && e.ValueFrom.FileKeyRef != nil && ptr.Deref(e.ValueFrom.FileKeyRef.Optional, false) {
				return ", with a variable from an optional file that is missing,"
			}
		}
	}
	return ""
}

// Compare returns the differences between the two agents' requests for a pod, one for each class.
func Compare(p *v1.Pod, upstream, wherry *Requests) (found []Difference) {
	add := func(kind, name, field, a, b string) {
		class := fmt.Sprintf("config of %s: %s: upstream %q, Wherry %q", kind, element.ReplaceAllString(field, "[]"), a, b)
		if !slices.ContainsFunc(found, func(d Difference) bool { return d.Class == class }) {
			found = append(found, Difference{Class: class, Where: strings.TrimSpace(name + " " + field), Upstream: a, Wherry: b})
		}
	}
	kindOf := func(name string) string {
		if name == "" {
			return "the sandbox"
		}
		return "a container"
	}
	all := append([]string{""}, containerNames(p)...)
	for _, name := range all {
		u, w := upstream.config(name), wherry.config(name)
		if alone := (u == nil) != (w == nil); alone && targetAlone(p, name, upstream, wherry) {
			continue
		} else if alone {
			class := fmt.Sprintf("%s%s is made by one alone: upstream %q, Wherry %q", kindOf(name), optionalFile(p, name),
				general(upstream.Failed[name]), general(wherry.Failed[name]))
			found = append(found, Difference{Class: class, Where: name, Upstream: upstream.Failed[name], Wherry: wherry.Failed[name]})
			continue
		}
		for _, class := range alike(p, name, u, w) {
			found = append(found, Difference{Class: class, Where: name})
		}
		for _, field := range slices.Sorted(maps.Keys(union(u, w))) {
			if u[field] == w[field] {
				continue
			}
			a, b := normal(u[field]), normal(w[field])
			if a == b || field == "envs in order" || // upstream iterates over a Go map, so its order is random
				differ.OfHostID(field) && a != "" && b != "" {
				continue
			}
			add(kindOf(name), name, field, a, b)
		}
	}
	return found
}

// targetAlone reports whether name is an ephemeral container that only one agent created because only that agent created the container's
// target. The missing target is reported as a difference already, so the missing ephemeral container is not.
func targetAlone(p *v1.Pod, name string, upstream, wherry *Requests) bool {
	return slices.ContainsFunc(p.Spec.EphemeralContainers, func(e v1.EphemeralContainer) bool {
		same := func(r *Requests) bool {
			return (r.Containers[name] == nil) == (r.Containers[e.TargetContainerName] == nil)
		}
		return e.Name == name && e.TargetContainerName != "" && same(upstream) && same(wherry)
	})
}

// general replaces quoted names, paths and IDs in an error text with constants, so that the texts of different pods are equal.
func general(text string) string {
	return quoted.ReplaceAllString(mountAt.ReplaceAllString(normal(text), "a mount:"), `"..."`)
}

func union(a, b differ.Config) differ.Config {
	all := maps.Clone(a)
	if all == nil {
		all = differ.Config{}
	}
	maps.Copy(all, b)
	return all
}

// config returns the configuration of the container; of the sandbox if name is "". It returns nil if the runtime received none.
func (t *Requests) config(name string) differ.Config {
	if name == "" {
		if t.Sandbox == nil {
			return nil
		}
		c := differ.ConfigOf(t.Sandbox)
		c["runtimeHandler"] = t.Handler
		return c
	}
	if t.Containers[name] == nil {
		return nil
	}
	c := proto.Clone(t.Containers[name]).(*runtimeapi.ContainerConfig)
	slices.SortFunc(c.GetLinux().GetResources().GetHugepageLimits(), func(a, b *runtimeapi.HugepageLimit) int { return strings.Compare(a.PageSize, b.PageSize) })
	return differ.ConfigOf(c)
}

// alike finds differences that have the same class whatever their values are. It deletes their fields from u and w, the configurations
// that upstream's kubelet and Wherry sent, and returns their classes.
func alike(p *v1.Pod, name string, u, w differ.Config) (classes []string) {
	if name == "" {
		return sidecarPorts(p, u, w)
	}
	for field := range u { // upstream's kubelet sends imageSubPath also for mounts of other volumes
		mount, ok := strings.CutSuffix(field, ".imageSubPath")
		if ok && u[mount+".image.image"] == "" && w[field] == "" {
			delete(u, field)
			classes = append(classes, "config of a container: mounts[].imageSubPath: upstream has that of a mount of no image, in a pod with an image volume")
		}
	}
	classes = append(classes, limitsOfInit(p, name, u, w)...)
	for _, c := range containersOf(p) {
		order := strings.Fields(u["mounts in order"])
		if c.Name != name || len(order) < 2 || !slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.MountPath == c.TerminationMessagePath }) {
			continue
		}
		u["mounts in order"] = strings.Join(order[:len(order)-1], " ") // upstream appends the mount of the termination message
		for field := range union(u, w) {
			if strings.HasPrefix(field, "mounts["+c.TerminationMessagePath+"].") {
				delete(u, field)
				delete(w, field)
			}
		}
		classes = append(classes, "config of a container: mounts in order: upstream has two where a volume is mounted where the termination message goes")
	}
	return classes
}

// limitsOfInit handles variables whose value is a resource limit that an init container does not have: upstream's kubelet sends 0. It
// deletes these variables from u and w (the configurations that upstream's kubelet and Wherry sent), and returns the class of the
// difference.
func limitsOfInit(p *v1.Pod, name string, u, w differ.Config) (classes []string) {
	isInit := func(name string) bool {
		return slices.ContainsFunc(p.Spec.InitContainers, func(c v1.Container) bool { return c.Name == name })
	}
	for _, c := range containersOf(p) {
		for _, e := range c.Env {
			field := "envs[" + e.Name + "].value"
			if c.Name != name || e.ValueFrom == nil || e.ValueFrom.ResourceFieldRef == nil || !isInit(e.ValueFrom.ResourceFieldRef.ContainerName) || u[field] != "0" || w[field] == "0" {
				continue
			}
			delete(u, field)
			delete(w, field)
			classes = append(classes, "config of a container: envs[].value of a limit of a named init container, which has none: upstream has 0, Wherry what the node has for pods")
		}
	}
	return classes
}

// sidecarPorts handles ports of sidecars, which only Wherry sends. If Wherry's list is these ports followed by upstream's list, it
// deletes them from w (Wherry's configuration) and returns the class of the difference. The other ports are still compared.
func sidecarPorts(p *v1.Pod, u, w differ.Config) []string {
	has := func(c v1.Container) bool {
		return len(c.Ports) > 0 && c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	}
	const order = "portMappings in order"
	all, others := strings.Fields(w[order]), strings.Fields(u[order])
	more := len(all) - len(others)
	if !slices.ContainsFunc(p.Spec.InitContainers, has) || more <= 0 || !slices.Equal(all[more:], others) {
		return nil
	}
	delete(u, order)
	delete(w, order)
	for field := range w {
		if _, ok := u[field]; !ok && strings.HasPrefix(field, "portMappings[") {
			delete(w, field)
		}
	}
	return []string{"config of the sandbox of a pod with ports of a sidecar: portMappings: Wherry has those of sidecars, before the others"}
}

func containersOf(p *v1.Pod) (all []*v1.Container) {
	for i := range p.Spec.InitContainers {
		all = append(all, &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		all = append(all, &p.Spec.Containers[i])
	}
	for i := range p.Spec.EphemeralContainers {
		all = append(all, (*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

func containerNames(p *v1.Pod) (names []string) {
	for _, c := range containersOf(p) {
		names = append(names, c.Name)
	}
	return names
}
