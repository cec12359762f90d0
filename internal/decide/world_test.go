package decide_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/pod"
)

// epoch is when every world begins; seconds from it are what scripts print.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// flight is an action that has begun.
type flight struct {
	action pod.Action
	began  time.Time
	until  time.Time // its effect comes then
}

// world is a runtime, a disk and an agent's loop around Decide, without any IO: it does what actions say, and
// complains (broken) when an action or its effect breaks an invariant.
type world struct {
	pod    *v1.Pod
	hashes map[string]string
	mem    decide.Memory
	node   decide.Node
	pol    decide.Policy
	now    time.Time

	sandboxes  []pod.Sandbox
	containers []pod.Container
	vols       bool
	dirs       bool
	flights    []flight
	observed   pod.Observed // the last inspection
	noInspect  bool         // inspections have to be asked for
	old        bool         // the last inspection began before the newest outcome that touched the runtime
	dirty      bool         // the runtime has changed since the last inspection

	stubborn map[string]bool          // ignores TERM
	takes    map[string]time.Duration // "pre-stop app": how long an action takes
	faults   map[string]string        // "pull-image app": reason

	quick    bool            // leave out the checks that cost much
	terminal bool            // the pod was seen to end
	maxTry   map[string]int  // highest attempt made, by container name; "" for sandboxes
	ups      map[string]bool // "sandbox/name": init containers that completed, sidecars that started
	starts   int
	broken   []string
}

func newWorld() *world {
	w := &world{
		hashes: map[string]string{}, pol: decide.DefaultPolicy(), now: epoch,
		node:     decide.Node{NetworkReady: true, SourcesReady: true},
		stubborn: map[string]bool{}, takes: map[string]time.Duration{}, faults: map[string]string{},
		maxTry: map[string]int{}, ups: map[string]bool{},
	}
	w.mem.Admitted = true
	w.mem.StartTime = epoch
	return w
}

