package stats

import (
	"cmp"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// These constants bound how many containers kills remembers: maxKilledAttempts of one container of a pod, maxKilled of all pods. A pod may
// reach its limit again and again.
const (
	maxKilledAttempts = 4
	maxKilled         = 1000
)

// kills counts for each container the processes that the kernel killed because memory ran out. The control group of a container counts them
// too, but most kills end the container, and its group and count go with it. So kills remembers the count of a container until its pod is
// forgotten. The count of one container never becomes smaller.
type kills struct {
	mu sync.Mutex
	of map[string]*killed // by container ID
	n  uint64             // how many containers were ever added
}

// killed is a container of which the kernel has killed a process.
type killed struct {
	added  uint64 // the value of kills.n when the container was added
	uid    types.UID
	labels labels
	count  uint64
}

// Killed records that the kernel killed a process of a container because memory ran out. group is the control group of the process, as the
// kernel wrote it. Killed does no IO.
func (s *Stats) Killed(ref pod.Ref, c *pod.Container, group string) {
	l := labels{c.Name, containerGroup(group, s.cfg.PodsGroup, c.ID), c.Image, c.ID, ref.Namespace, ref.Name}
	s.kills.mu.Lock()
	defer s.kills.mu.Unlock()
	s.kills.entry(ref.UID, l).count++
}

// containerGroup returns the control group of a container below the mount point, from the group of one of its processes. The kernel may
// have written more in front, if the agent runs in a cgroup namespace of its own, and more behind, if the container has made groups.
func containerGroup(group, podsGroup, id string) string {
	if at := strings.Index(group, podsGroup+"/"); at > 0 {
		group = group[at:]
	}
	names := strings.Split(group, "/")
	for i := range names {
		if containerID(names[i]) == id {
			return strings.Join(names[:i+1], "/")
		}
	}
	return group
}

// measured takes the count of a running container's control group. It returns the count that the metric shows: the control group also has
// the kills from before the agent's start, and kills has those of the groups below, which the kernel does not count together in cgroup v1.
func (k *kills) measured(uid types.UID, l labels, count uint64) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if count == 0 && k.of[l[3]] == nil {
		return 0
	}
	e := k.entry(uid, l)
	e.count = max(e.count, count)
	return e.count
}

// rest drops the containers of pods that do not exist any more, and returns the others that are not in counted, the oldest first.
func (k *kills) rest(counted map[string]bool, exists map[types.UID]bool) (out []killed) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, e := range k.of {
		switch {
		case !exists[e.uid]:
			delete(k.of, id)
		case !counted[id]:
			out = append(out, *e)
		}
	}
	inorder.Sort(out, func(a, b killed) int { return cmp.Compare(a.added, b.added) })
	return out
}

// entry returns the entry of a container. If there is none, it adds one, and drops the oldest if there are too many. The caller holds k.mu.
func (k *kills) entry(uid types.UID, l labels) *killed {
	if e := k.of[l[3]]; e != nil {
		return e
	}
	k.drop(maxKilledAttempts, func(e *killed) bool { return e.uid == uid && e.labels[0] == l[0] })
	k.drop(maxKilled, func(*killed) bool { return true })
	k.n++
	e := &killed{added: k.n, uid: uid, labels: l}
	k.of[l[3]] = e
	return e
}

// drop removes the oldest of the entries that match, if there are most of them already. The caller holds k.mu.
func (k *kills) drop(most int, match func(*killed) bool) {
	oldest, n := "", 0
	for id, e := range k.of {
		if !match(e) {
			continue
		}
		if n++; oldest == "" || e.added < k.of[oldest].added {
			oldest = id
		}
	}
	if n >= most {
		delete(k.of, oldest)
	}
}
