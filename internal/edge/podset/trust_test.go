package podset

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/admit"
	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
	"github.com/wherry-node/wherry/internal/proof/fuzzfill"
)

// reserved lists the annotations and labels that a node agent reads or writes on manifests, mirror pods, containers or sandboxes.
var reserved = []string{
	pod.AnnotationSource, pod.AnnotationHash, pod.AnnotationSeen, "kubernetes.io/config.", "kubernetes.io/config.x",
	pod.AnnotationRestartCount, pod.AnnotationTerminationMessagePath, pod.AnnotationTerminationMessagePolicy, pod.AnnotationPodGracePeriod,
	pod.AnnotationPreStop, pod.AnnotationPorts, pod.AnnotationSpecHash, crispec.AnnotationKubeletHash,
	pod.LabelPodName, pod.LabelPodNamespace, pod.LabelPodUID, pod.LabelContainerName,
	"wherry.dev/stopped", "wherry.dev/mirror-omits", "wherry.dev/owner", "wherry.dev/spec-hash", "wherry.dev/sim-exit-code", "wherry.dev/x",
}

var values = []string{"", "api", "file", "http", "push", "none", "true", "0", "1-0", "99999", "victim", `{"exec":{"command":["sh"]}}`, "Guaranteed"}

// FuzzWhatATenantWritesDecidesNothing checks that annotations and labels with the names that agents use change no
// decision about a pod of the API or one of its neighbours.
func FuzzWhatATenantWritesDecidesNothing(f *testing.F) {
	for i, key := range reserved {
		f.Add(uint64(i), key, values[i%len(values)])
		f.Add(uint64(i), key, "file")
	}
	for seed := range uint64(200) {
		f.Add(seed, "wherry.dev/y", "z")
	}
	f.Fuzz(func(t *testing.T, seed uint64, key, value string) {
		if key == pod.AnnotationMirror {
			return // the API's pod claims to be a mirror, and this node does not run mirrors: see FuzzForgedMirror
		}
		r := rand.New(rand.NewPCG(seed, 7))
		plain, node := anyPod(r, "a"), &v1.Node{}
		neighbour := anyPod(r, "b")
		fuzzfill.Fill(node, r)
		ours := map[string]string{}
		for _, k := range reserved {
			if r.IntN(2) == 0 {
				ours[k] = values[r.IntN(len(values))]
			}
		}
		ours["kubernetes.io/config."+key], ours["wherry.dev/"+key] = value, value
		forged, forgedNeighbour := forge(plain, ours), forge(neighbour, ours)
		a := look(t, plain, neighbour, node)
		for name, b := range map[string]seen{
			"the pod": look(t, forged, neighbour, node), "its neighbour": look(t, plain, forgedNeighbour, node),
		} {
			if d := cmp.Diff(a, b, protocmp.Transform()); d != "" {
				t.Errorf("%s with %q: (-without +with)\n%s", name, ours, d)
			}
		}
	})
}

// FuzzForgedMirror checks that a pod that claims to be a mirror never runs, and that its content does not change the static pod
// that it claims to mirror, even if its hash is right.
func FuzzForgedMirror(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 8))
		static := anyPod(r, "static")
		static.Status = v1.PodStatus{Phase: v1.PodPending}
		static.Annotations = map[string]string{pod.AnnotationSource: "file", pod.AnnotationHash: "h"}
		mirror := anyPod(r, "mirror")
		mirror.Name = static.Name
		mirror.Annotations = map[string]string{pod.AnnotationMirror: []string{"h", "", "x"}[r.IntN(3)]}
		for i := range static.Spec.Containers { // give the mirror's statuses the names of containers that exist
			if i < len(mirror.Status.ContainerStatuses) {
				mirror.Status.ContainerStatuses[i].Name = static.Spec.Containers[i].Name
			}
		}
		with, without := New("node", []pod.Source{pod.SourceAPI, pod.SourceFile}, func(types.UID) {}), New("node", []pod.Source{pod.SourceAPI, pod.SourceFile}, func(types.UID) {})
		with.Upsert(pod.SourceAPI, mirror)
		for _, s := range []*Set{with, without} {
			s.Upsert(pod.SourceFile, static)
		}
		if p, _ := with.Get(mirror.UID); p != nil || len(with.List()) != 1 {
			t.Error("the mirror is wanted as a pod")
		}
		a, _ := without.Get(static.UID)
		b, _ := with.Get(static.UID)
		x, y := decisionsAbout(t, a), decisionsAbout(t, b)
		for _, j := range []*decisions{&x, &y} { // not compared: the mirror's old statuses of removed containers may be among these
			j.Status.ContainerStatuses, j.Status.InitContainerStatuses = nil, nil
		}
		if d := cmp.Diff(x, y, protocmp.Transform()); d != "" {
			t.Errorf("the content of a mirror changes a decision (-without +with):\n%s", d)
		}
	})
}

func anyPod(r *rand.Rand, uid string) *v1.Pod {
	p := &v1.Pod{}
	fuzzfill.Fill(p, r)
	p.UID, p.Name, p.Namespace = types.UID(uid), uid, "ns"
	delete(p.Annotations, pod.AnnotationMirror)
	// The downward API may show the added annotations, so environment variables from it are left out.
	for i := range p.Spec.Containers {
		p.Spec.Containers[i].Env, p.Spec.Containers[i].EnvFrom = nil, nil
	}
	return p
}

