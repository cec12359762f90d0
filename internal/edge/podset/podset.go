package podset

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Set is the merged set of desired pods. Create it with New.
type Set struct {
	notify func(types.UID)
	mirror func(fullName string)       // the function that OnMirror sets; may be nil
	spec   func(before, after *v1.Pod) // the function that OnSpec sets; may be nil
	none   bool                        // no source is configured
	suffix string                      // the node's name with a dash, with which the name of every static pod ends

	mu      sync.RWMutex
	waiting map[pod.Source]bool // configured sources that have not answered yet
	pods    map[types.UID]held
	// hidden are pods of which another source has one of the same UID, which counts (see put). When that source removes its pod, the hidden one counts.
	hidden  map[types.UID][]held
	mirrors map[string]*v1.Pod // mirror pods in the API by full name
	// removed contains the pods that their own source removed while another source had not answered yet or was in doubt (see Doubt). The
	// value is true if a part of the pod may be left on the node, and false if only its mirror is left. The map is nil when all
	// sources have answered and none is in doubt.
	removed map[types.UID]bool
	graces  map[types.UID]int64 // last grace periods of deleted pods, which LastGrace returns
	doubts  map[pod.Source]bool
	// recalled are the sources whose pods are known only from an earlier agent. Such a source is also in the map waiting.
	recalled map[pod.Source]bool
}

type held struct {
	pod    *v1.Pod
	source pod.Source
}

// New returns the Set of a node, which becomes Ready when each of the sources has answered once. notify is called, with no lock
// held, with the UID of every pod that was added, changed or removed, and with "" when the set becomes Ready.
func New(node string, sources []pod.Source, notify func(types.UID)) *Set {
	s := &Set{notify: notify, suffix: pod.StaticSuffix(node), none: len(sources) == 0, waiting: map[pod.Source]bool{}, pods: map[types.UID]held{}, hidden: map[types.UID][]held{}, mirrors: map[string]*v1.Pod{}, removed: map[types.UID]bool{}, graces: map[types.UID]int64{}, doubts: map[pod.Source]bool{}, recalled: map[pod.Source]bool{}}
	for _, src := range sources {
		s.waiting[src] = true
	}
	return s
}

// OnMirror sets f, which is called with no lock held. f gets the full name of every static pod and mirror pod that was added, changed
// or removed, and "" when the set becomes Ready. Call OnMirror before the first source begins.
func (s *Set) OnMirror(f func(fullName string)) { s.mirror = f }

// OnSpec sets f. f is called outside the lock with the old and the new object of a pod when a source sends the pod with another
// generation. Call OnSpec before the first source begins.
func (s *Set) OnSpec(f func(before, after *v1.Pod)) { s.spec = f }

// Mirrors returns the number of mirror pods that the API has for this node.
func (s *Set) Mirrors() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.mirrors)
}

// Doubt says whether a source is in doubt: it cannot tell whether it still has every pod that it had before this agent started,
// for example because a manifest cannot be read. A source in doubt calls Doubt before its first Replace, and ends the doubt after the Replace with
// the pods that it was about.
func (s *Set) Doubt(src pod.Source, doubt bool) {
	s.mu.Lock()
	var changed changes
	if s.doubts[src] && !doubt {
		delete(s.doubts, src)
		s.settled()
		changed.uids, changed.names = append(changed.uids, ""), append(changed.names, "")
	}
	if doubt {
		s.doubts[src] = true
	}
	s.mu.Unlock()
	s.tell(changed)
}

// changes collects the notifications that are sent after the lock is released.
type changes struct {
	uids  []types.UID
	names []string     // full names of static pods and mirrors
	specs [][2]*v1.Pod // old and new objects for OnSpec
}

