package agenttest

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// annotationVersion tells which version of its manifest a static pod is.
const annotationVersion = "agenttest/version"

// manifestSeen is what the directory of static pods says of one full name.
type manifestSeen struct {
	pod     *v1.Pod // nil: there is none
	version string
	since   time.Time
}

// staticSeen is a static pod that the runtime was asked to run.
type staticSeen struct {
	version string
	trouble time.Time // when last a container or the sandbox of it ended
}

// manifest notes what the directory says from now on of a full name (namespace/name); a nil pod: nothing.
func (w *Witness) manifest(fullName string, p *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := &manifestSeen{pod: p, since: time.Now()}
	if p != nil {
		m.version = p.Annotations[annotationVersion]
	}
	w.manifests[fullName] = m
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

// mayStartStatic holds that nothing is asked for in a static pod whose manifest is gone or another one.
func (w *Witness) mayStartStatic(c *runtimeapi.PodSandboxConfig, what string) {
	version := c.GetAnnotations()[annotationVersion]
	if version == "" {
		return // of a test that tells nothing of its manifests
	}
	uid := types.UID(c.GetMetadata().GetUid())
	if w.statics[uid] == nil {
		w.statics[uid] = &staticSeen{version: version}
	}
	m := w.manifests[c.GetMetadata().GetNamespace()+"/"+c.GetMetadata().GetName()]
	if m == nil {
		w.broken(RuleStatic, "pod %s: %s is asked for, and it never had a manifest", c.GetMetadata().GetName(), what)
		return
	}
	if late := time.Since(m.since); m.version != version && late > w.KnownWithin && time.Since(w.agentAt) > w.KnownWithin {
		w.broken(RuleEnding, "static pod %s: %s of version %s is asked for %s after its manifest came to say %q", c.GetMetadata().GetName(), what, version, late, m.version)
	}
}

// staticGone forgets a static pod of which nothing is left, or, once its manifest is gone, no container: a manifest that is
// put back makes the same one anew, and where the disk was full no checkpoint tells what there was.
func (w *Witness) staticGone(uid types.UID) {
	st := w.statics[uid]
	if st == nil {
		return
	}
	for _, s := range w.sandboxes {
		if m := w.manifests[s.name]; s.uid == uid && m != nil && m.version == st.version {
			return
		}
	}
	for _, c := range w.containers {
		if c.UID == uid {
			return
		}
	}
	for key := range w.highest {
		if len(key) > len(uid) && key[:len(uid)] == string(uid) {
			delete(w.highest, key)
		}
	}
}