// forge returns the pod with annotations and labels added to its own.
func forge(p *v1.Pod, with map[string]string) *v1.Pod {
	out := p.DeepCopy()
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	for k, v := range with {
		out.Annotations[k], out.Labels[k] = v, v
	}
	return out
}

// seen holds all decisions about a pod of the API and its neighbour.
type seen struct {
	Admitted, Resized string
	Preempts          []types.UID
	Source            pod.Source
	Static, Unwanted  bool
	Pod               decisions
}

// decisions holds the decisions about one pod.
type decisions struct {
	Class, SpecClass v1.PodQOSClass
	Critical         bool
	Plan             string
	Status           v1.PodStatus
	Attempt          []string
	Containers       []*runtimeapi.ContainerConfig
	Linux            *runtimeapi.LinuxPodSandboxConfig
	Sandbox          map[string]string
	Allocated        *pod.Allocation
}

func look(t *testing.T, p, neighbour *v1.Pod, node *v1.Node) seen {
	t.Helper()
	set := New("node", []pod.Source{pod.SourceAPI, pod.SourceFile}, func(types.UID) {})
	set.Replace(pod.SourceFile, nil)
	set.Replace(pod.SourceAPI, []*v1.Pod{p, neighbour})
	got, src := set.Get(p.UID)
	if got == nil {
		t.Fatal("the pod is not wanted")
	}
	other, _ := set.Get(neighbour.UID)
	in := admit.Input{Pod: got, Others: []*v1.Pod{other}, Node: node, AppArmor: true, Pressure: []v1.NodeConditionType{v1.NodeMemoryPressure}}
	out := seen{Source: src, Static: pod.IsStatic(got), Unwanted: set.Unwanted(pod.RefOf(p)), Pod: decisionsAbout(t, got)}
	for range 2 {
		r := admit.Admit(in)
		out.Admitted += fmt.Sprintf("%v %s %s; ", r.OK, r.Reason, r.Message)
		for _, v := range r.Preempt {
			out.Preempts = append(out.Preempts, v.UID)
		}
		in.Pressure = nil
	}
	less := got.DeepCopy()
	for i := range less.Spec.Containers {
		less.Spec.Containers[i].Resources.Requests = nil
	}
	r := admit.Resize(admit.ResizeInput{Pod: got, Allocated: less, Others: []*v1.Pod{other}, Node: node})
	out.Resized = fmt.Sprintf("%v %s %s", r.OK, r.Reason, r.Message)
	for _, v := range r.Preempt {
		out.Preempts = append(out.Preempts, v.UID)
	}
	return out
}

// now is later than all times of fuzzfill.
var now = time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)

func decisionsAbout(t *testing.T, p *v1.Pod) decisions {
	t.Helper()
	policy := decide.DefaultPolicy()
	memory := decide.Memory{Grant: decide.Grant{Admitted: true, StartTime: now.Add(-time.Minute)}, PodTries: decide.PodTries{SetUp: true}}
	plan := decide.Decide(&decide.Input{
		Pod: p, Observed: &pod.Observed{Ref: pod.RefOf(p), Began: now}, Memory: &memory, Node: decide.Node{NetworkReady: true, SourcesReady: true}, Policy: &policy, Now: now,
	})
	out := decisions{
		Class: crispec.QOS(p), SpecClass: crispec.SpecQOS(p), Critical: crispec.IsCritical(p), Plan: fmt.Sprintf("%v %v %v", plan.Do, plan.Phase, plan.Ended),
		Allocated: pod.AllocationFromStatus(p),
	}
	st := podstatus.Derive(podstatus.Input{Pod: p, Observed: &pod.Observed{}, Memory: &memory, Plan: &plan, Now: now})
	out.Status = v1.PodStatus{Phase: st.Phase, Reason: st.Reason, Message: st.Message, QOSClass: st.QOSClass, ContainerStatuses: st.ContainerStatuses, InitContainerStatuses: st.InitContainerStatuses}
	in := crispec.SandboxInput{Pod: p, Hostname: "h", Policy: crispec.DefaultPolicy()}
	if c, err := crispec.Sandbox(in); err == nil {
		out.Linux = c.Linux
		out.Sandbox = map[string]string{"name": c.Metadata.Name, "namespace": c.Metadata.Namespace, "uid": c.Metadata.Uid, "logs": c.LogDirectory}
		for _, k := range []string{pod.LabelPodName, pod.LabelPodNamespace, pod.LabelPodUID} {
			out.Sandbox[k] = c.Labels[k]
		}
	}
	for c := range crispec.Containers(p) {
		out.Attempt = append(out.Attempt, crispec.SpecHash(p, c), crispec.Kind(p, c.Name))
		if m, err := crispec.Container(crispec.ContainerInput{Pod: p, Container: c, Policy: crispec.DefaultPolicy()}); err == nil {
			out.Containers = append(out.Containers, m)
		}
	}
	return out
}
