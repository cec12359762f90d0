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

// manifest records that the manifest directory now has p as the pod with this namespace/name. A nil p records that the manifest is removed.
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

// staticGone is called after each change in the runtime, with the UID of the pod. If the pod is static, and it has no sandbox or its
// manifest was ever removed or replaced, staticGone forgets the attempts of the containers that the runtime no longer has, because their
// next instances may begin at attempt 0 again: a manifest that comes back describes a pod with the same UID, and if the disk was full, no
// checkpoint has the attempts. When nothing of the pod is left, its next life begins with the present manifest.
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