// Replace stores the complete state of one source. A pod that the source had and that is not in pods is removed.
func (s *Set) Replace(src pod.Source, pods []*v1.Pod) {
	s.mu.Lock()
	var changed changes
	keep := make(map[types.UID]bool, len(pods))
	mirrors := map[string]bool{}
	for _, p := range pods {
		keep[p.UID] = true
		if src == pod.SourceAPI && pod.IsMirror(p) {
			mirrors[pod.RefOf(p).FullName()] = true
		}
		s.put(src, p, &changed)
	}
	for uid, h := range maps.All(s.pods) {
		if h.source == src && !keep[uid] {
			s.drop(uid, h, &changed)
		}
	}
	for uid := range s.hidden {
		if !keep[uid] {
			s.unhide(uid, src)
		}
	}
	if src == pod.SourceAPI {
		for name := range maps.All(s.mirrors) {
			if !mirrors[name] {
				s.dropMirror(name, &changed)
			}
		}
	}
	ready := s.waiting[src] && len(s.waiting) == 1
	delete(s.waiting, src)
	delete(s.recalled, src)
	if ready {
		s.settled()
		changed.uids, changed.names = append(changed.uids, ""), append(changed.names, "")
	}
	s.mu.Unlock()
	s.tell(changed)
}

// Recall stores the pods that a source had when it last answered an earlier agent. The source still counts as one that has not
// answered, so Unwanted does not yet report other pods as unwanted. The first Replace of the source removes and updates the recalled
// pods as usual. If the source has already answered, Recall stores nothing and returns false.
func (s *Set) Recall(src pod.Source, pods []*v1.Pod) bool {
	s.mu.Lock()
	if !s.waiting[src] {
		s.mu.Unlock()
		return false
	}
	var changed changes
	for _, p := range pods {
		s.put(src, p, &changed)
	}
	s.recalled[src] = true
	s.mu.Unlock()
	s.tell(changed)
	return true
}

// settled clears the map removed once every source has answered and none is in doubt. It is called with the lock held.
func (s *Set) settled() {
	if len(s.waiting) == 0 && len(s.doubts) == 0 {
		s.removed = nil
	}
}

// Upsert stores one pod of a source.
func (s *Set) Upsert(src pod.Source, p *v1.Pod) {
	s.mu.Lock()
	var changed changes
	s.put(src, p, &changed)
	s.mu.Unlock()
	s.tell(changed)
}

// Delete removes one pod of a source. If another source has stored the same pod since, the pod stays.
func (s *Set) Delete(src pod.Source, p *v1.Pod) {
	s.mu.Lock()
	var changed changes
	if h, ok := s.pods[p.UID]; ok && h.source == src {
		s.drop(p.UID, h, &changed)
		if grace := p.DeletionGracePeriodSeconds; grace != nil && p.DeletionTimestamp != nil {
			s.graces[p.UID] = *grace
		}
	} else {
		s.unhide(p.UID, src)
	}
	if name := pod.RefOf(p).FullName(); src == pod.SourceAPI && s.mirrors[name] != nil && s.mirrors[name].UID == p.UID {
		s.dropMirror(name, &changed)
	}
	s.mu.Unlock()
	s.tell(changed)
}

// put stores a pod. Like drop and dropMirror, it is called with the lock held.
func (s *Set) put(src pod.Source, p *v1.Pod, changed *changes) {
	name := pod.RefOf(p).FullName()
	if src == pod.SourceAPI && pod.IsMirror(p) {
		s.mirrors[name] = p
		s.mirrorChanged(name, changed)
		return
	}
	h, had := s.pods[p.UID]
	s.unhide(p.UID, src)
	switch { // if two sources claim one UID, the lower pod.Source wins, because no source may take over a pod of another source
	case had && h.source < src:
		s.hidden[p.UID] = append(s.hidden[p.UID], held{p, src})
		return
	case had && h.source > src:
		s.hidden[p.UID] = append(s.hidden[p.UID], h)
	}
	if had && s.spec != nil && h.pod.Generation != p.Generation {
		changed.specs = append(changed.specs, [2]*v1.Pod{h.pod, p})
	}
	p = pod.From(src, p)
	if src != pod.SourceAPI {
		p = withStatusOf(s.mirrors[name], p)
		changed.names = append(changed.names, name)
	}
	delete(s.removed, p.UID)
	delete(s.graces, p.UID)
	s.pods[p.UID] = held{pod: p, source: src}
	changed.uids = append(changed.uids, p.UID)
}

