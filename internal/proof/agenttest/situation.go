package agenttest

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/why"
)

// situation is what keeps a pod from running, as the Witness sees it from outside the agent: in the runtime, in the API, and in the calls
// and probe results of the agent. A test compares it with the agent's own explanation of the pod (package why). The field what describes
// the situation. The field causes has the causes that the agent may name in it.
type situation struct {
	what   string
	well   bool // everything runs as the spec says, or the pod has completed
	causes []why.Cause
}

// These are causes that the agent may name in several situations.
var (
	pullCauses  = []why.Cause{why.ImageNotFound, why.ImageDenied, why.RegistryAway, why.PullFails}
	startCauses = []why.Cause{why.StartFails, why.CommandNotFound, why.CommandDenied}
	leftCauses  = []why.Cause{why.SandboxStops, why.TearDownRuns, why.TearDownFails, why.Removing, why.FinalizersRemain}
)

// situation returns the situation of a pod; ok is false if the Witness does not know the pod, or the agent cannot know the situation. held
// reports whether the machine has files of a pod.
func (w *Witness) situation(uid types.UID, held func(types.UID) bool) (s situation, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	spec, t := w.specOf(uid), w.lastAgent
	if spec == nil || t == nil || w.moved && spec.ActiveDeadlineSeconds != nil { // after a change of the clock the deadline passes at another time
		return s, false
	}
	v := &view{Witness: w, agent: t, uid: uid, spec: spec, held: held, disk: time.Since(w.diskFaultAt) < afterDisk}
	for _, in := range w.containers {
		v.alive = v.alive || in.UID == uid && in.Running
	}
	for id, sb := range w.sandboxes {
		if sb.uid == uid {
			v.anySandbox = true
			if sb.ready {
				v.sandbox = id
			}
		}
	}
	s = v.situation()
	if v.disk {
		s.causes = append(slices.Clone(s.causes), why.SetUpFails, why.SetUpRuns, why.NoAnswer, why.ContainerStarts)
		if v.namesake() {
			s.causes = append(s.causes, why.PredecessorRemains)
		}
	}
	return s, !v.unknown()
}

// unknown reports whether the agent cannot know the situation, because it has not learned yet that a container or sandbox of the pod has
// ended.
func (v *view) unknown() bool {
	for id, uid := range v.knownAlive {
		if uid != v.uid {
			continue
		}
		if in := v.containers[id]; in != nil && in.Running {
			continue
		}
		if sb := v.sandboxes[id]; sb != nil && sb.ready {
			continue
		}
		return true
	}
	return false
}

// view is one pod as the Witness sees it. The caller of its methods holds Witness.mu.
type view struct {
	*Witness
	agent      *learned
	uid        types.UID
	spec       *v1.PodSpec
	alive      bool                 // a container of the pod runs
	anySandbox bool                 // the runtime has a sandbox of the pod
	sandbox    string               // ID of the ready sandbox; "": there is none
	held       func(types.UID) bool // reports whether the machine has files of a pod
	disk       bool                 // the disk has had a fault within afterDisk
}

// situation returns the situation of the pod. It checks, in this order, whether the agent knows the state of the runtime, whether the pod
// has to end, the pod's sandbox, and its containers.
func (v *view) situation() situation {
	switch {
	case !v.agent.succeeded(callList, "", "sandboxes"), !v.agent.succeeded(callList, "", "containers"):
		return situation{what: "the runtime has not listed its pods for this agent", causes: v.orFinal(why.NotLooked, why.RuntimeHangs, why.InspectionFailed)}
	case v.agent.inFlight(callInspect, v.uid, "", longInspection):
		return situation{what: "an inspection hangs", causes: []why.Cause{why.RuntimeHangs, why.InspectionFailed}}
	case v.agent.failed(callInspect, v.uid, ""):
		return situation{what: "an inspection failed", causes: []why.Cause{why.InspectionFailed, why.RuntimeHangs}}
	}
	if s, is := v.ending(); is {
		return s
	}
	if v.sandbox == "" {
		return v.noSandbox()
	}
	return v.containersOf()
}

// afterDisk is how long the effects of a disk fault may last: the longest back-off between two attempts to set up a pod.
const afterDisk = 3 * time.Minute

// orFinal returns causes and, for a pod with a terminal phase, the causes that such a phase can have: the agent knows them from the pod's
// status.
func (v *view) orFinal(causes ...why.Cause) []why.Cause {
	if s := v.pods[v.uid]; s != nil && !s.finalAt.IsZero() {
		return append(causes, why.Failed, why.Completed, why.DeadlineExceeded, why.OutOfMemory)
	}
	return causes
}

