package decide_test

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// apply performs an action on the world. It returns the ID of the container or sandbox that the action created, if any.
func (w *world) apply(f flight) string {
	a := f.action
	switch a.Op {
	case pod.OpSetUp:
		w.vols, w.dirs = true, true
		w.resizeGroup(a.Size)
	case pod.OpTearDown:
		if w.anyAlive() {
			w.breaks(invUnder, "volumes torn down under a living container")
		}
		w.vols = false
	case pod.OpForget:
		if w.vols || len(w.containers)+len(w.sandboxes) > 0 {
			w.breaks(invLeft, "forgotten while something is left")
		}
		w.dirs = false
	case pod.OpRunSandbox:
		return w.runSandbox(f)
	case pod.OpPullImage:
		return "sha256:" + a.Container
	case pod.OpStartContainer:
		id := a.ID
		if f.made != "" {
			id = f.made
		}
		if id == "" {
			id = w.create(f)
		}
		if f.made == "" || w.byID(id).State == pod.StateCreated {
			w.start(id)
		}
		return id
	case pod.OpResize:
		switch c := w.byID(a.ID); {
		case a.Container == "":
			w.resizeGroup(a.Size)
		case c == nil || c.State != pod.StateRunning: // the container has ended meanwhile, so the runtime refuses
		default:
			w.give(a.ID, a.Size)
		}
	case pod.OpPostStart, pod.OpPreStop, pod.OpNone:
	case pod.OpStopContainer:
		w.stop(a.ID, f.began)
	case pod.OpStopSandbox:
		w.stopSandbox(a.ID)
	case pod.OpRemoveContainer:
		w.removeContainer(a.ID)
	case pod.OpRemoveSandbox:
		for _, c := range w.containers {
			if c.SandboxID == a.ID {
				w.breaks(invUnder, "sandbox %s removed with container %s in it", a.ID, c.ID)
			}
		}
		w.sandboxes = slices.DeleteFunc(w.sandboxes, func(s pod.Sandbox) bool { return s.ID == a.ID })
	}
	return ""
}

func (w *world) runSandbox(f flight) string {
	a := f.action
	if f.made != "" {
		return f.made
	}
	if w.anyAlive() {
		w.breaks(invOneInstance, "a sandbox is run beside living containers")
	}
	if !w.vols {
		w.breaks(invSandboxBefore, "a sandbox is run before volumes are set up")
	}
	r := w.record("")
	if int(a.Attempt) <= max(r.tried, r.reserved) {
		w.breaks(invAttempts, "sandbox attempt %d does not grow over %d", a.Attempt, r.tried)
	}
	r.tried = int(a.Attempt)
	sb := pod.Sandbox{ID: "sb" + strconv.Itoa(int(a.Attempt)), Attempt: a.Attempt, Ready: true, CreatedAt: w.now}
	if w.pod != nil && w.pod.Spec.HostNetwork {
		sb.HostNetwork = true
	} else {
		sb.IPs = []string{"10.0.0.1"}
	}
	w.sandboxes = slices.Insert(w.sandboxes, 0, sb)
	return sb.ID
}

func (w *world) create(f flight) string {
	a := f.action
	r := w.record(a.Container)
	if int(a.Attempt) <= max(r.tried, r.reserved) {
		w.breaks(invAttempts, "attempt %d of %s does not grow over %d", a.Attempt, a.Container, r.tried)
	}
	r.tried = int(a.Attempt)
	c := pod.Container{
		ID: fmt.Sprintf("%s-%d", a.Container, a.Attempt), Name: a.Container, Attempt: a.Attempt,
		State: pod.StateCreated, CreatedAt: w.now, Grace: -1,
	}
	if len(w.sandboxes) > 0 {
		c.SandboxID = w.sandboxes[0].ID
	}
	if f.pod != nil {
		c.Grace = decide.DefaultGrace
		if s := f.pod.Spec.TerminationGracePeriodSeconds; s != nil {
			c.Grace = time.Duration(*s) * time.Second
		}
		if spec := specIn(f.pod, a.Container); spec != nil {
			c.PreStop = spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil
			c.SpecHash = specHash(spec.Image)
		}
	}
	w.give(c.ID, a.Size)
	at := slices.IndexFunc(w.containers, func(o pod.Container) bool { return o.Name == a.Container })
	if at < 0 {
		at = len(w.containers)
	}
	w.containers = slices.Insert(w.containers, at, c)
	if f.condemned {
		w.fate(c.ID).condemned = true
	} else {
		w.checkOrder(&w.containers[at])
	}
	return c.ID
}

