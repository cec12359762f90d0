package stats

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// The CPU counters of a node without control groups, and of its pods, never fall, and a node that runs nothing has used something: metrics-server
// drops a node whose counter falls or is 0. Each step is one reading.
func TestCountersWithoutControlGroupsNeverFall(t *testing.T) {
	t.Parallel()
	const second = uint64(1e9)
	type one struct {
		uid, sandbox string
		cpu          uint64            // seconds that the runtime reports of the sandbox; 0: only its containers are reported
		containers   map[string]uint64 // seconds of the running containers
	}
	type step struct {
		pods  []one
		fails bool              // the runtime does not answer
		node  uint64            // the seconds of the node; 0: the least
		each  map[string]uint64 // the seconds of pods, by UID
	}
	for name, steps := range map[string][]step{
		"a node without pods": {{}, {}},
		"a pod goes, and another comes": {
			{pods: []one{{"a", "sa", 5, nil}}, node: 5, each: map[string]uint64{"a": 5}},
			{pods: []one{{"a", "sa", 7, nil}, {"b", "sb", 1, nil}}, node: 8},
			{pods: []one{{"b", "sb", 2, nil}}, node: 9, each: map[string]uint64{"b": 2}},
			{node: 9},
			{pods: []one{{"c", "sc", 1, nil}}, node: 10},
		},
		"a pod gets another sandbox": {
			{pods: []one{{"a", "s1", 5, nil}}, node: 5},
			{pods: []one{{"a", "s2", 1, nil}}, node: 6, each: map[string]uint64{"a": 6}},
			{pods: []one{{"a", "s2", 3, nil}}, node: 8, each: map[string]uint64{"a": 8}},
		},
		"the runtime reports only containers, and one restarts": {
			{pods: []one{{"a", "sa", 0, map[string]uint64{"c1": 4, "d": 1}}}, node: 5, each: map[string]uint64{"a": 5}},
			{pods: []one{{"a", "sa", 0, map[string]uint64{"c2": 1, "d": 2}}}, node: 7, each: map[string]uint64{"a": 7}},
		},
		"the runtime does not answer in between": {
			{pods: []one{{"a", "sa", 5, nil}}, node: 5},
			{pods: []one{{"a", "sa", 6, nil}}, fails: true, node: 5},
			{pods: []one{{"a", "sa", 7, nil}}, node: 7, each: map[string]uint64{"a": 7}},
		},
		"the runtime learns to report sandboxes": {
			{pods: []one{{"a", "sa", 0, map[string]uint64{"c1": 4}}}, node: 4}, {pods: []one{{"a", "sa", 5, map[string]uint64{"c1": 4}}}, node: 5},
		},
		"a reading that is older than the last": {
			{pods: []one{{"a", "sa", 5, nil}}, node: 5}, {pods: []one{{"a", "sa", 4, nil}}, node: 5}, {pods: []one{{"a", "sa", 6, nil}}, node: 6},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var list pods
			stub := &runtimeStub{}
			s := newStats(t, func(c *Config) {
				c.HostRoot, c.Runtime, c.Pods = t.TempDir(), stub, podsFunc(func() []*pod.Observed { return list })
			})
			for i, st := range steps {
				list, *stub = nil, runtimeStub{}
				if st.fails {
					stub.err, stub.sandboxErr = errors.New("down"), errors.New("down")
				}
				for _, p := range st.pods {
					o := &pod.Observed{Ref: pod.Ref{Namespace: "default", Name: p.uid, UID: types.UID(p.uid)}, Sandboxes: []pod.Sandbox{{ID: p.sandbox, Ready: true, CreatedAt: at(-100)}}}
					for id, used := range p.containers {
						o.Containers = append(o.Containers, pod.Container{ID: id, Name: id[:1], Attempt: uint32(id[len(id)-1]), State: pod.StateRunning, CreatedAt: at(-51), StartedAt: at(-50)})
						stub.containers = append(stub.containers, &runtimeapi.ContainerStats{
							Attributes: &runtimeapi.ContainerAttributes{Id: id}, Cpu: &runtimeapi.CpuUsage{UsageCoreNanoSeconds: number(used * second)},
						})
					}
					if p.cpu > 0 {
						stub.sandboxes = append(stub.sandboxes, &runtimeapi.PodSandboxStats{
							Attributes: &runtimeapi.PodSandboxAttributes{Id: p.sandbox},
							Linux:      &runtimeapi.LinuxPodSandboxStats{Cpu: &runtimeapi.CpuUsage{UsageCoreNanoSeconds: number(p.cpu * second)}},
						})
					}
					list = append(list, o)
				}
				r, err := s.collect(t.Context(), usageOnly)
				if (err != nil) != st.fails {
					t.Fatal(err)
				}
				if got := r.node.cpu.nanos; got != max(st.node*second, leastNodeCPU) {
					t.Errorf("reading %d: the node has used %d ns, want %d s", i, got, st.node)
				}
				if *r.node.memory.workingSet == 0 {
					t.Errorf("reading %d: the node seems to use no memory", i)
				}
				for j := range r.pods {
					p := &r.pods[j]
					want, ok := st.each[p.ref.Name]
					if ok && (p.usage.cpu == nil || p.usage.cpu.nanos != want*second) {
						t.Errorf("reading %d: pod %s has used %+v, want %d s", i, p.ref.Name, p.usage.cpu, want)
					}
				}
			}
		})
	}
}
