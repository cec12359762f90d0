package nodestatus

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// AnnotationControllerAttach marks a node whose volumes the attach-detach controller attaches.
const AnnotationControllerAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// TaintExternalCloudProvider keeps pods away until a cloud provider has filled in the node.
const TaintExternalCloudProvider = "node.cloudprovider.kubernetes.io/uninitialized"

// maxImageNames bounds the names of one image in the API.
const maxImageNames = 5

// maxVersion bounds the runtime's name and version.
const maxVersion = 256

// Event is a node event about a change of the status. Record it after the change is in the API.
type Event struct {
	Type    string // v1.EventTypeNormal or v1.EventTypeWarning
	Reason  string
	Message string
}

// Result is the result of Build and of Update.
type Result struct {
	Node   *v1.Node
	Events []Event
	// Problems are problems that the status cannot express; the caller logs them.
	Problems []string
}

// update holds the state of one call of Build or Update.
type update struct {
	s *Settings
	f *Facts
	Result
	node *v1.Node
}

// Build makes the Node for registration.
func Build(s Settings, f Facts) Result {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.Name, Labels: s.labels()}}
	node.Spec.ProviderID = s.ProviderID
	node.Spec.Taints = slices.Clone(s.Taints)
	if s.ExternalCloudProvider {
		node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: TaintExternalCloudProvider, Value: "true", Effect: v1.TaintEffectNoSchedule})
	}
	if s.ControllerAttachDetach {
		node.Annotations = map[string]string{AnnotationControllerAttach: "true"}
	}
	return Update(s, f, node)
}

// Update computes the status of an existing Node, and the labels that must always be correct (OS and architecture). It
// keeps the conditions of other owners.
func Update(s Settings, f Facts, existing *v1.Node) Result {
	u := &update{s: &s, f: &f, node: existing.DeepCopy()}
	for key, want := range map[string]string{v1.LabelOSStable: s.OS, v1.LabelArchStable: s.Arch} {
		if u.node.Labels[key] != want {
			if u.node.Labels == nil {
				u.node.Labels = map[string]string{}
			}
			u.node.Labels[key] = want
		}
	}
	u.setAddresses()
	u.setResources()
	u.setInfo()
	u.setImages()
	u.setRuntimeFeatures()
	u.node.Status.DaemonEndpoints.KubeletEndpoint.Port = s.Port
	u.node.Status.DeclaredFeatures = slices.Sorted(slices.Values(s.DeclaredFeatures))
	if f.VolumesKnown {
		u.node.Status.VolumesInUse = slices.Sorted(slices.Values(f.VolumesInUse))
	}
	u.setConditions()
	u.Node = u.node
	return u.Result
}

func (u *update) problem(text string) { u.Problems = append(u.Problems, text) }

func (u *update) event(kind, reason, format string, args ...any) {
	u.Events = append(u.Events, Event{Type: kind, Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (u *update) setInfo() {
	m, info := &u.f.Machine, &u.node.Status.NodeInfo
	if m.BootID != "" {
		if info.BootID != "" && info.BootID != m.BootID {
			u.event(v1.EventTypeWarning, EventRebooted, "Node %s has been rebooted, boot id: %s", u.s.Name, m.BootID)
		}
		info.BootID = m.BootID
	}
	if m.CPUs > 0 {
		info.MachineID, info.SystemUUID = m.MachineID, m.SystemUUID
		info.KernelVersion, info.OSImage = m.KernelVersion, m.OSImage
		info.Swap = nil
		if m.SwapBytes > 0 {
			swap := m.SwapBytes
			info.Swap = &v1.NodeSwapStatus{Capacity: &swap}
		}
	}
	if u.f.Runtime.Name != "" {
		version := u.f.Runtime.Version
		if version == "" {
			version = "Unknown"
		}
		info.ContainerRuntimeVersion = pod.TextMax(u.f.Runtime.Name+"://"+version, maxVersion)
	} else if info.ContainerRuntimeVersion == "" {
		info.ContainerRuntimeVersion = "unknown://Unknown"
	}
	info.KubeletVersion = u.s.KubeletVersion
	//lint:ignore SA1019 clears a value that another agent set
	info.KubeProxyVersion = "" // deprecated, and the agent does not know it
	info.OperatingSystem, info.Architecture = u.s.OS, u.s.Arch
}

// setImages lists the largest images, because they matter most for kube-scheduler's plugin ImageLocality.
func (u *update) setImages() {
	if !u.f.ImagesKnown {
		return
	}
	images := slices.Clone(u.f.Images)
	sort.Slice(images, func(i, j int) bool {
		if images[i].GetSize() != images[j].GetSize() {
			return images[i].GetSize() > images[j].GetSize()
		}
		return images[i].GetId() < images[j].GetId()
	})
	if u.s.MaxImages >= 0 && len(images) > u.s.MaxImages {
		images = images[:u.s.MaxImages]
	}
	u.node.Status.Images = nil
	for _, img := range images {
		names := slices.Sorted(slices.Values(img.GetRepoDigests()))
		names = append(names, slices.Sorted(slices.Values(img.GetRepoTags()))...)
		names = names[:min(len(names), maxImageNames)]
		u.node.Status.Images = append(u.node.Status.Images, v1.ContainerImage{Names: names, SizeBytes: int64(img.GetSize())})
	}
}

// setRuntimeFeatures lists the features of the runtime's handlers. Without an answer of the runtime, the last list
// stays.
func (u *update) setRuntimeFeatures() {
	answer := u.f.Runtime.Status
	if answer == nil {
		return
	}
	handlers := slices.Clone(answer.GetRuntimeHandlers())
	slices.SortFunc(handlers, func(a, b *runtimeapi.RuntimeHandler) int { return strings.Compare(a.GetName(), b.GetName()) })
	u.node.Status.RuntimeHandlers = nil
	for _, h := range handlers {
		readOnly, userNS := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		u.node.Status.RuntimeHandlers = append(u.node.Status.RuntimeHandlers, v1.NodeRuntimeHandler{
			Name:     h.GetName(),
			Features: &v1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &readOnly, UserNamespaces: &userNS},
		})
	}
	u.node.Status.Features = nil
	if answer.GetFeatures() != nil {
		groups := answer.GetFeatures().GetSupplementalGroupsPolicy()
		u.node.Status.Features = &v1.NodeFeatures{SupplementalGroupsPolicy: &groups}
	}
}
