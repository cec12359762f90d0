package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
	"github.com/wherry-node/wherry/internal/edge/config"
)

// Taken says how much of a cluster a snapshot has.
type Taken struct{ Nodes, Groups, Pods, Workloads int }

// TakeSnapshot reads the nodes and pods of a cluster, and returns the file of their snapshot (see ParseSnapshot). It changes nothing in the
// cluster. Nodes that are alike become one group, and pods with the same owner and the same spec one workload, as do pods without an owner. It leaves out what may be
// confidential or has no meaning in another cluster: annotations, environment variables, commands, volumes, probes, hooks and service
// accounts, and what pods require of labels that the nodes of the copy do not have. Names, labels and images stay.
func TakeSnapshot(ctx context.Context, client *rest.Config) ([]byte, Taken, error) {
	api, err := newClient(client, nil)
	if err != nil {
		return nil, Taken{}, err
	}
	nodes, err := takeNodes(ctx, api)
	if err != nil {
		return nil, Taken{}, err
	}
	groups := groupsOf(nodes)
	pods := podsTaken{byShape: map[string]*podsAlike{}, labels: keptOf(groups), limit: MaxSnapshot}
	err = eachPage(func(opts metav1.ListOptions) (string, error) {
		list, err := api.Pods("").List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("list the pods of the cluster: %w", err)
		}
		for i := range list.Items {
			if err := pods.add(&list.Items[i]); err != nil {
				return "", err
			}
		}
		return list.Continue, nil
	})
	if err != nil {
		return nil, Taken{}, err
	}
	file := snapshotFile[groupSaved]{TemplateAPIVersion, SnapshotKind, metav1.NewTime(time.Now().UTC().Truncate(time.Second)), groups, pods.workloads()}
	data, err := yaml.Marshal(file)
	if err != nil {
		return nil, Taken{}, fmt.Errorf("write the snapshot: %w", err)
	}
	if len(data) > MaxSnapshot {
		return nil, Taken{}, tooLarge(len(data))
	}
	return data, Taken{Nodes: len(nodes), Groups: len(file.Groups), Pods: pods.total, Workloads: len(file.Workloads)}, nil
}

// tooLarge is the error of a snapshot with this many bytes.
func tooLarge(size int) error {
	return fmt.Errorf("the snapshot has %d bytes, more than %d: the cluster has too many different pods", size, MaxSnapshot)
}

