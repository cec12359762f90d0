package agenttest

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// annotationVersion names the version of the manifest that a static pod was made from.
const annotationVersion = "agenttest/version"

// manifestSeen is the manifest of one full name (namespace/name) in the directory of static pods.
type manifestSeen struct {
	pod     *v1.Pod // nil: there is no manifest
	version string
	since   time.Time
	torn    bool // the file is half written: the agent may never have read the content before
}

// staticSeen is a static pod that the runtime was asked to run.
type staticSeen struct {
	name    string // namespace/name
	version string
	pod     *v1.Pod
	overAt  time.Time // when the pod's manifest was first removed or replaced
	anew    bool      // a container counts its attempts from 0 again, and the mirror may not show that yet
}

// manifest records the manifest that the directory has from now on for a full name; nil: the directory has no such manifest.
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

// tear records that a manifest file is half written (torn), or whole again.
func (w *Witness) tear(fullName string, torn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.manifests[fullName]
	m.torn, m.since = torn, time.Now()
}

// Manifests returns the version of each present manifest, by the full name of its pod.
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

// staticOf records a static pod at the first call that an agent makes for it.
func (w *Witness) staticOf(uid types.UID, fullName, version string) {
	if w.statics[uid] != nil {
		return
	}
	st := &staticSeen{name: fullName, version: version, pod: w.versions[version]}
	if m := w.manifests[fullName]; m.version != version { // the manifest changed during the first call
		st.overAt = m.since
	}
	w.statics[uid] = st
}

// manifestKnown returns when the agent must have learned that the manifest of a static pod was removed or replaced; zero:
// it need not know. An agent reads the files when it starts, then periodically, and a changed file twice.
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

// staticGone forgets the attempts of the static pod's containers that are no longer in the runtime, because a later instance may
// count from 0 again. It does so when the pod has no sandbox, or when its manifest was ever removed or replaced: a manifest that
// is put back makes the same pod again, and if the disk was full, no checkpoint has the number of attempts. When nothing of the
// pod is left, the next life of the pod starts from the manifest as it is now.
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