func (s *Set) drop(uid types.UID, h held, changed *changes) {
	delete(s.pods, uid)
	if s.removed != nil {
		s.removed[uid] = true
	}
	changed.uids = append(changed.uids, uid)
	if h.source != pod.SourceAPI {
		changed.names = append(changed.names, pod.RefOf(h.pod).FullName())
	}
	if others := s.hidden[uid]; len(others) > 0 {
		next := slices.MinFunc(others, func(a, b held) int { return cmp.Compare(a.source, b.source) })
		s.put(next.source, next.pod, changed)
	}
}

// unhide forgets the hidden pod of a source. It is called with the lock held.
func (s *Set) unhide(uid types.UID, src pod.Source) {
	if s.hidden[uid] == nil {
		return
	}
	s.hidden[uid] = slices.DeleteFunc(s.hidden[uid], func(h held) bool { return h.source == src })
	if len(s.hidden[uid]) == 0 {
		delete(s.hidden, uid)
	}
}

func (s *Set) dropMirror(name string, changed *changes) {
	if uid := mirrored(s.mirrors[name]); s.wasRemoved(uid) && !s.removed[uid] {
		delete(s.removed, uid)
	}
	delete(s.mirrors, name)
	s.mirrorChanged(name, changed)
}

// mirrorChanged updates the static pods with this full name after their mirror has changed.
func (s *Set) mirrorChanged(name string, changed *changes) {
	changed.names = append(changed.names, name)
	for uid, h := range s.pods {
		if h.source == pod.SourceAPI || pod.RefOf(h.pod).FullName() != name {
			continue
		}
		h.pod = withStatusOf(s.mirrors[name], h.pod)
		s.pods[uid] = h
		changed.uids = append(changed.uids, uid)
	}
}

// withStatusOf copies a part of the mirror's status to a static pod: its start time, its conditions (other components set
// readiness gates), and which containers had started and were ready. It copies nothing else, because anybody who may write
// pod statuses in that namespace may write the mirror's: a mirror must not end a static pod, start it twice, or give it
// resources or a QoS class.
func withStatusOf(mirror, p *v1.Pod) *v1.Pod {
	if mirror == nil || mirror.Status.StartTime == nil || !pod.Mirrors(mirror, p) {
		return p
	}
	out := *p
	out.Status = v1.PodStatus{
		Phase: v1.PodPending, StartTime: mirror.Status.StartTime, Conditions: mirror.Status.Conditions,
		InitContainerStatuses: readiness(mirror.Status.InitContainerStatuses), ContainerStatuses: readiness(mirror.Status.ContainerStatuses),
	}
	return &out
}

// readiness copies the container statuses that have a container ID. Of each status it copies only the name, the ID, and whether the
// container had started and was ready.
func readiness(in []v1.ContainerStatus) []v1.ContainerStatus {
	var out []v1.ContainerStatus
	for i := range in {
		if in[i].ContainerID != "" {
			out = append(out, v1.ContainerStatus{Name: in[i].Name, ContainerID: in[i].ContainerID, Started: in[i].Started, Ready: in[i].Ready})
		}
	}
	return out
}

func (s *Set) tell(c changes) {
	for _, both := range c.specs {
		s.spec(both[0], both[1])
	}
	for _, uid := range c.uids {
		s.notify(uid)
	}
	if s.mirror == nil {
		return
	}
	for _, name := range c.names {
		s.mirror(name)
	}
}

// Get returns the desired pod of a UID, or nil.
func (s *Set) Get(uid types.UID) (*v1.Pod, pod.Source) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	h := s.pods[uid]
	return h.pod, h.source
}

// LastGrace returns the grace period, in seconds, of a pod that has left the set while it was being deleted, as its source last
// set it; nil: the pod was not being deleted. The set remembers it until Forget is called.
func (s *Set) LastGrace(uid types.UID) *int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if grace, ok := s.graces[uid]; ok {
		return &grace
	}
	return nil
}

