package why

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// containers fills the answer for the first container that is not as it should be. It checks the init containers in their order, then
// the main containers. A main container of level Trouble comes before one of level Progress.
func containers(in *Input, a *Answer) bool {
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		if initContainer(in, a, c) {
			return true
		}
	}
	found := false
	for i := range in.Pod.Spec.Containers {
		var next Answer
		if main(in, &next, &in.Pod.Spec.Containers[i]) && (!found || next.Level > a.Level) {
			*a, found = next, true
		}
	}
	return found
}

// initContainer fills the answer for an init container that has not completed, or for a sidecar that is not ready. It returns false
// if there is nothing to report.
func initContainer(in *Input, a *Answer, c *v1.Container) bool {
	s := pod.StatusOf(&in.Pod.Status, c.Name)
	if s == nil {
		return starts(in, a, c.Name, nil)
	}
	if pod.IsSidecar(c) {
		return main(in, a, c)
	}
	if end := s.State.Terminated; end != nil {
		if end.ExitCode == 0 {
			return false
		}
		a.Container, a.Since = c.Name, end.FinishedAt.Time
		a.set(InitFailed, "init container %q %s", c.Name, endText(end))
		a.lastWords(end)
		a.do("%s", logsCommand(in, c.Name, false))
		return true
	}
	if s.State.Running != nil {
		a.Container, a.Since = c.Name, s.State.Running.StartedAt.Time
		a.set(InitRuns, "init container %q runs, and has to complete before the next container starts", c.Name)
		a.then(time.Time{}, "the next container starts when it ends with exit code 0")
		a.do("%s", logsCommand(in, c.Name, false))
		return true
	}
	return waits(in, a, c.Name, s)
}

// main fills the answer for a main container or a sidecar. It returns false if there is nothing to report, for example because the
// container runs and is ready.
func main(in *Input, a *Answer, c *v1.Container) bool {
	s := pod.StatusOf(&in.Pod.Status, c.Name)
	if s == nil {
		return starts(in, a, c.Name, nil)
	}
	if restarts(in, a, s) {
		return true
	}
	switch {
	case s.State.Running != nil:
		return runs(in, a, s)
	case s.State.Terminated != nil:
		return ended(in, a, s, s.State.Terminated)
	}
	return waits(in, a, c.Name, s)
}

// restarts fills the answer while the node ends a container to start it again. It does not require that the status shows the
// container as running: a container whose postStart hook has failed was never reported as running.
func restarts(in *Input, a *Answer, s *v1.ContainerStatus) bool {
	if in.Turn == nil {
		return false
	}
	i := slices.IndexFunc(in.Turn.Memory.Ends, func(e decide.End) bool {
		return e.Name == s.Name && slices.ContainsFunc(in.Turn.Observed.Containers, func(c pod.Container) bool { return c.ID == e.ID && c.Alive() })
	})
	if i < 0 {
		return false
	}
	end := &in.Turn.Memory.Ends[i]
	a.Container, a.Since = s.Name, end.Began
	switch end.Cause {
	case pod.CauseLiveness:
		a.set(LivenessRestarts, "the liveness probe of container %q failed, so the container is being restarted", s.Name)
	case pod.CauseStartup:
		a.set(StartupRestarts, "the startup probe of container %q failed, so the container is being restarted", s.Name)
	case pod.CausePostStart:
		a.set(PostStartFails, "the postStart hook of container %q failed, so the container is being ended", s.Name)
		if cm := in.Turn.Memory.Container(s.Name); cm != nil {
			a.fact("hook", cm.WaitingMessage)
		}
	default:
		a.set(DefinitionRestarts, "container %q is being restarted (%s)", s.Name, end.Cause)
	}
	a.probeFact(in, s.Name)
	a.then(time.Time{}, "it starts again when it has ended")
	return true
}

