package decide_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/podstatus"
)

// epoch is the time at which every simulated world begins. Scripts print times in seconds since the epoch.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// flight is an action that has begun.
type flight struct {
	action pod.Action
	began  time.Time
	until  time.Time // when the effect of the action occurs

	pod       *v1.Pod // the pod when the action began
	condemned bool    // the action began before a RestartAllContainers rule applied
	canceled  bool    // the action was canceled, and its outcome has not come yet
	made      string  // in a script: the ID of the container or sandbox that the runtime already shows, although the action has no outcome yet
}

// world simulates a runtime, a disk and the agent's loop around Decide, without IO. It performs the planned actions, and records
// in broken when an action or its effect breaks an invariant.
type world struct {
	pod       *v1.Pod
	seen      func(*decide.Input, *decide.Plan) // called in each turn; may be nil
	lastGrace *int64                            // the grace period of a pod whose object is gone
	hashes    map[string]string
	sized     bool                // the pod has resources
	group     pod.Size            // the size of the pod's cgroup
	given     map[string]pod.Size // the sizes of containers, by ID
	mem       decide.Memory
	said      decide.ProbeResults
	node      decide.Node
	pol       decide.Policy
	now       time.Time

	sandboxes  []pod.Sandbox
	containers []pod.Container
	vols       bool
	dirs       bool
	flights    []flight
	observed   pod.Observed // the last inspection
	noInspect  bool         // look does not inspect: the script or the search asks for each inspection
	lingers    bool         // a canceled action ends only when the script says so
	old        bool         // the last inspection began before the newest outcome that touched the runtime
	dirty      bool         // the runtime has changed since the last inspection

	stubborn map[string]bool          // the containers that ignore SIGTERM
	polite   map[string]bool          // the containers that exit with 0 on SIGTERM
	takes    map[string]time.Duration // how long an action takes; the key names the action, for example "pre-stop app"
	faults   map[string]string        // the reason with which an action fails; the key names the action, for example "pull-image app"

	terminal    bool   // the agent has reported a terminal phase
	initialized string // the sandbox in which main containers were made
	records     []record
	fates       []fate
	starts      int
	broken      []breach

	searched // fields that only the search uses
}

// searched has the parts of a world that only the search needs: sources, probes, an API, restarts of the agent, and the oracle's
// records.
type searched struct {
	strict   bool // set in the search, not in scripts: also check the invariants that need the pod's whole history
	brain    brain
	want     *v1.Pod       // the pod as its source has it; pod is the one that the agent knows
	last     *v1.Pod       // the pod as its source had it at first
	status   *v1.PodStatus // the status that the agent last derived
	saved    decide.Memory // the checkpoint
	health   []health      // the results of probes
	down     bool          // no agent runs
	orphaned bool          // the agent has found that no source has the pod
	evicted  bool
	vanished bool          // the runtime has lost a container, so restarts and crashes cannot be counted exactly
	again    bool          // a RestartAllContainers rule has been carried out
	endBegan time.Time     // when the pod's end was first planned
	asked    time.Duration // the shortest grace period that was asked for since then
}

// brain has the functions by which the agent decides: the real ones, or ones with a planted bug.
type brain struct {
	decide   func(*decide.Input) decide.Plan
	note     func(*decide.Memory, *v1.Pod, pod.Outcome, *decide.Policy) bool
	remember func(*decide.Memory, *decide.Plan) bool
	derive   func(podstatus.Input) v1.PodStatus
}

func realBrain() brain {
	return brain{decide: decide.Decide, note: decide.Note, remember: decide.Remember, derive: podstatus.Derive}
}

// health is the true state of one container instance, which its probes report.
type health struct {
	id                   string
	started, ready, sick bool
}

func newWorld() *world {
	w := &world{
		hashes: map[string]string{}, given: map[string]pod.Size{}, pol: decide.DefaultPolicy(), now: epoch,
		node:     decide.Node{NetworkReady: true, SourcesReady: true},
		stubborn: map[string]bool{}, polite: map[string]bool{}, takes: map[string]time.Duration{}, faults: map[string]string{},
	}
	w.brain = realBrain()
	w.mem.Admitted = true
	w.mem.StartTime = epoch
	w.saved = w.mem.Kept()
	return w
}