// groupSaved is a group as TakeSnapshot writes it: groupFile without what it does not set.
type groupSaved struct {
	Name            string            `json:"name"`
	Count           int               `json:"count"`
	CPUs            int               `json:"cpus,omitempty"`
	Memory          string            `json:"memory,omitempty"`
	Storage         string            `json:"storage,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Taints          []v1.Taint        `json:"taints,omitempty"`
	Region          string            `json:"region,omitempty"`
	Zones           []string          `json:"zones,omitempty"`
	RuntimeHandlers []string          `json:"runtimeHandlers,omitempty"`
	Kubelet         map[string]any    `json:"kubelet,omitempty"`
}

// takeNodes reads the nodes of a cluster, without what a snapshot does not need.
func takeNodes(ctx context.Context, api *kubeclient.Client) (nodes []v1.Node, err error) {
	err = eachPage(func(opts metav1.ListOptions) (string, error) {
		list, err := api.Nodes().List(ctx, opts)
		if err != nil {
			return "", fmt.Errorf("list the nodes of the cluster: %w", err)
		}
		for i := range list.Items {
			n := &list.Items[i]
			nodes = append(nodes, v1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: n.Labels}, Spec: v1.NodeSpec{Taints: n.Spec.Taints},
				Status: v1.NodeStatus{Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable, RuntimeHandlers: n.Status.RuntimeHandlers},
			})
		}
		return list.Continue, nil
	})
	return nodes, err
}

// groupsOf returns the groups of nodes that are alike, the largest one first.
func groupsOf(nodes []v1.Node) []groupSaved {
	own := ownLabels(nodes)
	byShape := map[string]*groupSaved{}
	zones := map[string]map[string]bool{}
	for i := range nodes {
		g, zone := groupOf(&nodes[i], own)
		shape, err := json.Marshal(g)
		if err != nil {
			continue // cannot happen: all values are texts and numbers
		}
		key := string(shape)
		if byShape[key] == nil {
			byShape[key], zones[key] = &g, map[string]bool{}
		}
		byShape[key].Count++
		if zone != "" {
			zones[key][zone] = true
		}
	}
	keys := slices.SortedFunc(maps.Keys(byShape), func(a, b string) int {
		return cmp.Or(byShape[b].Count-byShape[a].Count, strings.Compare(a, b))
	})
	names := unique{}
	out := make([]groupSaved, 0, len(keys))
	for _, key := range keys {
		g := byShape[key]
		g.Zones = slices.Sorted(maps.Keys(zones[key]))
		g.Name = names.choose(label(g.Name, 30, "node"))
		out = append(out, *g)
	}
	return out
}

// ownLabels returns the keys of labels that only describe one node: each node that has the label has another value.
func ownLabels(nodes []v1.Node) map[string]bool {
	values, times := map[string]map[string]bool{}, map[string]int{}
	for i := range nodes {
		for key, value := range nodes[i].Labels {
			if values[key] == nil {
				values[key] = map[string]bool{}
			}
			values[key][value] = true
			times[key]++
		}
	}
	own := map[string]bool{v1.LabelHostname: true}
	for key, n := range times {
		if n > 1 && len(values[key]) == n {
			own[key] = true
		}
	}
	return own
}

// groupOf returns the group to which a node belongs, with Count 0, and its zone. The name is that of the machine's type, if it has one.
func groupOf(n *v1.Node, own map[string]bool) (g groupSaved, zone string) {
	capacity, allocatable := n.Status.Capacity, n.Status.Allocatable
	g = groupSaved{
		Name: n.Labels[v1.LabelInstanceTypeStable], CPUs: int(min(math.MaxInt32, max(1, capacity.Cpu().Value()))), Region: n.Labels[v1.LabelTopologyRegion],
		Memory: text(capacity.Memory()), Storage: text(capacity.StorageEphemeral()), Labels: map[string]string{}, Kubelet: map[string]any{},
	}
	for key, value := range n.Labels {
		switch {
		case own[key], key == v1.LabelTopologyRegion, key == v1.LabelTopologyZone, key == LabelFleet, key == LabelGroup:
		case agentSets(key, value):
		case nodestatus.ValidateLabels(map[string]string{key: value}) == nil:
			g.Labels[key] = value
		}
	}
	for _, t := range n.Spec.Taints {
		t.TimeAdded = nil
		if !strings.HasPrefix(t.Key, "node.kubernetes.io/") && t.Key != TaintSimulated && config.CheckTaint(t) == nil { // the others come from conditions of the node
			g.Taints = append(g.Taints, t)
		}
	}
	for _, h := range n.Status.RuntimeHandlers {
		if h.Name != "" {
			g.RuntimeHandlers = append(g.RuntimeHandlers, h.Name)
		}
	}
	slices.Sort(g.RuntimeHandlers)
	if pods := capacity.Pods().Value(); pods > 0 {
		g.Kubelet["maxPods"] = min(pods, math.MaxInt32)
	}
	reserved := map[string]string{}
	for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
		whole, free := capacity[name], allocatable[name]
		if whole.Sub(free); !free.IsZero() && whole.Sign() > 0 {
			reserved[string(name)] = whole.String()
		}
	}
	if len(reserved) > 0 { // the difference has the eviction threshold in it, too
		g.Kubelet["systemReserved"], g.Kubelet["evictionHard"] = reserved, map[string]string{}
	}
	return g, n.Labels[v1.LabelTopologyZone]
}

// agentSets reports whether an agent on this machine itself gives its Node this label.
func agentSets(key, value string) bool {
	switch key {
	case v1.LabelOSStable, "beta.kubernetes.io/os":
		return value == runtime.GOOS
	case v1.LabelArchStable, "beta.kubernetes.io/arch":
		return value == runtime.GOARCH
	}
	return false
}

// text returns a quantity as a text; "": zero.
func text(q *resource.Quantity) string {
	if q.IsZero() {
		return ""
	}
	return q.String()
}

// podsTaken collects the pods of a cluster.
type podsTaken struct {
	byShape map[string]*podsAlike
	labels  keptLabels
	total   int
	size    int // bytes of all shapes
	limit   int // the largest size; tenants decide how many different pods a cluster has
}

// podsAlike are the pods of one owner with one spec, or pods without an owner with the same spec.
type podsAlike struct {
	workloadFile
	runs  []time.Duration // of the pods that have ended
	codes map[int32]int   // their exit codes
}

// add adds a pod, unless it is being deleted, or has ended and its owner has replaced it.
func (t *podsTaken) add(p *v1.Pod) error {
	kind, name := ownerOf(p)
	ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
	if p.DeletionTimestamp != nil || ended && kind != KindJob && kind != KindPod {
		return nil
	}
	one := podsAlike{workloadFile: workloadFile{Kind: kind, Namespace: p.Namespace, Name: label(name, maxWorkloadName-5, "pods"), Template: templateOf(p, kind, t.labels)}, codes: map[int32]int{}}
	of := one.workloadFile
	if kind == KindPod { // pods without an owner are alike whatever they are called; the first one gives the name
		of.Name = ""
	}
	shape, err := json.Marshal(of)
	if err != nil {
		return fmt.Errorf("write pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	have := t.byShape[string(shape)]
	if have == nil {
		if t.size += len(shape); t.size > t.limit {
			return tooLarge(t.size)
		}
		have = &one
		t.byShape[string(shape)] = have
	}
	have.Count++
	t.total++
	if p.Status.Phase == v1.PodRunning {
		have.Running++
	}
	if ran, code, ok := lifeOf(p); ended && ok {
		have.runs = append(have.runs, ran)
		have.codes[code]++
	}
	return nil
}

// workloads returns the workloads of all pods, sorted by namespace and name.
func (t *podsTaken) workloads() []workloadFile {
	names := map[string]unique{}
	out := []workloadFile{}
	for _, key := range slices.Sorted(maps.Keys(t.byShape)) {
		w := t.byShape[key]
		if n := len(w.runs); n > 0 {
			slices.Sort(w.runs)
			w.RunFor = &metav1.Duration{Duration: max(time.Second, w.runs[n/2].Round(time.Second))}
			w.ExitCode = slices.MaxFunc(slices.Sorted(maps.Keys(w.codes)), func(a, b int32) int { return w.codes[a] - w.codes[b] })
		}
		of := string(w.Kind) + "/" + w.Namespace
		if names[of] == nil {
			names[of] = unique{}
		}
		w.Name = names[of].choose(w.Name)
		out = append(out, w.workloadFile)
	}
	inorder.Sort(out, func(a, b workloadFile) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name), strings.Compare(string(a.Kind), string(b.Kind)))
	})
	return out
}

// ownerOf returns the kind and name of the object to which a pod belongs. A ReplicaSet counts as its Deployment. A controller of another
// kind counts as a Deployment or, if its pods end, as a Job.
func ownerOf(p *v1.Pod) (WorkloadKind, string) {
	owner := metav1.GetControllerOf(p)
	switch {
	case owner == nil:
		return KindPod, p.Name
	case owner.Kind == "Node": // the mirror of a static pod
		return KindPod, p.Name
	case owner.Kind == "StatefulSet":
		return KindStatefulSet, owner.Name
	case owner.Kind == "DaemonSet":
		return KindDaemonSet, owner.Name
	case owner.Kind != "ReplicaSet" && (owner.Kind == "Job" || p.Spec.RestartPolicy != v1.RestartPolicyAlways):
		return KindJob, owner.Name
	}
	name := owner.Name
	if hash := p.Labels["pod-template-hash"]; hash != "" {
		name = strings.TrimSuffix(name, "-"+hash)
	}
	return KindDeployment, name
}

// controllersLabels are the labels that controllers give to pods.
func controllersLabels() []string {
	return []string{
		"pod-template-hash", "controller-revision-hash", "pod-template-generation", "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index",
		"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "batch.kubernetes.io/job-completion-index", LabelFleet, LabelWorkload,
	}
}

// templateOf returns what a snapshot keeps of a pod.
func templateOf(p *v1.Pod, kind WorkloadKind, kept keptLabels) v1.PodTemplateSpec {
	labels := maps.Clone(p.Labels)
	for _, key := range controllersLabels() {
		delete(labels, key)
	}
	s := &p.Spec
	t := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
		RestartPolicy: s.RestartPolicy, TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds, ActiveDeadlineSeconds: s.ActiveDeadlineSeconds,
		NodeSelector: kept.selector(s.NodeSelector), Affinity: kept.affinity(s.Affinity, kind), Tolerations: s.Tolerations, TopologySpreadConstraints: s.TopologySpreadConstraints, HostNetwork: s.HostNetwork,
	}}
	if strings.HasPrefix(s.PriorityClassName, "system-") { // other classes are objects of this cluster
		t.Spec.PriorityClassName = s.PriorityClassName
	}
	for i := range s.InitContainers {
		c := &s.InitContainers[i]
		t.Spec.InitContainers = append(t.Spec.InitContainers, containerOf(c))
		if c.RestartPolicy == nil { // without an annotation, a simulated container runs until it is stopped
			if t.Annotations == nil {
				t.Annotations = map[string]string{}
			}
			t.Annotations[simulated.AnnotationRunFor+"."+c.Name] = "1s"
		}
	}
	for i := range s.Containers {
		t.Spec.Containers = append(t.Spec.Containers, containerOf(&s.Containers[i]))
	}
	return t
}

// containerOf returns what a snapshot keeps of a container.
func containerOf(c *v1.Container) v1.Container {
	return v1.Container{
		Name: c.Name, Image: c.Image, Ports: c.Ports, RestartPolicy: c.RestartPolicy,
		Resources: v1.ResourceRequirements{Requests: c.Resources.Requests, Limits: c.Resources.Limits},
	}
}

// lifeOf returns how long the main containers of a pod ran that has ended, and the exit code of the last one. ok is false if the status does
// not say so.
func lifeOf(p *v1.Pod) (ran time.Duration, code int32, ok bool) {
	var began, ended time.Time
	for i := range p.Status.ContainerStatuses {
		t := p.Status.ContainerStatuses[i].State.Terminated
		if t == nil || t.StartedAt.IsZero() || t.FinishedAt.IsZero() {
			continue
		}
		if began.IsZero() || t.StartedAt.Time.Before(began) {
			began = t.StartedAt.Time
		}
		if t.FinishedAt.After(ended) {
			ended, code = t.FinishedAt.Time, t.ExitCode
		}
	}
	return ended.Sub(began), code, !began.IsZero() && !ended.Before(began)
}

// label returns a text as part of a DNS label with at most limit characters, or otherwise if nothing of it can be used.
func label(s string, limit int, otherwise string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	s = strings.Trim(s[:min(len(s), limit)], "-")
	if s == "" {
		return otherwise
	}
	return s
}

// unique chooses names that differ.
type unique map[string]bool

// choose returns a name, with a number if the name is taken.
func (u unique) choose(name string) string {
	chosen := name
	for n := 2; u[chosen]; n++ {
		chosen = fmt.Sprintf("%s-%d", name, n)
	}
	u[chosen] = true
	return chosen
}