func (w *world) breaks(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

func (w *world) inspect() {
	w.old, w.dirty = false, false
	w.observed = pod.Observed{
		Began: w.now, Sandboxes: slices.Clone(w.sandboxes), Containers: slices.Clone(w.containers),
	}
}

// look inspects, unless inspections have to be asked for.
func (w *world) look() {
	w.dirty = true
	if !w.noInspect {
		w.inspect()
	}
}

func (w *world) inFlight() []pod.Action {
	var out []pod.Action
	for _, f := range w.flights {
		out = append(out, f.action.Key())
	}
	return out
}

func (w *world) input() decide.Input {
	return decide.Input{
		Pod: w.pod, Observed: &w.observed, Memory: &w.mem, InFlight: w.inFlight(), Hashes: w.hashes,
		Node: w.node, Policy: &w.pol, Now: w.now,
		Stale: w.old,
	}
}

// turn decides, begins what the plan says and checks that a second look plans nothing more.
func (w *world) turn() decide.Plan {
	in := w.input()
	var before decide.Memory
	if !w.quick {
		before = in.Memory.Clone()
	}
	plan := decide.Decide(&in)
	w.checkPlan(&in, &plan)
	if !w.quick && !reflect.DeepEqual(&before, in.Memory) {
		w.breaks("Decide wrote to memory")
	}
	decide.Remember(&w.mem, &plan)
	for _, a := range plan.Cancel {
		for i := range w.flights {
			if w.flights[i].action.Key() == a.Key() {
				f := w.flights[i]
				w.flights = slices.Delete(w.flights, i, i+1)
				w.note(f, pod.Outcome{Err: errors.New("canceled"), Canceled: true})
				break
			}
		}
	}
	for _, a := range plan.Do {
		took := w.takes[strings.TrimSpace(a.Op.String()+" "+a.Container)]
		if a.Op == pod.OpStopContainer && w.stubborn[a.Container] {
			took = a.Grace
		}
		w.flights = append(w.flights, flight{action: a, began: w.now, until: w.now.Add(took)})
	}
	if len(plan.Cancel) == 0 {
		again := w.input()
		if p := decide.Decide(&again); len(p.Do) > 0 {
			w.breaks("an unchanged input with its plan in flight plans again: %v", p.Do)
		}
	}
	return plan
}

// finish ends the i-th action in flight. how is "", "unknown", "unknown-undone", or a reason of failure.
func (w *world) finish(i int, how string) {
	f := w.flights[i]
	w.flights = slices.Delete(w.flights, i, i+1)
	out := pod.Outcome{}
	switch how {
	case "":
		out.ID = w.apply(f.action, f.began)
	case "unknown":
		w.apply(f.action, f.began)
		out.Unknown, out.Err, out.Reason = true, errors.New("deadline exceeded"), ""
	case "unknown-undone":
		out.Unknown, out.Err, out.Reason = true, errors.New("deadline exceeded"), ""
	case "RunContainerError":
		if out.ID = f.action.ID; out.ID == "" {
			out.ID = w.create(f.action)
		}
		out.Err, out.Reason = errors.New("exec: not found"), how
	default:
		out.Err, out.Reason = errors.New("it failed"), how
	}
	w.note(f, out)
}

func (w *world) note(f flight, out pod.Outcome) {
	out.Action, out.Began, out.Ended = f.action, f.began, w.now
	decide.Note(&w.mem, w.pod, out, &w.pol)
	w.old = w.old || f.action.Op.TouchesRuntime()
	w.look()
}

// apply does to the world what an action says, and returns the ID that was made.
func (w *world) apply(a pod.Action, began time.Time) string {
	switch a.Op {
	case pod.OpSetUp:
		w.vols, w.dirs = true, true
	case pod.OpTearDown:
		if w.anyAlive() {
			w.breaks("volumes torn down under a living container")
		}
		w.vols = false
	case pod.OpForget:
		if w.vols || len(w.containers)+len(w.sandboxes) > 0 {
			w.breaks("forgotten while something is left")
		}
		w.dirs = false
	case pod.OpRunSandbox:
		return w.runSandbox(a)
	case pod.OpPullImage:
		return "sha256:" + a.Container
	case pod.OpStartContainer:
		id := a.ID
		if id == "" {
			id = w.create(a)
		}
		w.start(id)
		return id
	case pod.OpPostStart, pod.OpPreStop, pod.OpResize, pod.OpNone:
	case pod.OpStopContainer:
		w.stop(a.ID, began)
	case pod.OpStopSandbox:
		w.stopSandbox(a.ID)
	case pod.OpRemoveContainer:
		w.removeContainer(a.ID)
	case pod.OpRemoveSandbox:
		for _, c := range w.containers {
			if c.SandboxID == a.ID {
				w.breaks("sandbox %s removed with container %s in it", a.ID, c.ID)
			}
		}
		w.sandboxes = slices.DeleteFunc(w.sandboxes, func(s pod.Sandbox) bool { return s.ID == a.ID })
	}
	return ""
}

func (w *world) runSandbox(a pod.Action) string {
	if w.anyAlive() {
		w.breaks("a sandbox is run beside living containers")
	}
	if !w.vols {
		w.breaks("a sandbox is run before volumes are set up")
	}
	if had, ok := w.maxTry[""]; ok && int(a.Attempt) <= had {
		w.breaks("sandbox attempt %d does not grow over %d", a.Attempt, had)
	}
	w.maxTry[""] = int(a.Attempt)
	sb := pod.Sandbox{ID: "sb" + strconv.Itoa(int(a.Attempt)), Attempt: a.Attempt, Ready: true, CreatedAt: w.now}
	if w.pod != nil && w.pod.Spec.HostNetwork {
		sb.HostNetwork = true
	} else {
		sb.IPs = []string{"10.0.0.1"}
	}
	w.sandboxes = slices.Insert(w.sandboxes, 0, sb)
	return sb.ID
}

func (w *world) create(a pod.Action) string {
	if had, ok := w.maxTry[a.Container]; ok && int(a.Attempt) <= had {
		w.breaks("attempt %d of %s does not grow over %d", a.Attempt, a.Container, had)
	}
	w.maxTry[a.Container] = int(a.Attempt)
	c := pod.Container{
		ID: fmt.Sprintf("%s-%d", a.Container, a.Attempt), Name: a.Container, Attempt: a.Attempt,
		State: pod.StateCreated, CreatedAt: w.now, SpecHash: w.hashes[a.Container], Grace: -1,
	}
	if len(w.sandboxes) > 0 {
		c.SandboxID = w.sandboxes[0].ID
	}
	if w.pod != nil {
		c.Grace = decide.DefaultGrace
		if s := w.pod.Spec.TerminationGracePeriodSeconds; s != nil {
			c.Grace = time.Duration(*s) * time.Second
		}
		if spec := w.spec(a.Container); spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil {
			c.PreStop = true
		}
	}
	at := slices.IndexFunc(w.containers, func(o pod.Container) bool { return o.Name == a.Container })
	if at < 0 {
		at = len(w.containers)
	}
	w.containers = slices.Insert(w.containers, at, c)
	return c.ID
}

func (w *world) start(id string) {
	c := w.byID(id)
	if c == nil {
		w.breaks("container %s is started and does not exist", id)
		return
	}
	for i := range w.containers {
		if o := &w.containers[i]; o.Name == c.Name && o.ID != id && o.Alive() {
			w.breaks("two live instances: %s and %s", o.ID, id)
		}
	}
	if len(w.sandboxes) == 0 || !w.vols {
		w.breaks("container %s is started without sandbox or volumes", id)
	}
	w.starts++
	if len(w.sandboxes) > 0 && !w.sandboxes[0].Ready { // the runtime refuses
		c.State, c.ExitCode, c.FinishedAt = pod.StateExited, 128, w.now
		return
	}
	c.State, c.StartedAt = pod.StateRunning, w.now
	w.checkOrder(c)
	if spec := w.spec(c.Name); spec != nil && decide.IsSidecar(spec) {
		w.ups[c.SandboxID+"/"+c.Name] = true
	}
}

// checkOrder holds that a main container starts only after its init containers.
func (w *world) checkOrder(c *pod.Container) {
	if w.pod == nil || !slices.ContainsFunc(w.pod.Spec.Containers, func(s v1.Container) bool { return s.Name == c.Name }) {
		return
	}
	for i := range w.containers { // a main container was made here before: that was checked then
		o := &w.containers[i]
		if o.ID != c.ID && o.SandboxID == c.SandboxID && slices.ContainsFunc(w.pod.Spec.Containers,
			func(s v1.Container) bool { return s.Name == o.Name }) {
			return
		}
	}
	for i := range w.pod.Spec.InitContainers {
		if init := w.pod.Spec.InitContainers[i].Name; !w.ups[c.SandboxID+"/"+init] {
			w.breaks("main container %s starts before init container %s is done", c.Name, init)
		}
	}
}

func (w *world) stop(id string, began time.Time) {
	c := w.byID(id)
	if c == nil || c.State == pod.StateExited {
		return
	}
	code := int32(143)
	if w.stubborn[c.Name] && w.now.After(began) {
		code = 137
	}
	w.exit(c, code)
}

func (w *world) exit(c *pod.Container, code int32) {
	c.State, c.ExitCode, c.FinishedAt = pod.StateExited, code, w.now
	if code == 0 {
		w.ups[c.SandboxID+"/"+c.Name] = true
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
			w.breaks("sandbox %s stopped under living container %s", id, c.ID)
			w.exit(c, 137)
		}
	}
}

