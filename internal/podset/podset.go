package podset

import (
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/pod"
)

// Set is the merged set of desired pods. Create it with New.
type Set struct {
	notify func(types.UID)
	none   bool // no source is configured

	mu      sync.RWMutex
	waiting map[pod.Source]bool // configured sources that have not answered yet
	pods    map[types.UID]held
	mirrors map[string]*v1.Pod // by full name
}

type held struct {
	pod    *v1.Pod
	source pod.Source
}

// New returns a Set that becomes Ready when each of the sources has answered once. notify is called, outside the
// lock, with the UID of every pod that was added, changed or removed, and with "" when the set becomes Ready.
func New(sources []pod.Source, notify func(types.UID)) *Set {
	s := &Set{notify: notify, none: len(sources) == 0, waiting: map[pod.Source]bool{}, pods: map[types.UID]held{}, mirrors: map[string]*v1.Pod{}}
	for _, src := range sources {
		s.waiting[src] = true
	}
	return s
}

// Replace puts the whole state of one source: what it had and has no more is gone.
func (s *Set) Replace(src pod.Source, pods []*v1.Pod) {
	s.mu.Lock()
	var changed []types.UID
	keep := make(map[types.UID]bool, len(pods))
	mirrors := map[string]bool{}
	for _, p := range pods {
		keep[p.UID] = true
		if src == pod.SourceAPI && pod.IsMirror(p) {
			mirrors[pod.RefOf(p).FullName()] = true
		}
		changed = s.put(src, p, changed)
	}
	for uid, h := range maps.All(s.pods) {
		if h.source == src && !keep[uid] {
			delete(s.pods, uid)
			changed = append(changed, uid)
		}
	}
	if src == pod.SourceAPI {
		for name := range maps.All(s.mirrors) {
			if !mirrors[name] {
				changed = s.dropMirror(name, changed)
			}
		}
	}
	ready := s.waiting[src] && len(s.waiting) == 1
	delete(s.waiting, src)
	s.mu.Unlock()
	s.tell(changed)
	if ready {
		s.notify("")
	}
}

// Upsert puts one pod of a source.
func (s *Set) Upsert(src pod.Source, p *v1.Pod) {
	s.mu.Lock()
	changed := s.put(src, p, nil)
	s.mu.Unlock()
	s.tell(changed)
}

// Delete removes one pod of a source. A pod that another source owns by now stays.
func (s *Set) Delete(src pod.Source, p *v1.Pod) {
	s.mu.Lock()
	var changed []types.UID
	if h, ok := s.pods[p.UID]; ok && h.source == src {
		delete(s.pods, p.UID)
		changed = append(changed, p.UID)
	}
	if name := pod.RefOf(p).FullName(); src == pod.SourceAPI && s.mirrors[name] != nil && s.mirrors[name].UID == p.UID {
		changed = s.dropMirror(name, changed)
	}
	s.mu.Unlock()
	s.tell(changed)
}

// put and dropMirror are called with the lock held and return changed with the UIDs to notify appended.
func (s *Set) put(src pod.Source, p *v1.Pod, changed []types.UID) []types.UID {
	if src == pod.SourceAPI && pod.IsMirror(p) {
		name := pod.RefOf(p).FullName()
		s.mirrors[name] = p
		return s.appendNamed(name, changed)
	}
	s.pods[p.UID] = held{pod: p, source: src}
	return append(changed, p.UID)
}

func (s *Set) dropMirror(name string, changed []types.UID) []types.UID {
	delete(s.mirrors, name)
	return s.appendNamed(name, changed)
}

// appendNamed appends the static pods that a mirror's name stands for.
func (s *Set) appendNamed(name string, changed []types.UID) []types.UID {
	for uid, h := range s.pods {
		if h.source != pod.SourceAPI && pod.RefOf(h.pod).FullName() == name {
			changed = append(changed, uid)
		}
	}
	return changed
}

func (s *Set) tell(uids []types.UID) {
	for _, uid := range uids {
		s.notify(uid)
	}
}

// Get returns the desired pod of a UID, or nil.
func (s *Set) Get(uid types.UID) (*v1.Pod, pod.Source) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	h := s.pods[uid]
	return h.pod, h.source
}

// Mirror returns the mirror of a static pod as the API has it, or nil.
func (s *Set) Mirror(p *v1.Pod) *v1.Pod {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.mirrors[pod.RefOf(p).FullName()]
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

// Ready reports whether every configured source has answered once: until then nothing may be stopped for being
// unwanted. Without any source nobody can say that a pod is unwanted, so it never is.
func (s *Set) Ready() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return !s.none && len(s.waiting) == 0
}
