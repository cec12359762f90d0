package syncloop

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// rename stores the full name of a worker's pod once it is known. It is called with the lock held.
func (l *Loop) rename(m *member, ref pod.Ref) {
	if m.name == "" && ref.Name != "" {
		m.name = ref.FullName()
		l.names[m.name]++
	}
}

// meet creates a worker for every pod of the same name that the runtime holds. After the start of the agent, pods get their
// workers in any order, so a predecessor may not have one yet.
func (l *Loop) meet(ref pod.Ref) {
	l.mu.Lock()
	me := l.workers[ref.UID]
	met := me == nil || me.met || ref.Name == ""
	l.mu.Unlock()
	if met || !l.cfg.Cache.Synced() {
		return
	}
	for _, o := range l.cfg.Cache.List() {
		if o.Ref.UID != ref.UID && o.Ref.Name == ref.Name && o.Ref.Namespace == ref.Namespace && !o.Empty() {
			l.Look(o.Ref.UID, "another pod has its name")
			l.mu.Lock()
			if m := l.workers[o.Ref.UID]; m != nil {
				l.rename(m, o.Ref)
			}
			l.mu.Unlock()
		}
	}
	l.mu.Lock()
	me.met = true
	l.mu.Unlock()
}

// predecessor reports whether another pod of the same full name still has something on the node, and takes precedence because no
// source has it any more, or because its worker is older.
func (l *Loop) predecessor(ref pod.Ref) bool {
	l.meet(ref)
	l.mu.Lock()
	defer l.mu.Unlock()
	me := l.workers[ref.UID]
	if me == nil {
		return false
	}
	l.rename(me, ref)
	if !l.met { // not every pod of the runtime has a worker yet; when they do, all workers look again
		return true
	}
	me.waits = false
	if l.names[me.name] < 2 {
		return false
	}
	for uid, o := range l.workers {
		if uid == ref.UID || o.idle || o.name != me.name {
			continue
		}
		if desired, _ := l.cfg.Pods.Get(uid); desired == nil || o.seq < me.seq {
			me.waits = true
		}
	}
	return me.waits
}

// Ends reports whether something of a pod with this full name is still on the node, without regard to the pod with the UID except. Until
// the runtime has been listed, Ends returns true.
func (l *Loop) Ends(fullName string, except types.UID) bool {
	if !l.cfg.Cache.Synced() {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for uid, o := range l.workers {
		if uid != except && o.name == fullName && !o.idle {
			return true
		}
	}
	return false
}

// wakeWaiting wakes the workers of all pods that wait for a predecessor, or for other pods to make room.
func (l *Loop) wakeWaiting() {
	l.mu.Lock()
	var waiting []*member
	for _, m := range l.workers {
		if m.waits {
			waiting = append(waiting, m)
		}
	}
	l.mu.Unlock()
	for _, m := range waiting {
		m.Look("a pod has ended, and it may be the one that this pod waits for")
	}
}