// longInspection is how long an inspection may take. After that time, the runtime counts as hanging.
const longInspection = time.Second

// ending returns the situation of a pod that has to end or has ended; false for other pods.
func (v *view) ending() (situation, bool) {
	deleted := !v.agent.ending[v.uid].IsZero()
	if st := v.statics[v.uid]; st != nil {
		known := v.manifestKnown(st)
		deleted = deleted || !known.IsZero() && time.Now().After(known)
	}
	api := v.pods[v.uid]
	final := api != nil && !api.finalAt.IsZero()
	over := v.isOver(v.spec, v.uid)
	deadline := v.deadline(api)
	late := !deadline.IsZero() && time.Now().After(deadline.Add(rounding)) && (!over || !v.over[v.uid].Before(deadline))
	switch {
	case !deleted && !final && !over && !late:
		return situation{}, false
	case v.alive:
		return v.dying(), true
	case deleted:
		return situation{what: "what is left of a deleted pod", causes: leftCauses}, true
	case late:
		return situation{what: "the deadline has passed", causes: append([]why.Cause{why.DeadlineExceeded}, leftCauses...)}, true
	case over:
		return v.finished(), true
	}
	return situation{what: "the node refused the pod or ended it", causes: []why.Cause{
		why.DoesNotFit, why.Refused, why.TaintRefuses, why.PortTaken, why.LabelsDiffer, why.PressureRefuses, why.SysctlForbidden, why.AppArmorRefuses,
		why.OSDiffers, why.GroupsPolicyRefuses, why.Preempted, why.Evicted, why.VolumeLimitReached, why.Stopped, why.Failed,
	}}, true
}

// deadline returns when the pod's activeDeadlineSeconds end; zero: the pod has none.
func (v *view) deadline(s *podSeen) time.Time {
	if s == nil || v.spec.ActiveDeadlineSeconds == nil {
		return time.Time{}
	}
	return s.startTime().Add(pod.Seconds(*v.spec.ActiveDeadlineSeconds))
}

// dying returns the situation of a pod that has to end while one of its containers still runs.
func (v *view) dying() situation {
	for _, c := range allContainers(v.spec) {
		if v.hookRuns(&c, true) {
			return situation{what: "a preStop hook runs", causes: []why.Cause{why.PreStopRuns, why.StopOverdue, why.GraceRuns}}
		}
	}
	return situation{what: "containers end", causes: []why.Cause{why.GraceRuns, why.StopOverdue, why.PreStopRuns}}
}

// hookRuns reports whether a hook of a container is running: the preStop hook if preStop is true, otherwise the postStart hook.
func (v *view) hookRuns(c *v1.Container, preStop bool) bool {
	if c.Lifecycle == nil {
		return false
	}
	h := c.Lifecycle.PostStart
	if preStop {
		h = c.Lifecycle.PreStop
	}
	return h != nil && h.Exec != nil && v.agent.inFlight(callExec, v.uid, c.Name, 0)
}

// finished returns the situation of a pod whose containers have all ended for good.
func (v *view) finished() situation {
	for _, c := range allContainers(v.spec) {
		if in := v.newestOf[string(v.uid)+"/"+c.Name]; in != nil && in.ExitCode != 0 && c.RestartPolicy == nil {
			return situation{what: "the pod has failed", causes: slices.Concat([]why.Cause{why.Failed, why.InitFailed, why.OutOfMemory}, startCauses, leftCauses)}
		}
	}
	return situation{what: "the pod has completed", well: true, causes: append([]why.Cause{why.Completed}, leftCauses...)}
}

// noSandbox returns the situation of a pod without a ready sandbox.
func (v *view) noSandbox() situation {
	if v.agent.inFlight(callRunSandbox, v.uid, "", 0) {
		s := situation{what: "a sandbox is being made", causes: []why.Cause{why.SandboxStarts}}
		if v.agent.failed(callRunSandbox, v.uid, "") {
			s.causes = append(s.causes, why.SandboxFails)
		}
		return s
	}
	switch {
	case v.predecessor():
		return situation{what: "an earlier pod of the name remains", causes: []why.Cause{why.PredecessorRemains, why.AdmissionWaits}}
	case v.anySandbox:
		return situation{what: "the sandbox is lost", causes: append([]why.Cause{why.SandboxFails, why.SandboxStarts, why.EndedRestarts, why.CrashLoop, why.ContainerStarts, why.GraceRuns, why.StopOverdue}, leftCauses...)}
	case v.agent.failed(callRunSandbox, v.uid, ""):
		return situation{what: "a sandbox cannot be made", causes: []why.Cause{why.SandboxFails}}
	}
	return situation{what: "no sandbox is asked for", causes: []why.Cause{why.AdmissionWaits, why.Queued, why.SetUpRuns, why.NetworkNotReady}}
}

