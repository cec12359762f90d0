package podstatus_test

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
	"github.com/wherry-node/wherry/internal/proof/fuzzfill"
)

// FuzzDerive derives the status of arbitrary pods, observations, memories and plans. Two calls return the same status and change
// no input. Each container has one status with one state, and no pod with a living container has a terminal phase.
func FuzzDerive(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		in, same := anyInput(seed), anyInput(seed)
		st := podstatus.Derive(in)
		if !reflect.DeepEqual(in, same) {
			t.Error("Derive wrote to its input")
		}
		if again := podstatus.Derive(same); !reflect.DeepEqual(st, again) {
			t.Errorf("the same input gives another status: %v, %v", st, again)
		}
		if _, err := json.Marshal(st); err != nil {
			t.Errorf("the status cannot be sent: %v", err)
		}
		rejected := in.Memory.Stop != nil && in.Memory.Stop.Rejected
		if n := len(in.Pod.Spec.Containers); len(st.ContainerStatuses) != n && !rejected {
			t.Errorf("%d statuses for %d containers", len(st.ContainerStatuses), n)
		}
		for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses) {
			n := 0
			for _, set := range []bool{c.State.Waiting != nil, c.State.Running != nil, c.State.Terminated != nil} {
				if set {
					n++
				}
			}
			if n != 1 {
				t.Errorf("container %s has %d states", c.Name, n)
			}
		}
		was := in.Pod.Status.Phase
		if in.Old != nil {
			was = in.Old.Phase
		}
		terminal := st.Phase == v1.PodFailed || st.Phase == v1.PodSucceeded
		if terminal && st.Phase != was && !rejected && !in.Plan.Ended && in.Observed.AnyAlive() {
			t.Errorf("phase %s while a container lives", st.Phase)
		}
	})
}

func anyInput(seed uint64) podstatus.Input {
	r := rand.New(rand.NewPCG(seed, 1))
	in := podstatus.Input{Pod: &v1.Pod{}, Observed: &pod.Observed{}, Memory: &decide.Memory{}, Plan: &decide.Plan{}, RuntimeName: "sim", Now: epoch}
	fuzzfill.Fill(in.Pod, r)
	fuzzfill.Fill(in.Observed, r)
	fuzzfill.Fill(in.Memory, r)
	fuzzfill.Fill(in.Plan, r)
	if r.IntN(2) == 0 {
		in.Old = &v1.PodStatus{}
		fuzzfill.Fill(in.Old, r)
	}
	fuzzfill.Fill(&in.HostIPs, r)
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h"} // the API makes sure that no two names are equal
	give := func(name *string) { *name, names = names[0], names[1:] }
	for i := range in.Pod.Spec.Containers {
		give(&in.Pod.Spec.Containers[i].Name)
	}
	for i := range in.Pod.Spec.InitContainers {
		give(&in.Pod.Spec.InitContainers[i].Name)
	}
	for i := range in.Pod.Spec.EphemeralContainers {
		give(&in.Pod.Spec.EphemeralContainers[i].Name)
	}
	for i := range in.Observed.Containers {
		c := &in.Observed.Containers[i]
		c.Name, c.State = []string{"a", "b", "c", "d"}[r.IntN(4)], pod.ContainerState(r.IntN(4))
	}
	for i := range in.Memory.Containers {
		in.Memory.Containers[i].Name = []string{"a", "b", "c", "d"}[r.IntN(4)]
	}
	return in
}
