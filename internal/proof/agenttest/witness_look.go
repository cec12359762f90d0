package agenttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Violations returns the violations so far.
func (w *Witness) Violations() []Violation {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Clone(w.violations)
	for _, s := range w.suspects {
		out = append(out, s.Violation)
	}
	return out
}

// Starts returns how many times containers were started.
func (w *Witness) Starts() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.starts
}

// StartsOf returns the times of the first 64 starts of a container.
func (w *Witness) StartsOf(uid types.UID, container string) []time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.startsOf[string(uid)+"/"+container])
}

// LastExit returns the exit code of the container's last instance that has ended; false: none has.
func (w *Witness) LastExit(uid types.UID, container string) (int32, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	code, ok := w.exits[string(uid)+"/"+container]
	return code, ok
}

// Running returns the ID of the running instance of a container; "": none runs.
func (w *Witness) Running(namespace, podName, container string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.containers {
		if c.Running && c.Namespace == namespace && c.Pod == podName && c.Name == container {
			return c.ID
		}
	}
	return ""
}

// Newest returns the newest instance of a container; nil: there was none.
func (w *Witness) Newest(uid types.UID, name string) *Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.newest(uid, name)
}

// newest is Newest for callers that hold w.mu.
func (w *Witness) newest(uid types.UID, name string) *Instance {
	var found *Instance
	for _, c := range w.containers {
		if c.UID == uid && c.Name == name && (found == nil || c.Attempt > found.Attempt) {
			found = c
		}
	}
	if found == nil {
		return nil
	}
	in := *found
	return &in
}

// Containers returns all containers of the runtime, sorted by pod, name and attempt.
func (w *Witness) Containers() []Instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]Instance, 0, len(w.containers))
	for _, c := range w.containers {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Instance) int {
		return strings.Compare(fmt.Sprint(a.Pod, a.UID, a.Name, a.Attempt), fmt.Sprint(b.Pod, b.UID, b.Name, b.Attempt))
	})
	return out
}

// Sandboxes returns the IDs of all sandboxes, sorted.
func (w *Witness) Sandboxes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.sandboxes))
}

// Present reports whether the runtime has a sandbox of a pod with this namespace and name.
func (w *Witness) Present(namespace, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sandboxes {
		if s.name == namespace+"/"+name {
			return true
		}
	}
	return false
}

// String describes the content of the runtime, one object per line.
func (w *Witness) String() string {
	var b strings.Builder
	for _, c := range w.Containers() {
		fmt.Fprintf(&b, "CRI: pod %s %s %s attempt %d running=%v exit=%d %.12s\n", c.Pod, c.UID, c.Name, c.Attempt, c.Running, c.ExitCode, c.ID)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, s := range w.sandboxes {
		fmt.Fprintf(&b, "CRI: sandbox %s %s ready=%v %.12s\n", s.name, s.uid, s.ready, id)
	}
	return b.String()
}