func (w *world) start(id string) {
	c := w.byID(id)
	if c == nil {
		w.breaks(invPlan, "container %s is started and does not exist", id)
		return
	}
	for i := range w.containers {
		if o := &w.containers[i]; o.Name == c.Name && o.ID != id && o.Alive() {
			w.breaks(invOneInstance, "two live instances: %s and %s", o.ID, id)
		}
	}
	if len(w.sandboxes) == 0 || !w.vols {
		w.breaks(invSandboxBefore, "container %s is started without sandbox or volumes", id)
	}
	w.starts++
	if c.State == pod.StateRunning {
		w.breaks(invStartedOnce, "container %s runs and is started", id)
	}
	if w.strict {
		w.checkAgain(c)
	}
	if len(w.sandboxes) > 0 && !w.sandboxes[0].Ready { // the runtime does not start a container in a sandbox that is not ready
		c.State, c.ExitCode, c.FinishedAt = pod.StateExited, 128, w.now
		return
	}
	c.State, c.StartedAt = pod.StateRunning, w.now
	r := w.record(c.Name)
	r.ran, r.ended, r.sandbox = true, false, c.SandboxID
	if spec := w.spec(c.Name); spec != nil && spec.StartupProbe == nil && (spec.Lifecycle == nil || spec.Lifecycle.PostStart == nil) {
		w.up(c)
	}
}

// up records that the sidecar c has started, unless its startup probe has not succeeded yet. It ignores containers that are not sidecars.
func (w *world) up(c *pod.Container) {
	spec := w.spec(c.Name)
	if spec == nil || !pod.IsSidecar(spec) {
		return
	}
	if h := w.healthOf(c.ID); spec.StartupProbe == nil || (h != nil && h.started) {
		w.record(c.Name).upIn = c.SandboxID
	}
}

// checkOrder checks the order in which the containers of a sandbox are first created. Before a container is created, each init container
// ahead of it in the spec must have completed, and each sidecar ahead of it must have started.
func (w *world) checkOrder(c *pod.Container) {
	if w.pod == nil {
		return
	}
	main := slices.ContainsFunc(w.pod.Spec.Containers, func(s v1.Container) bool { return s.Name == c.Name })
	init := slices.IndexFunc(w.pod.Spec.InitContainers, func(s v1.Container) bool { return s.Name == c.Name })
	initialized := w.initialized == c.SandboxID && c.SandboxID != ""
	switch {
	case main && !initialized:
		for i := range w.pod.Spec.InitContainers {
			if name := w.pod.Spec.InitContainers[i].Name; w.record(name).upIn != c.SandboxID {
				w.breaks(invInitFirst, "main container %s is made before init container %s is done", c.Name, name)
			}
		}
		w.initialized = c.SandboxID
	case init >= 0 && w.strict && !initialized:
		for i := range init {
			if name := w.pod.Spec.InitContainers[i].Name; w.record(name).upIn != c.SandboxID {
				w.breaks(invInitOrder, "init container %s is made before %s is done", c.Name, name)
			}
		}
	}
}

func (w *world) stop(id string, began time.Time) {
	c := w.byID(id)
	if c == nil || c.State == pod.StateExited {
		return
	}
	code := int32(143)
	if w.polite[c.Name] {
		code = 0
	}
	if w.stubborn[c.Name] && w.now.After(began) {
		code = 137
	}
	w.exit(c, code)
}

func (w *world) exit(c *pod.Container, code int32) {
	ran := c.State == pod.StateRunning || c.State == pod.StateUnknown
	c.State, c.ExitCode, c.FinishedAt = pod.StateExited, code, w.now
	r := w.record(c.Name)
	if code == 0 && !slices.ContainsFunc(w.pod0().Spec.InitContainers, func(s v1.Container) bool { return s.Name == c.Name && pod.IsSidecar(&s) }) {
		r.upIn = c.SandboxID
	}
	if w.strict && ran {
		w.ended(c, r)
	}
}

func (w *world) stopSandbox(id string) {
	for i := range w.sandboxes {
		if w.sandboxes[i].ID == id {
			w.sandboxes[i].Ready = false
		}
	}
	for i := range w.containers {
		if c := &w.containers[i]; c.SandboxID == id && c.Alive() {
			w.breaks(invUnder, "sandbox %s stopped under living container %s", id, c.ID)
			w.exit(c, 137)
		}
	}
}

func (w *world) removeContainer(id string) {
	if c := w.byID(id); c != nil && c.State == pod.StateRunning {
		w.breaks(invUnder, "living container %s removed", id)
	}
	w.containers = slices.DeleteFunc(w.containers, func(c pod.Container) bool { return c.ID == id })
}