func (w *world) breaks(inv invariant, format string, args ...any) {
	w.broken = append(w.broken, breach{inv, fmt.Sprintf(format, args...)})
}

func (w *world) sizes() []pod.NamedSize {
	if w.pod == nil || !w.sized {
		return nil
	}
	return crispec.Sizes(w.pod)
}

func (w *world) size(name string) pod.Size {
	for _, s := range w.sizes() {
		if s.Name == name {
			return s.Size
		}
	}
	return pod.Size{}
}

// give sets the size of a container. A container that is larger than the pod's cgroup breaks an invariant.
func (w *world) give(id string, size pod.Size) {
	if !w.sized {
		return
	}
	if w.exceeds(size) {
		w.breaks(invRoom, "container %s gets %v in a group that has %v", id, size, w.group)
	}
	w.given[id] = size
}

// exceeds reports whether a container of this size is larger than its pod's cgroup.
func (w *world) exceeds(size pod.Size) bool {
	return w.group.MemoryLimit != 0 && size.MemoryLimit > w.group.MemoryLimit || w.group.CPULimit != 0 && size.CPULimit > w.group.CPULimit
}

// resizeGroup sets the size of the pod's cgroup. A living container that is larger than the cgroup breaks an invariant.
func (w *world) resizeGroup(size pod.Size) {
	w.group = size
	for i := range w.containers {
		c := &w.containers[i]
		if has := w.given[c.ID]; c.Alive() && w.exceeds(has) {
			w.breaks(invRoom, "the pod's cgroup gets %v while container %s has %v", size, c.ID, has)
		}
	}
}

func (w *world) inspect() {
	w.old, w.dirty = false, false
	w.observed = pod.Observed{
		Began: w.now, Sandboxes: slices.Clone(w.sandboxes), Containers: slices.Clone(w.containers),
	}
	for i := range w.observed.Containers { // runtimes do not report memory requests
		c := &w.observed.Containers[i]
		c.Actual = w.given[c.ID]
		c.Actual.MemoryRequest = 0
	}
}

// look inspects the runtime after a change, unless noInspect is set (in a script, with the command "hold").
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
		Pod: w.pod, LastGrace: w.lastGrace, Observed: &w.observed, Memory: &w.mem, Probed: w.said, InFlight: w.inFlight(), Hashes: w.hashes,
		Sizes: w.sizes(), Node: w.node, Policy: &w.pol, Now: w.now,
		Stale: w.old,
	}
}

// turn takes one turn of the agent: it calls Decide, checks the plan, begins and cancels actions, and checks that a second decision begins
// nothing more.
func (w *world) turn() decide.Plan {
	if w.strict {
		w.probe()
	}
	in := w.input()
	var before decide.Memory
	if !w.strict {
		before = in.Memory.Clone()
	}
	restarted := w.mem.RestartingAll
	plan := w.brain.decide(&in)
	w.checkPlan(&in, &plan)
	if w.seen != nil {
		w.seen(&in, &plan)
	}
	if !w.strict && !reflect.DeepEqual(&before, in.Memory) {
		w.breaks(invPure, "Decide wrote to memory")
	}
	if w.brain.remember(&w.mem, &plan) {
		w.saved = w.mem.Kept()
	}
	if plan.RestartingAll && !restarted {
		w.beginsAgain()
	}
	for _, a := range plan.Cancel {
		w.cancel(a)
	}
	for _, a := range plan.Do {
		took := w.takes[strings.TrimSpace(a.Op.String()+" "+a.Container)]
		if a.Op == pod.OpStopContainer && w.stubborn[a.Container] {
			took = a.Grace
		}
		w.flights = append(w.flights, flight{action: a, began: w.now, until: w.now.Add(took), pod: w.pod})
	}
	if w.strict || len(plan.Cancel) == 0 {
		again := w.input()
		if p := w.brain.decide(&again); len(p.Do) > 0 {
			w.breaks(invIdle, "an unchanged input with its plan in flight plans again: %v", p.Do)
		}
	}
	return plan
}