// runs fills the answer for a container that runs and is not ready.
func runs(in *Input, a *Answer, s *v1.ContainerStatus) bool {
	a.Container, a.Since = s.Name, s.State.Running.StartedAt.Time
	switch {
	case hooks(in, a, s.Name):
	case s.Started != nil && !*s.Started:
		a.set(StartupPending, "container %q runs, and its startup probe has not succeeded yet", s.Name)
		a.probeFact(in, s.Name)
	case !s.Ready:
		p := in.failing(s.Name, "readiness")
		if p == nil {
			a.set(ReadinessPending, "container %q runs, and its readiness probe has not succeeded yet", s.Name)
			break
		}
		a.set(ReadinessFails, "container %q runs, and its readiness probe fails", s.Name)
		a.probeFact(in, s.Name)
		a.do("%s", logsCommand(in, s.Name, false))
	default:
		*a = Answer{}
		return false
	}
	return true
}

// hooks fills the answer while the postStart hook of a container runs.
func hooks(in *Input, a *Answer, name string) bool {
	f := in.flightOf(name, pod.OpPostStart)
	if f == nil {
		return false
	}
	a.set(PostStartRuns, "the postStart hook of container %q runs, and the container counts as started when the hook ends", name)
	a.Container, a.Since = name, f.Began
	return true
}

// ended fills the answer for a main container that has ended while the pod has not.
func ended(in *Input, a *Answer, s *v1.ContainerStatus, end *v1.ContainerStateTerminated) bool {
	c := pod.SpecOf(in.Pod, s.Name)
	policy := in.Pod.Spec.RestartPolicy
	if c != nil && c.RestartPolicy != nil {
		policy = v1.RestartPolicy(*c.RestartPolicy)
	}
	a.Container, a.Since = s.Name, end.FinishedAt.Time
	switch {
	case policy == v1.RestartPolicyAlways, policy == v1.RestartPolicyOnFailure && end.ExitCode != 0:
		a.set(endCause(end, EndedRestarts), "container %q %s, and starts again", s.Name, endText(end))
	case end.ExitCode == 0:
		*a = Answer{}
		return false // the container has completed, and the other containers of the pod continue
	default:
		a.set(Failed, "container %q %s, and is not started again", s.Name, endText(end))
	}
	a.lastWords(end)
	a.do("%s", logsCommand(in, s.Name, false))
	return true
}

// waits fills the answer for a container in the state waiting.
func waits(in *Input, a *Answer, name string, s *v1.ContainerStatus) bool {
	reason, message := "", ""
	if w := s.State.Waiting; w != nil {
		reason, message = w.Reason, w.Message
	}
	a.Container = name
	switch {
	case reason == "CrashLoopBackOff":
		crashed(in, a, s)
		return true
	case decide.PullReason(reason), reason == "ImagePullBackOff":
		pullFails(in, a, name, reason, message)
		return true
	case reason == "CreateContainerConfigError":
		a.set(ConfigInvalid, "the configuration of container %q cannot be made: %s", name, message)
	case reason == "CreateContainerError":
		a.set(match(startWords, message, CreateFails), "the runtime cannot create container %q", name)
	case reason == "RunContainerError", reason == "StartError":
		a.set(match(startWords, message, StartFails), "the runtime cannot start container %q", name)
	case reason == "PostStartHookError":
		a.set(PostStartFails, "the postStart hook of container %q failed", name)
	default:
		return starts(in, a, name, s)
	}
	if a.Cause != ConfigInvalid {
		a.fact("error", message)
	}
	if cm := in.memory(name); cm != nil && in.Now.Before(cm.StartUntil) {
		a.then(cm.StartUntil, "the node tries again")
	}
	return true
}

// starts fills the answer for a container that has not failed and does not run yet.
func starts(in *Input, a *Answer, name string, s *v1.ContainerStatus) bool {
	a.Container = name
	if f := in.flightOf(name, pod.OpPullImage); f != nil {
		image := ""
		if c := pod.SpecOf(in.Pod, name); c != nil {
			image = c.Image
		}
		a.set(Pulling, "the image of container %q is being pulled: %s", name, image)
		a.Since = f.Began
		pulling(in, a, image)
		return true
	}
	if f := in.flightOf(name, pod.OpStartContainer); f != nil {
		a.set(ContainerStarts, "the runtime starts container %q", name)
		a.Since = f.Began
		return true
	}
	if hooks(in, a, name) {
		return true
	}
	if s != nil && s.LastTerminationState.Terminated != nil {
		end := s.LastTerminationState.Terminated
		a.set(EndedRestarts, "container %q %s, and starts again", name, endText(end))
		a.Since = end.FinishedAt.Time
		return true
	}
	*a = Answer{}
	return false
}