// fullName returns the namespace and name of the pod.
func (v *view) fullName() string {
	if s := v.pods[v.uid]; s != nil {
		return s.pod.Namespace + "/" + s.pod.Name
	}
	return v.statics[v.uid].name
}

// namesake reports whether another pod with the same namespace and name has ever existed.
func (v *view) namesake() bool {
	for uid, s := range v.pods {
		if uid != v.uid && s.pod.Namespace+"/"+s.pod.Name == v.fullName() {
			return true
		}
	}
	for uid, st := range v.statics {
		if uid != v.uid && st.name == v.fullName() {
			return true
		}
	}
	return false
}

// predecessor reports whether the runtime or the disk still has something of another pod with the same namespace and name.
func (v *view) predecessor() bool {
	name := v.fullName()
	for uid, s := range v.pods {
		if uid != v.uid && s.pod.Namespace+"/"+s.pod.Name == name && v.held(uid) {
			return true
		}
	}
	for _, sb := range v.sandboxes {
		if sb.uid != v.uid && sb.name == name {
			return true
		}
	}
	for _, c := range v.containers {
		if c.UID != v.uid && c.Namespace+"/"+c.Pod == name {
			return true
		}
	}
	return false
}

// containersOf returns the situation of a pod with a sandbox. The field what describes the first container that is not well. The field
// causes has the causes of all containers that are not well, because the agent may name the one with the worst trouble.
func (v *view) containersOf() situation {
	out := situation{what: "everything runs", well: true, causes: []why.Cause{why.Running, why.ResizeWaits}}
	add := func(s situation) {
		if s.well {
			return
		}
		if out.well {
			out = s
			return
		}
		out.causes = append(slices.Clone(out.causes), s.causes...)
	}
	for i := range v.spec.InitContainers {
		c := &v.spec.InitContainers[i]
		if c.RestartPolicy != nil {
			add(v.main(c))
			if in := v.inSandbox(c.Name); in == nil || !in.Running {
				return out
			}
			continue
		}
		if v.initDone[v.sandbox+"/"+c.Name] {
			continue
		}
		add(v.init(c))
		return out
	}
	for i := range v.spec.Containers {
		add(v.main(&v.spec.Containers[i]))
	}
	return out
}

// inSandbox returns the newest instance of a container if it is in the ready sandbox, otherwise nil.
func (v *view) inSandbox(name string) *Instance {
	if in := v.newestOf[string(v.uid)+"/"+name]; in != nil && in.Sandbox == v.sandbox {
		return in
	}
	return nil
}

// init returns the situation of a pod whose init container c has not completed.
func (v *view) init(c *v1.Container) situation {
	in := v.inSandbox(c.Name)
	if in != nil && in.Running {
		return situation{what: "an init container runs", causes: []why.Cause{why.InitRuns}}
	}
	s := v.waits(c, in)
	s.causes = append(slices.Clone(s.causes), why.InitFailed)
	return s
}

// main returns the situation of a pod as far as it depends on c, which is a main container or a sidecar.
func (v *view) main(c *v1.Container) situation {
	in := v.inSandbox(c.Name)
	if in == nil || !in.Running {
		if in != nil && in.Exited && v.staysEnded(c, in) {
			if in.ExitCode == 0 {
				return situation{well: true}
			}
			return situation{what: "a container has failed for good", causes: append([]why.Cause{why.Failed, why.OutOfMemory}, startCauses...)}
		}
		return v.waits(c, in)
	}
	if cause, is := v.doomed[in.ID]; is {
		return situation{what: "a container is ended: " + cause.why, causes: v.doomCauses(cause.why)}
	}
	if api := v.pods[v.uid]; api != nil && restartsToResize(c) && !api.resized(c, in).IsZero() {
		return situation{what: "a container is resized, which restarts it", causes: []why.Cause{why.DefinitionRestarts, why.ResizeWaits, why.Running}}
	}
	if v.hookRuns(c, false) {
		return situation{what: "a postStart hook runs", causes: []why.Cause{why.PostStartRuns}}
	}
	return v.probedSituation(c)
}

