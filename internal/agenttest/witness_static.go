package agenttest

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// annotationVersion tells which version of its manifest a static pod is.
const annotationVersion = "agenttest/version"

// manifestSeen is what the directory of static pods says of one full name.
type manifestSeen struct {
	pod     *v1.Pod // nil: there is none
	version string
	since   time.Time
	torn    bool // half of the file is written: what it said before may have come and gone unread
}

// staticSeen is a static pod that the runtime was asked to run.
type staticSeen struct {
	name    string // the full one
	version string
	pod     *v1.Pod
	overAt  time.Time // when its manifest was gone, or another one, for the first time since it began
	anew    bool      // something of it began anew, of which its mirror may not have told yet
}

// manifest notes what the directory says from now on of a full name (namespace/name); a nil pod: nothing.
func (w *Witness) manifest(fullName string, p *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &manifestSeen{pod: p, since: time.Now()}
	if p != nil {
		m.version = p.Annotations[annotationVersion]
		w.versions[m.version] = p
	}
	w.manifests[fullName] = m
	for _, st := range w.statics {
		if st.name == fullName && st.version != m.version && st.overAt.IsZero() {
			st.overAt = time.Now()
		}
	}
}

// tear notes that the file of a full name is only half written, or whole again.
func (w *Witness) tear(fullName string, torn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.manifests[fullName]
	m.torn, m.since = torn, time.Now()
}

// Manifests are the versions of all manifests that there are, by the full name of their pod.
func (w *Witness) Manifests() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]string{}
	for name, m := range w.manifests {
		if m.pod != nil {
			out[name] = m.version
		}
	}
	return out
}

// staticOf is what is seen of a static pod, from the first that was asked for it.
func (w *Witness) staticOf(uid types.UID, fullName, version string) {
	if w.statics[uid] != nil {
		return
	}
	st := &staticSeen{name: fullName, version: version, pod: w.versions[version]}
	if m := w.manifests[fullName]; m.version != version { // it changed while the first step was under way
		st.overAt = m.since
	}
	w.statics[uid] = st
}

// manifestKnown is when the agent had to know that a static pod's manifest is gone or another one; zero: it need not.
// It reads the files when it starts and at times after, and what has changed once more.
func (w *Witness) manifestKnown(st *staticSeen) time.Time {
	m := w.manifests[st.name]
	if m.version == st.version || m.torn {
		return time.Time{}
	}
	if m.since.Before(w.agentAt) {
		return w.agentAt.Add(time.Second)
	}
	return m.since.Add(w.rereads + time.Second)
}

// staticGone forgets a static pod of which nothing is left, and, once its manifest was gone, a container of which nothing is:
// what goes for that goes even when the manifest is put back, which makes the same pod anew; and where the disk was full no
// checkpoint tells what there was.
func (w *Witness) staticGone(uid types.UID) {
	st := w.statics[uid]
	if st == nil {
		return
	}
	sandbox := false
	for _, s := range w.sandboxes {
		sandbox = sandbox || s.uid == uid
	}
	if sandbox && st.overAt.IsZero() {
		return
	}
	left := map[string]bool{}
	for _, c := range w.containers {
		if c.UID == uid {
			left[c.Name] = true
		}
	}
	for key := range w.newestOf {
		if name, its := strings.CutPrefix(key, string(uid)+"/"); its && !left[name] {
			delete(w.newestOf, key)
			st.anew = true
			w.beganAnew[uid] = true
		}
	}
	if !sandbox && len(left) == 0 {
		st.overAt = time.Time{}
		if m := w.manifests[st.name]; m.version != st.version {
			st.overAt = m.since
		}
	}
}