// crashed fills the answer for a container that waits for its back-off.
func crashed(in *Input, a *Answer, s *v1.ContainerStatus) {
	end := s.LastTerminationState.Terminated
	if end == nil {
		end = &v1.ContainerStateTerminated{} // the status does not say how the container ended
	}
	a.Since = end.FinishedAt.Time
	a.set(endCause(end, CrashLoop), "container %q %s; it has been restarted %s", s.Name, endText(end), times(s.RestartCount))
	if cm := in.memory(s.Name); cm != nil {
		switch cm.ReplacedFor {
		case pod.CauseLiveness:
			a.set(LivenessRestarts, "container %q was ended because its liveness probe failed; it has been restarted %s", s.Name, times(s.RestartCount))
		case pod.CauseStartup:
			a.set(StartupRestarts, "container %q was ended because its startup probe failed; it has been restarted %s", s.Name, times(s.RestartCount))
		}
		if id := pod.BareID(end.ContainerID); cm.PostStartFailed && id != "" && cm.PostStartedID == id {
			a.set(PostStartFails, "container %q was ended because its postStart hook failed; it has been restarted %s", s.Name, times(s.RestartCount))
		}
		if in.Now.Before(cm.CrashUntil) {
			a.then(cm.CrashUntil, "the container starts again")
		}
	}
	a.lastWords(end)
	if a.Cause == OutOfMemory {
		if c := pod.SpecOf(in.Pod, s.Name); c != nil {
			if limit, ok := c.Resources.Limits[v1.ResourceMemory]; ok {
				a.fact("memory limit", limit.String())
			} else {
				a.fact("memory limit", "the container has none, so the limit is that of the pod or the memory of the node")
			}
		}
		if in.MemoryPeak > 0 {
			a.fact("memory peak", fmt.Sprintf("all containers of the pod together used up to %s", resource.NewQuantity(int64(in.MemoryPeak), resource.BinarySI)))
		}
		a.do("raise resources.limits.memory of the container, or make it use less")
	}
	a.do("%s", logsCommand(in, s.Name, true))
}

// pullFails fills the answer for a container whose image cannot be pulled.
func pullFails(in *Input, a *Answer, name, reason, message string) {
	image, detail := "", message
	cm := in.memory(name)
	if cm != nil {
		image = cm.PullFailed
		if cm.WaitingMessage != "" {
			reason, detail = cm.WaitingReason, cm.WaitingMessage // the status says only that the pull waits for its back-off
		}
	}
	if image == "" {
		if c := pod.SpecOf(in.Pod, name); c != nil {
			image = c.Image
		}
	}
	cause := pullCause(reason, detail)
	a.set(cause, "%s: %s", pullTexts[cause], image)
	a.fact("error", detail)
	if cm != nil && in.Now.Before(cm.PullUntil) {
		a.then(cm.PullUntil, "the node pulls again")
	}
	switch cause {
	case ImageDenied:
		a.do("give the pod an imagePullSecret for this registry, or the node a credential provider")
	case ImageNotFound, ImageNameInvalid:
		a.do("check the image's name and tag for a typing error")
	case RegistryAway:
		a.do("see whether this node reaches the registry: crictl pull %s", image)
	case ImageNeverPulled:
		a.do("load the image on the node, or change imagePullPolicy")
	}
}

// pullTexts says what is wrong with an image, by cause.
var pullTexts = map[Cause]string{
	ImageNotFound: "the registry does not have the image", ImageDenied: "the registry does not give the image to this node",
	RegistryAway: "the registry of the image cannot be reached", PullFails: "the image cannot be pulled",
	ImageNameInvalid: "the name of the image is not valid", ImageUnverified: "the signature of the image is not valid",
	ImageNeverPulled: "the image is not on the node, and imagePullPolicy Never forbids to pull it",
}

