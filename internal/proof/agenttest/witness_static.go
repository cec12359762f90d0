package agenttest

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// annotationVersion is the annotation with the version of the manifest from which a static pod comes.
const annotationVersion = "agenttest/version"

// manifestSeen is the manifest of a static pod with one namespace/name.
type manifestSeen struct {
	pod     *v1.Pod // nil: the manifest was removed
	version string
	since   time.Time
	torn    bool // the file is half written, so the agent may never have read this content
}

// staticSeen is a static pod that an agent has asked the runtime to run.
type staticSeen struct {
	name    string // namespace/name
	version string
	pod     *v1.Pod
	overAt  time.Time // when the pod's manifest was first removed or replaced; zero: never
	anew    bool      // a container counts its attempts from 0 again, which the mirror may not show yet
}

// manifest records that the directory now has this pod's manifest for a namespace/name; nil: it has none.
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

// tear records that a manifest file is half written (torn is true), or complete again.
func (w *Witness) tear(fullName string, torn bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.manifests[fullName]
	m.torn, m.since = torn, time.Now()
}

// Manifests returns the version of each existing manifest, by the namespace/name of the pod.
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

// staticOf records a static pod when an agent makes the first call for it. version is that of its manifest.
func (w *Witness) staticOf(uid types.UID, fullName, version string) {
	if w.statics[uid] != nil {
		return
	}
	st := &staticSeen{name: fullName, version: version, pod: w.versions[version]}
	if m := w.manifests[fullName]; m.version != version { // the manifest was changed during the first call
		st.overAt = m.since
	}
	w.statics[uid] = st
}

// manifestKnown returns the time from which the agent must know that the manifest of a static pod was removed or replaced; zero: there is
// nothing that it must know. An agent reads the manifests when it starts and then periodically, and reads a changed file twice.
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

// staticGone forgets the attempts of those containers of a static pod that the runtime no longer has, because the attempts of their next
// instances may begin at 0 again. It does so if the pod has no sandbox, or if its manifest was ever removed or replaced. The reason: if the
// same manifest comes back, it describes a pod with the same UID, and if the disk was full, no checkpoint has the attempts. When nothing of
// the pod is left, its next life begins with the present manifest.
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