// cancel cancels an action in flight. In a script, the action has its outcome at once, except after the command "lingers".
func (w *world) cancel(a pod.Action) {
	for i := range w.flights {
		if w.flights[i].action.Key() != a.Key() {
			continue
		}
		if w.flights[i].canceled = true; !w.strict && !w.lingers {
			w.finish(i, "canceled")
		}
		return
	}
}

// finish ends the i-th action in flight. how is "", "canceled", "unknown", "unknown-undone", or a reason of failure.
func (w *world) finish(i int, how string) {
	f := w.flights[i]
	w.flights = slices.Delete(w.flights, i, i+1)
	out := pod.Outcome{}
	switch how {
	case "":
		out.ID = w.apply(f)
	case "canceled":
		out.Err, out.Canceled = errors.New("canceled"), true
	case "unknown":
		w.apply(f)
		out.Unknown, out.Err, out.Reason = true, errors.New("deadline exceeded"), ""
	case "unknown-undone": // the runtime may keep the container's name reserved
		r := w.record(f.action.Container)
		if f.action.Op.Starts() && f.action.ID == "" {
			r.reserved = max(r.reserved, int(f.action.Attempt))
		}
		out.Unknown, out.Err, out.Reason = true, errors.New("deadline exceeded"), ""
	case "RunContainerError":
		if out.ID = f.action.ID; out.ID == "" {
			out.ID = w.create(f)
		}
		out.Err, out.Reason = errors.New("exec: not found"), how
	case "VolumeLimit": // a volume cannot be attached to the node beside its others
		out.Err, out.Reason, out.Lack = errors.New("no room for the volume"), "FailedMount", pod.LackVolumeLimit
	default:
		out.Err, out.Reason = errors.New("it failed"), how
	}
	w.hookEnded(f, how)
	w.note(f, out)
}

// hookEnded updates the oracle's records of hooks.
func (w *world) hookEnded(f flight, how string) {
	switch f.action.Op {
	case pod.OpPreStop:
		w.fate(f.action.ID).hookDone = true
	case pod.OpPostStart:
		x := w.fate(f.action.ID)
		if how == "canceled" {
			return
		}
		x.postDone = how == ""
		x.doomed = x.doomed || how != ""
		if c := w.byID(f.action.ID); c != nil && how == "" && c.State == pod.StateRunning {
			w.up(c)
		}
	default:
	}
}

func (w *world) note(f flight, out pod.Outcome) {
	out.Action, out.Began, out.Ended = f.action, f.began, w.now
	if w.brain.note(&w.mem, w.pod, out, &w.pol) {
		w.saved = w.mem.Kept()
	}
	w.old = w.old || f.action.Op.TouchesRuntime()
	w.look()
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

func (w *world) spec(name string) *v1.Container { return specIn(w.pod, name) }

func specIn(p *v1.Pod, name string) *v1.Container {
	if p == nil {
		return nil
	}
	for _, list := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if c := (*v1.Container)(&p.Spec.EphemeralContainers[i].EphemeralContainerCommon); c.Name == name {
			return c
		}
	}
	return nil
}

// pod0 returns the pod, or an empty one when no source has it any more.
func (w *world) pod0() *v1.Pod {
	if w.pod == nil {
		return &v1.Pod{}
	}
	return w.pod
}

// crash ends the agent. If done is set, the actions in flight have their effects, otherwise they have none. Memory outside the
// checkpoint is lost. The next agent reads the API status and inspects the runtime.
func (w *world) crash(done bool) {
	flights := w.flights
	w.flights = nil
	for _, f := range flights {
		if done && f.action.Op != pod.OpPullImage {
			w.apply(f)
		}
	}
	w.mem = *decide.Load(&w.saved, w.now, &w.pol)
	w.againFromTheStart()
	for i := range w.said { // the next agent learns from the API status what is started and ready, but not which probe failed
		w.said[i].Failed = decide.FailedProbe{}
	}
	w.inspect()
}