// Forget drops the state of a pod that has left the set and of which nothing is left on the node. As long as the pod's mirror
// exists, the set still remembers that the pod was removed, because the mirror has to be deleted too.
func (s *Set) Forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.graces, uid)
	if !s.wasRemoved(uid) {
		return
	}
	for _, m := range s.mirrors {
		if mirrored(m) == uid {
			s.removed[uid] = false
			return
		}
	}
	delete(s.removed, uid)
}

func (s *Set) wasRemoved(uid types.UID) bool {
	_, ok := s.removed[uid]
	return ok
}

// mirrored returns the UID of the static pod that a mirror shows.
func mirrored(mirror *v1.Pod) types.UID { return types.UID(mirror.Annotations[pod.AnnotationMirror]) }

// Mirror returns the mirror of a static pod in the API, or nil. It ignores a mirror that belongs to an earlier manifest.
func (s *Set) Mirror(p *v1.Pod) *v1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if m := s.mirrors[pod.RefOf(p).FullName()]; m != nil && pod.Mirrors(m, p) {
		return m
	}
	return nil
}

// Static returns the static pods of a full name, sorted by UID, and the mirror (nil: there is none). There are several static pods if several
// sources have one of this name; at most one of them runs at a time.
func (s *Set) Static(fullName string) (statics []*v1.Pod, mirror *v1.Pod) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.pods {
		if h.source != pod.SourceAPI && pod.RefOf(h.pod).FullName() == fullName {
			statics = append(statics, h.pod)
		}
	}
	slices.SortFunc(statics, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) })
	return statics, s.mirrors[fullName]
}

// StaticNames returns the full names of all static pods and mirrors.
func (s *Set) StaticNames() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	names := map[string]bool{}
	for name := range s.mirrors {
		names[name] = true
	}
	for _, h := range s.pods {
		if h.source != pod.SourceAPI {
			names[pod.RefOf(h.pod).FullName()] = true
		}
	}
	return slices.Collect(maps.Keys(names))
}

// Unwanted reports whether a pod is absent from the set and may therefore be stopped: every source has answered, or the
// pod's own source has removed it. It checks the set again, because a source may have answered since the caller looked.
//
// While a source is in doubt (see Doubt), a static pod may be stopped only if a pod of another UID now has its name. The runtime
// does not record the source of a pod. A static pod is recognized by its name, which ends with the node's name, or by
// its UID: the API assigns UUIDs, and a node assigns UIDs without dashes unless the manifest names one.
func (s *Set) Unwanted(ref pod.Ref) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, wanted := s.pods[ref.UID]
	switch {
	case wanted:
		return false
	case s.wasRemoved(ref.UID):
		return true
	case s.none || len(s.waiting) > 0:
		return false
	case len(s.doubts) == 0 || strings.Contains(string(ref.UID), "-") && !strings.HasSuffix(ref.Name, s.suffix):
		return true
	}
	for _, h := range s.pods {
		if h.source != pod.SourceAPI && pod.RefOf(h.pod).FullName() == ref.FullName() {
			return true
		}
	}
	return false
}

// Answered reports whether a source has answered, or is not configured.
func (s *Set) Answered(src pod.Source) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.waiting[src]
}

// List returns the desired pods, oldest first.
func (s *Set) List() []*v1.Pod {
	s.mu.RLock()
	out := make([]*v1.Pod, 0, len(s.pods))
	for _, h := range s.pods {
		out = append(out, h.pod)
	}
	s.mu.RUnlock()
	slices.SortFunc(out, func(a, b *v1.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		if a.UID < b.UID {
			return -1
		}
		return 1
	})
	return out
}

// Known reports whether the pods of every configured source are known, if only from an earlier agent.
func (s *Set) Known() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.none && len(s.waiting) == len(s.recalled)
}

// Awaits reports whether a configured source has not answered yet.
func (s *Set) Awaits() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.waiting) > 0
}

// Ready reports whether every configured source has answered once. Until then, a pod must not be stopped for the reason that no
// source has it. A node without any source is never Ready.
func (s *Set) Ready() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.none && len(s.waiting) == 0
}
