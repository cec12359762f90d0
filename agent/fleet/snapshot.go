package fleet

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-node/wherry/internal/core/yamldoc"
)

// SnapshotKind is the kind of a file with a Snapshot.
const SnapshotKind = "FleetSnapshot"

// The bounds of a snapshot: the size of its file in bytes, and the largest Scale.
const (
	MaxSnapshot = 64 << 20
	MaxScale    = 10_000
)

// Snapshot is the shape of a cluster at one moment: the sizes of its nodes, and its pods by their owners. It has no Secrets, ConfigMaps,
// environment variables, commands, annotations or volumes.
type Snapshot struct {
	Taken     time.Time
	Groups    []Group
	Workloads []Workload
}

// WorkloadKind is the kind of the object that a Workload becomes.
type WorkloadKind string

// These are the kinds of workloads.
const (
	KindDeployment  WorkloadKind = "Deployment"
	KindStatefulSet WorkloadKind = "StatefulSet"
	KindDaemonSet   WorkloadKind = "DaemonSet"
	KindJob         WorkloadKind = "Job"
	KindPod         WorkloadKind = "Pod" // pods without an owner
)

func workloadKinds() []WorkloadKind {
	return []WorkloadKind{KindDeployment, KindStatefulSet, KindDaemonSet, KindJob, KindPod}
}

// Workload is a number of pods that have the same owner and the same spec.
type Workload struct {
	Kind            WorkloadKind
	Namespace, Name string
	// Count is the number of the pods. For a DaemonSet it is not used: each node that matches gets a pod.
	Count int
	// Running is how many of the pods were Running.
	Running int
	// RunFor is how long the containers of a pod ran until the pod ended, with ExitCode; 0: they run until they are stopped.
	RunFor   time.Duration
	ExitCode int32
	Template v1.PodTemplateSpec
}

// Scaled returns the groups with scale times as many nodes.
func (s *Snapshot) Scaled(scale int) []Group {
	groups := slices.Clone(s.Groups)
	for i := range groups {
		groups[i].Count *= scale
	}
	return groups
}

// Check returns an error if a fleet cannot have scale times as many nodes and pods.
func (s *Snapshot) Check(scale int) error {
	if scale < 1 || scale > MaxScale {
		return fmt.Errorf("scale %d: use 1 to %d", scale, MaxScale)
	}
	nodes, pods := 0, 0
	for i := range s.Groups {
		nodes += s.Groups[i].Count * scale
	}
	for i := range s.Workloads {
		pods += s.Workloads[i].Count * scale
	}
	if nodes > MaxNodes || pods > MaxPods {
		return fmt.Errorf("scale %d: a fleet can have %d nodes and %d pods, this would be %d and %d: use a smaller one", scale, MaxNodes, MaxPods, nodes, pods)
	}
	return nil
}

// Running returns how many pods run for as long as nobody stops them, if all were started that were Running, scale times.
func (s *Snapshot) Running(scale int) (n int) {
	for i := range s.Workloads {
		if w := &s.Workloads[i]; w.RunFor == 0 && w.Kind != KindJob {
			n += w.Running * scale
		}
	}
	return n
}

// snapshotFile is the content of a file with a snapshot, with its groups as they are read or as they are written.
type snapshotFile[G groupFile | groupSaved] struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Taken      metav1.Time    `json:"taken"`
	Groups     []G            `json:"groups"`
	Workloads  []workloadFile `json:"workloads"`
}

// workloadFile is a Workload in a file.
type workloadFile struct {
	Kind      WorkloadKind       `json:"kind"`
	Namespace string             `json:"namespace"`
	Name      string             `json:"name"`
	Count     int                `json:"count"`
	Running   int                `json:"running,omitempty"`
	RunFor    *metav1.Duration   `json:"runFor,omitempty"`
	ExitCode  int32              `json:"exitCode,omitempty"`
	Template  v1.PodTemplateSpec `json:"template"`
}

// ParseSnapshot reads a snapshot from a file in YAML or JSON. name is the file's name for errors. The error joins all problems, each with
// file, line and field.
func ParseSnapshot(name string, data []byte) (*Snapshot, error) {
	if len(data) > MaxSnapshot {
		return nil, fmt.Errorf("%s: the snapshot has %d bytes, more than %d", name, len(data), MaxSnapshot)
	}
	t := template{Document: yamldoc.Document{Name: name}}
	var file snapshotFile[groupFile]
	if err := t.Decode(data, TemplateAPIVersion, SnapshotKind, &file, &t.raw); err != nil {
		return nil, err
	}
	t.file.Groups = file.Groups
	s := &Snapshot{Taken: file.Taken.Time, Groups: t.groups()}
	seen := map[string]bool{}
	for i := range file.Workloads {
		s.Workloads = append(s.Workloads, t.workload(i, &file.Workloads[i], seen))
	}
	if err := t.check(s.Groups); err != nil {
		return nil, err
	}
	return s, nil
}

// workload converts workload i of the file, and adds a problem for each field that is not valid. The API server checks the template.
func (t *template) workload(i int, f *workloadFile, seen map[string]bool) Workload {
	bad := func(field, format string, args ...any) {
		t.Bad(fmt.Sprintf("workloads[%d].%s", i, field), fmt.Sprintf(format, args...))
	}
	w := Workload{
		Kind: f.Kind, Namespace: f.Namespace, Name: f.Name, Count: f.Count, Running: f.Running, ExitCode: f.ExitCode, Template: f.Template,
	}
	if f.RunFor != nil {
		w.RunFor = f.RunFor.Duration
	}
	if !slices.Contains(workloadKinds(), w.Kind) {
		bad("kind", "%q: use one of %v", w.Kind, workloadKinds())
	}
	if errs := validation.IsDNS1123Label(w.Namespace); len(errs) > 0 {
		bad("namespace", "%q: %s", w.Namespace, errs[0])
	}
	if errs := validation.IsDNS1123Label(w.Name); len(errs) > 0 || len(w.Name) > maxWorkloadName {
		bad("name", "%q: use at most %d lower case letters, digits and dashes", w.Name, maxWorkloadName)
	}
	if w.Count < 0 || w.Count > MaxPods || w.Running < 0 || w.Running > w.Count {
		bad("count", "%d, of which %d are Running: use 0 to %d, and no more Running ones", w.Count, w.Running, MaxPods)
	}
	if w.RunFor < 0 {
		bad("runFor", "%s: must not be negative", w.RunFor)
	}
	if len(w.Template.Spec.Containers) == 0 {
		bad("template", "a pod needs at least one container")
	}
	key := string(w.Kind) + "/" + w.Namespace + "/" + w.Name
	if seen[key] {
		bad("name", "another %s of namespace %s has the name %q", w.Kind, w.Namespace, w.Name)
	}
	seen[key] = true
	return w
}

// maxWorkloadName leaves room for what controllers add to the names of pods.
const maxWorkloadName = 45