// staysEnded reports whether, by the restart policy, a container that has ended is not started again.
func (v *view) staysEnded(c *v1.Container, in *Instance) bool {
	policy := v.spec.RestartPolicy
	if c.RestartPolicy != nil {
		policy = v1.RestartPolicy(*c.RestartPolicy)
	}
	return policy == v1.RestartPolicyNever || policy == v1.RestartPolicyOnFailure && in.ExitCode == 0
}

func (v *view) doomCauses(of string) []why.Cause {
	if strings.Contains(of, "hook") {
		return []why.Cause{why.PostStartFails, why.GraceRuns}
	}
	return []why.Cause{why.LivenessRestarts, why.StartupRestarts}
}

// probedSituation returns the situation of a pod as far as it depends on the probe results of c, which is a running container.
func (v *view) probedSituation(c *v1.Container) situation {
	failures := func(p *v1.Probe) (n int32, probed bool) {
		if p == nil || p.HTTPGet == nil {
			return 0, true
		}
		s := v.streaks[probeKey{v.uid, p.HTTPGet.Port.IntVal}]
		if s == nil {
			return 0, false
		}
		return s.failures, true
	}
	if n, _ := failures(c.StartupProbe); n > 0 {
		return situation{what: "a startup probe fails", causes: []why.Cause{why.StartupPending, why.Running, why.StartupRestarts}}
	}
	n, probed := failures(c.ReadinessProbe)
	switch {
	case n >= max(1, threshold(c.ReadinessProbe)):
		return situation{what: "a readiness probe fails", causes: []why.Cause{why.ReadinessFails}}
	case n > 0 || !probed: // too few failures, or no result yet: the container keeps its present readiness
		return situation{what: "a readiness probe has no result that counts", causes: []why.Cause{why.ReadinessPending, why.ReadinessFails, why.Running, why.ResizeWaits, why.StartupPending}}
	}
	return situation{well: true}
}

func threshold(p *v1.Probe) int32 {
	if p == nil {
		return 1 << 30
	}
	return p.FailureThreshold
}

// createdAt returns when the newest instance of a container was created; zero: it never was.
func (v *view) createdAt(name string) time.Time {
	if in := v.newestOf[string(v.uid)+"/"+name]; in != nil {
		return in.Created
	}
	return time.Time{}
}

// waits returns the situation of a pod whose container c does not run and has to start. in is the last instance of the container; nil: the
// ready sandbox has no instance of it.
func (v *view) waits(c *v1.Container, in *Instance) situation {
	switch {
	case v.agent.inFlight(callPull, "", c.Image, 0):
		s := situation{what: "an image is being pulled", causes: []why.Cause{why.Pulling}}
		if v.agent.failed(callPull, "", c.Image) {
			s.causes = append(s.causes, pullCauses...)
		}
		return s
	case v.agent.inFlight(callImage, "", c.Image, 0):
		return situation{what: "the runtime looks for an image", causes: append([]why.Cause{why.Pulling, why.CrashLoop, why.EndedRestarts}, pullCauses...)}
	case v.agent.failed(callPull, "", c.Image), v.agent.failed(callImage, "", c.Image):
		return situation{what: "an image cannot be pulled", causes: pullCauses}
	case v.agent.inFlight(callCreate, v.uid, c.Name, 0), v.agent.inFlight(callStart, v.uid, c.Name, 0):
		return situation{what: "a container is being started", causes: append([]why.Cause{why.ContainerStarts, why.EndedRestarts, why.CrashLoop, why.CreateFails}, startCauses...)}
	case v.agent.failedAfter(callCreate, v.uid, c.Name, v.createdAt(c.Name)): // a call whose answer was lost may have created the container
		return situation{what: "a container cannot be created", causes: []why.Cause{why.CreateFails}}
	case v.agent.failed(callStart, v.uid, c.Name):
		return situation{what: "a container cannot be started", causes: startCauses}
	case in == nil:
		in = v.newestOf[string(v.uid)+"/"+c.Name] // the container ended in an earlier sandbox
	}
	if !v.agent.hasServices {
		return situation{what: "the agent has not received the services", causes: []why.Cause{why.ConfigInvalid, why.CrashLoop, why.EndedRestarts, why.ContainerStarts}}
	}
	if in == nil || !in.Exited {
		return situation{what: "a container has not been started", causes: []why.Cause{why.ContainerStarts, why.EndedRestarts, why.StartupPending}}
	}
	if cause, is := v.doomed[in.ID]; is {
		return situation{what: "a container that was ended waits for its restart: " + cause.why, causes: v.doomCauses(cause.why)}
	}
	return situation{what: "a container that ended waits for its restart", causes: []why.Cause{why.CrashLoop, why.EndedRestarts, why.OutOfMemory}}
}