// endCause returns OutOfMemory for a container that the kernel killed because of its memory, and a cause from startWords (or StartFails)
// for a container that could not be started. For any other end it returns the argument other.
func endCause(end *v1.ContainerStateTerminated, other Cause) Cause {
	switch end.Reason {
	case "OOMKilled":
		return OutOfMemory
	case "StartError":
		return match(startWords, end.Message, StartFails)
	}
	return other
}

// endText says how a container ended.
func endText(end *v1.ContainerStateTerminated) string {
	switch {
	case end.Reason == "OOMKilled":
		return "was killed because it used more memory than it may"
	case end.Reason == "ContainerStatusUnknown":
		return "is lost: the runtime does not know how it ended"
	case end.Reason == "StartError":
		return "could not be started"
	case end.FinishedAt.IsZero() && end.ExitCode == 0:
		return "ended, and how is not known"
	case end.ExitCode > 128 && end.ExitCode < 128+65:
		return fmt.Sprintf("ended by signal %d (exit code %d)", end.ExitCode-128, end.ExitCode)
	}
	return fmt.Sprintf("ended with exit code %d", end.ExitCode)
}

// probeFact adds the output of the first failing probe of the container.
func (a *Answer) probeFact(in *Input, container string) {
	for i := range in.Failing {
		if p := &in.Failing[i]; p.Container == container {
			a.fact(fmt.Sprintf("%s probe, %d of %d failures", p.Kind, p.Times, p.Threshold), p.Output)
			return
		}
	}
}

func (in *Input) failing(container, kind string) *FailingProbe {
	for i := range in.Failing {
		if p := &in.Failing[i]; p.Container == container && p.Kind == kind {
			return p
		}
	}
	return nil
}

func (in *Input) memory(name string) *decide.ContainerMemory {
	if in.Turn == nil {
		return nil
	}
	return in.Turn.Memory.Container(name)
}

// logsCommand returns the command that prints the output of a container.
func logsCommand(in *Input, container string, previous bool) string {
	flag := ""
	if previous {
		flag = " --previous"
	}
	return fmt.Sprintf("see its output: %s logs -n %s %s -c %s%s", client(in), in.Pod.Namespace, in.Pod.Name, container, flag)
}

// nodeCommand returns the command that shows the state of the node.
func nodeCommand(in *Input) string {
	if in.Standalone {
		return "wherry explain node"
	}
	return "kubectl describe node " + in.Pod.Spec.NodeName
}

// client returns the command-line program that reaches the pod: kubectl, or wherry on a node without an API server.
func client(in *Input) string {
	if in.Standalone {
		return "wherry"
	}
	return "kubectl"
}

// times returns a phrase that says how often something happened.
func times(n int32) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// Arrived says how much of an image has arrived, and when data last arrived; "": it is not known.
func (p *Pull) Arrived(now time.Time) string {
	if p.Queued || !p.Reported {
		return ""
	}
	text := fmt.Sprintf("%.1f MiB", float64(p.Received)/(1<<20))
	if p.Total > 0 {
		text += fmt.Sprintf(" of %.1f MiB", float64(p.Total)/(1<<20))
	}
	if p.Running > 1 {
		text += fmt.Sprintf(", of %d images together", p.Running)
	}
	return fmt.Sprintf("%s, the last data %v ago", text, now.Sub(p.Moved).Round(time.Second))
}

// pulling adds what is known about the pull of an image.
func pulling(in *Input, a *Answer, image string) {
	i := slices.IndexFunc(in.Pulls, func(p Pull) bool { return p.Image == image })
	if i < 0 {
		return
	}
	p := &in.Pulls[i]
	if p.Queued {
		a.fact("waits", fmt.Sprintf("for %d other image pulls (serializeImagePulls, maxParallelImagePulls)", p.Running))
		return
	}
	a.fact("stalled", p.Stalled)
	if !p.Reported {
		return
	}
	a.fact("arrived", p.Arrived(in.Now))
	if p.Stalled != "" {
		a.do("try the same pull without the agent: crictl pull %s", pod.Text(image))
	}
}
