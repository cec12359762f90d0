package decide_test

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

func (w *world) clone() *world {
	c := *w
	c.mem, c.said = w.mem.Clone(), slices.Clone(w.said)
	c.sandboxes, c.containers, c.flights = slices.Clone(w.sandboxes), slices.Clone(w.containers), slices.Clone(w.flights)
	c.records, c.fates, c.health = slices.Clone(w.records), slices.Clone(w.fates), slices.Clone(w.health)
	c.given = maps.Clone(w.given)
	c.broken = nil
	return &c
}

func (k *keyer) world(w *world) {
	k.bools(w.old, w.dirty, w.vols, w.dirs, w.pod == nil, w.want == nil, w.terminal, w.status == nil, w.down, w.orphaned, w.evicted,
		w.vanished, w.again, w.node.NetworkReady, w.node.SourcesReady, w.node.Predecessor)
	k.str(w.initialized)
	k.rel(w.endBegan)
	k.num(int64(w.asked))
	if p := w.pod; p != nil {
		k.pod(p)
	} else if w.want != nil {
		k.pod(w.want)
	}
	if w.pod != nil && w.pod.Spec.ActiveDeadlineSeconds != nil {
		k.rel(w.mem.StartTime)
	}
	k.runtime(w.sandboxes, w.containers)
	if w.dirty {
		k.runtime(w.observed.Sandboxes, w.observed.Containers)
	}
	if w.sized {
		k.sizes(w)
	}
	for _, f := range w.flights {
		a := f.action
		k.size(a.Size)
		k.num(int64(a.Op))
		k.str(a.Container)
		k.str(a.ID)
		k.num(int64(a.Attempt))
		k.num(int64(a.Grace))
		k.bools(f.canceled, f.condemned)
		if a.Op == pod.OpPreStop {
			k.rel(f.began)
		}
	}
	for _, h := range w.health {
		k.str(h.id)
		k.bools(h.started, h.ready, h.sick)
	}
	for _, p := range w.said {
		k.str(p.ID)
		k.bools(p.Started, p.Ready)
		k.str(string(p.Failed.Cause))
	}
	k.memory(&w.mem)
	k.memory(&w.saved)
	k.books(w)
}

func (k *keyer) size(s pod.Size) {
	for _, n := range [...]int64{s.CPURequest, s.CPULimit, s.MemoryRequest, s.MemoryLimit} {
		k.num(n)
	}
}

func (k *keyer) sizes(w *world) {
	k.size(w.group)
	for _, s := range w.sizes() {
		k.size(s.Size)
	}
	for i := range w.containers {
		k.size(w.given[w.containers[i].ID])
	}
	for i := range w.observed.Containers {
		k.size(w.observed.Containers[i].Actual)
	}
}

func (k *keyer) pod(p *v1.Pod) {
	k.bools(p.DeletionTimestamp != nil)
	k.str(string(p.Status.Phase))
	if g := p.DeletionGracePeriodSeconds; g != nil {
		k.num(*g)
	}
	for i := range p.Spec.Containers {
		k.str(p.Spec.Containers[i].Image)
	}
	k.num(int64(len(p.Spec.EphemeralContainers)))
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range list {
			st := &list[i]
			k.num(int64(st.RestartCount))
			k.bools(st.State.Running != nil, st.State.Terminated != nil, st.LastTerminationState.Terminated != nil, st.Ready,
				st.Started != nil && *st.Started)
			if t := st.State.Terminated; t != nil {
				k.num(int64(t.ExitCode))
			}
			k.str(st.ContainerID)
		}
	}
}

func (k *keyer) runtime(sandboxes []pod.Sandbox, containers []pod.Container) {
	k.num(int64(len(sandboxes)))
	for i := range sandboxes {
		k.str(sandboxes[i].ID)
		k.bools(sandboxes[i].Ready, len(sandboxes[i].IPs) > 0)
	}
	k.num(int64(len(containers)))
	for i := range containers {
		c := &containers[i]
		k.str(c.ID)
		k.num(int64(c.State))
		k.str(c.SandboxID)
		k.num(int64(c.ExitCode))
		k.str(c.SpecHash)
		k.rel(c.FinishedAt)
	}
}

func (k *keyer) memory(m *decide.Memory) {
	k.bools(m.Admitted, m.Finished, m.Orphaned, m.SetUp, m.Outdated, m.TornDown, m.Forgotten, m.RestartingAll, m.RestartedAll, m.Stop != nil, m.Stop != nil && m.Stop.AtOnce, m.SandboxAttemptKnown)
	k.num(int64(m.StopGrace))
	k.bools(m.Resize.InProgress, m.Resize.Error != "", m.GroupSized)
	k.size(m.GroupSize)
	k.num(int64(m.SandboxAttempt))
	k.rel(m.StopBegan)
	for _, id := range m.StoppedSandboxes {
		k.str(id)
	}
	for _, r := range m.Retry {
		if r.Until.After(k.now) {
			k.num(int64(r.Op))
			k.str(r.ID)
			k.rel(r.Until)
		}
	}
	for _, e := range m.Ends {
		k.str(e.ID)
		k.str(string(e.Cause))
		k.num(int64(e.Grace))
		k.rel(e.Began)
		k.rel(e.Decided)
	}
	for i := range m.Containers {
		c := &m.Containers[i]
		k.str(c.Name)
		k.num(int64(c.CrashDelay))
		k.str(c.CrashedID)
		k.bools(c.Pulled, c.AttemptKnown, c.PostStartFailed, c.Stopped, c.SizeGiven)
		k.str(c.PulledImage)
		k.str(c.PullFailed)
		k.str(c.StartFailedID)
		k.num(int64(c.HighestAttempt))
		k.str(c.PostStartedID)
		k.str(c.PreStoppedID)
		k.str(c.StopID)
		k.str(c.ReplacedID)
		k.str(string(c.ReplacedFor))
		k.str(c.SizedID)
		k.size(c.Size)
		k.future(c.CrashUntil)
		k.future(c.PullUntil)
		k.future(c.StartUntil)
		k.future(c.StopUntil)
	}
}

// books adds the oracle's records to a state's key: those of every container name, and those of every container instance that still exists.
// The oracle is the part of these tests that knows the pod's true history.
func (k *keyer) books(w *world) {
	for i := range w.records {
		r := &w.records[i]
		k.str(r.name)
		k.num(int64(r.tried))
		k.num(int64(r.reserved))
		k.str(r.upIn)
		k.bools(r.ran, r.ended, r.replaced)
		k.str(r.sandbox)
		k.num(int64(r.code))
		k.num(int64(min(r.ends, 2)))
		k.rel(r.at)
	}
	for i := range w.fates {
		f := &w.fates[i]
		if w.byID(f.id) == nil {
			continue
		}
		k.str(f.id)
		k.bools(f.owed, f.resized, f.doomed, f.reason, f.termed, f.hookDone, f.postDone, f.condemned)
		k.num(int64(f.hooked))
		k.num(int64(f.postStarted))
		k.rel(f.killBegan)
		k.num(int64(f.killGrace))
	}
}