func (w *world) removeContainer(id string) {
	if c := w.byID(id); c != nil && c.State == pod.StateRunning {
		w.breaks("living container %s removed", id)
	}
	w.containers = slices.DeleteFunc(w.containers, func(c pod.Container) bool { return c.ID == id })
}

func (w *world) anyAlive() bool {
	return slices.ContainsFunc(w.containers, func(c pod.Container) bool { return c.Alive() })
}

func (w *world) byID(id string) *pod.Container {
	for i := range w.containers {
		if w.containers[i].ID == id {
			return &w.containers[i]
		}
	}
	return nil
}

func (w *world) newest(name string) *pod.Container {
	for i := range w.containers {
		if w.containers[i].Name == name {
			return &w.containers[i]
		}
	}
	return nil
}

func (w *world) spec(name string) *v1.Container {
	if w.pod == nil {
		return nil
	}
	for _, list := range [][]v1.Container{w.pod.Spec.Containers, w.pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// checkGrace holds that what is given is what is left of the grace period.
func (w *world) checkGrace(in *decide.Input, plan *decide.Plan, a pod.Action) {
	if a.Op != pod.OpStopContainer && a.Op != pod.OpPreStop {
		return
	}
	left := plan.StopBegan.Add(plan.StopGrace).Sub(in.Now)
	switch {
	case a.Op == pod.OpStopContainer && a.Grace < w.pol.MinGrace && (!plan.Ending || a.Grace != plan.StopGrace || a.Grace == 0):
		w.breaks("%v has less than the smallest grace", a)
	case plan.Ending && a.Grace > max(left, w.pol.MinGrace):
		w.breaks("%v has more than the %s that are left", a, left)
	case plan.Ending && a.Op == pod.OpPreStop && a.Grace > left:
		w.breaks("%v has more than the %s that are left", a, left)
	}
}

// crash ends the agent: what was in flight is done or not, and what is not kept is gone. The next agent learns
// what the API status knows and inspects anew.
func (w *world) crash(done bool) {
	flights := w.flights
	w.flights = nil
	for _, f := range flights {
		if done && f.action.Op != pod.OpPullImage {
			w.apply(f.action, f.began)
		}
	}
	mem := w.mem.Kept()
	for i := range w.mem.Containers { // what the API status tells while the container is the same
		from := &w.mem.Containers[i]
		to := mem.Ensure(from.Name)
		to.ProbedID, to.Started, to.Ready = from.ProbedID, from.Started, from.Ready
	}
	w.mem = mem
	w.inspect()
}

// checkPlan holds what must be true of every plan.
func (w *world) checkPlan(in *decide.Input, plan *decide.Plan) {
	seen := map[pod.Action]bool{}
	starting := map[string]int{}
	for _, a := range in.InFlight {
		seen[a.Key()] = true
		if a.Op == pod.OpStartContainer {
			starting[a.Container]++
		}
		if a.Op == pod.OpRunSandbox {
			starting[""]++
		}
	}
	for _, a := range plan.Do {
		if a.Why == "" {
			w.breaks("%v has no reason", a)
		}
		if seen[a.Key()] {
			w.breaks("%v is planned twice", a)
		}
		seen[a.Key()] = true
		if a.Op == pod.OpStartContainer {
			starting[a.Container]++
		}
		if a.Op == pod.OpRunSandbox {
			starting[""]++
		}
		if a.Op.Starts() && (plan.Ending || in.Stale || in.Node.Predecessor) {
			w.breaks("%v starts something at the wrong time", a)
		}
		w.checkGrace(in, plan, a)
	}
	for name, n := range starting {
		if n > 1 {
			w.breaks("two starts of %q at once", name)
		}
	}
	if w.terminal && !plan.Ending && plan.Phase != decide.PhaseGone {
		w.breaks("an ending pod came back")
	}
	w.terminal = w.terminal || plan.Ending
}
