package agenttest

import (
	"strings"
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
	torn    bool // half of the file is written: what it said before may have come and gone unread
}

// staticSeen is a static pod that the runtime was asked to run.
type staticSeen struct {
	version string
	trouble time.Time // when last a container or the sandbox of it ended
	over    bool      // its manifest was gone, or another one, since it began
	anew    bool      // something of it began anew, of which its mirror may not have told yet
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
	for _, s := range w.sandboxes {
		if st := w.statics[s.uid]; st != nil && s.name == fullName && st.version != m.version {
			st.over = true
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
	if late := time.Since(m.since); m.version != version && !m.torn && late > w.KnownWithin && time.Since(w.agentAt) > w.KnownWithin {
		w.broken(RuleEnding, "static pod %s: %s of version %s is asked for %s after its manifest came to say %q", c.GetMetadata().GetName(), what, version, late, m.version)
	}
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
	if sandbox && !st.over {
		return
	}
	left := map[string]bool{}
	for _, c := range w.containers {
		if c.UID == uid {
			left[c.Name] = true
		}
	}
	for key := range w.highest {
		if name, its := strings.CutPrefix(key, string(uid)+"/"); its && !left[name] {
			delete(w.highest, key)
			st.anew = true
		}
	}
	if !sandbox && len(left) == 0 {
		st.over = false
	}
}
