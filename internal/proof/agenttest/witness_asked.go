package agenttest

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// asked checks a call of an agent before the runtime executes it. The function done is called when the call has ended.
func (w *Witness) asked(t *learned, in any) (done func()) {
	note := w.shortage.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	note()
	switch r := in.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		uid := types.UID(r.GetConfig().GetMetadata().GetUid())
		w.creator[uid] = w.agents
		return w.starting(t, r.GetConfig(), "a sandbox")
	case *runtimeapi.CreateContainerRequest:
		return w.starting(t, r.GetSandboxConfig(), "container "+r.GetConfig().GetMetadata().GetName())
	case *runtimeapi.PullImageRequest:
		return w.starting(t, r.GetSandboxConfig(), "image "+r.GetImage().GetImage())
	case *runtimeapi.StartContainerRequest:
		if c := w.containers[r.ContainerId]; c != nil {
			return w.startingIn(t, c.UID, c.Pod, "the start of container "+c.Name)
		}
	case *runtimeapi.StopContainerRequest:
		w.stopping(r.ContainerId, time.Duration(r.Timeout)*time.Second)
	case *runtimeapi.RemoveContainerRequest:
		w.killing(w.containers[r.ContainerId], "is removed")
	case *runtimeapi.StopPodSandboxRequest:
		w.mayStopSandbox(r.PodSandboxId)
		w.killingAll(r.PodSandboxId)
	case *runtimeapi.RemovePodSandboxRequest:
		w.killingAll(r.PodSandboxId)
	}
	return func() {}
}

// starting checks that an agent starts nothing in a pod if the agent knows that the pod ends, or has never received the pod from a source.
func (w *Witness) starting(t *learned, c *runtimeapi.PodSandboxConfig, what string) func() {
	uid, name := types.UID(c.GetMetadata().GetUid()), c.GetMetadata().GetName()
	if w.pods[uid] != nil {
		if !t.known[uid] {
			w.broken(RuleEnding, "pod %s: an agent that never received the pod requests %s", name, what)
		}
		return w.startingIn(t, uid, name, what)
	}
	// The UID of a static pod has no dashes. So a UID with dashes is from the API, unless the pod has the name of a static pod, whose
	// manifest may have any UID.
	if strings.Contains(string(uid), "-") && !strings.HasSuffix(name, pod.StaticSuffix(NodeName)) {
		w.broken(RuleEnding, "%s is asked for in a pod that the API never had: %s", what, uid)
		return func() {}
	}
	version := c.GetAnnotations()[annotationVersion]
	if version == "" {
		return func() {} // the Witness knows only manifests that the test has registered
	}
	full := c.GetMetadata().GetNamespace() + "/" + name
	if w.manifests[full] == nil {
		w.broken(RuleStatic, "pod %s: %s is asked for, and it never had a manifest", name, what)
		return func() {}
	}
	w.staticOf(uid, full, version)
	return w.startingIn(t, uid, name, what)
}

func (w *Witness) startingIn(t *learned, uid types.UID, name, what string) func() {
	known := t.ending[uid]
	if st := w.statics[uid]; st != nil {
		known = w.manifestKnown(st)
	}
	w.count(RuleEnding, "")
	if !t.begin(uid, known) {
		w.broken(RuleEnding, "pod %s: %s is requested %s after the agent learned that the pod ends", name, what, time.Since(known))
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		t.done(uid)
	}
}

// stopping checks a call of StopContainer for the container with this ID.
func (w *Witness) stopping(id string, timeout time.Duration) {
	in := w.containers[id]
	if in == nil || !in.Running {
		return
	}
	w.mayStop(in)
	until := time.Now().Add(timeout)
	w.causes(in) // records whether the agent may evict the pod for memory
	if timeout <= 0 && !w.shortage.killable[in.UID] {
		w.killing(in, "is killed")
		return
	}
	w.mayKill(in, until)
	if was, again := w.termed[id]; !again || until.Before(was) {
		w.termed[id] = until
	}
}

// killing checks a call that kills a container at once. A StopContainer must have come before, and its timeout must have passed.
func (w *Witness) killing(in *Instance, how string) {
	if in == nil {
		return
	}
	w.count(RuleTerm, "")
	if !in.Running {
		return
	}
	until, asked := w.termed[in.ID]
	switch {
	case !asked:
		w.broken(RuleTerm, "pod %s: container %s %s without being asked to end", in.Pod, in.Name, how)
	case time.Now().Before(until):
		w.broken(RuleTerm, "pod %s: container %s %s %s before the time to end that it was given is over", in.Pod, in.Name, how, time.Until(until))
	}
	w.mayKill(in, time.Now())
}

func (w *Witness) killingAll(sandbox string) {
	for _, c := range w.containers {
		if c.Sandbox == sandbox {
			w.killing(c, "loses its sandbox")
		}
	}
}

// mayKill checks a kill of a container at the time at: the grace period of the container must have passed by then.
func (w *Witness) mayKill(in *Instance, at time.Time) {
	causes := w.causes(in)
	if len(causes) == 0 {
		return // mayStop reports a stop without a cause
	}
	var soonest time.Time
	var why cause
	for i, c := range causes {
		if c.grace < 0 {
			w.count(RuleGrace, c.why)
			return
		}
		// If several causes end the whole pod, the earliest beginning and the shortest grace period count.
		for _, o := range causes[:i] {
			if c.whole && o.whole {
				c.grace = min(c.grace, o.grace)
				if o.since.Before(c.since) {
					c.since = o.since
				}
			}
		}
		if by := c.since.Add(c.grace); soonest.IsZero() || by.Before(soonest) {
			soonest, why = by, c
		}
	}
	w.count(RuleGrace, "")
	if early := soonest.Sub(at); early > rounding {
		w.broken(RuleGrace, "pod %s: container %s is to be killed %s before its grace period is over (%s since %s, and it has %s)",
			in.Pod, in.Name, early, why.why, why.since.Format(time.TimeOnly), why.grace)
	}
}

// rounding is the tolerance of comparisons with times in whole seconds: times in the API, and the timeout of StopContainer.
const rounding = 1500 * time.Millisecond

// mayStop checks that there is a cause when an agent stops a running container.
func (w *Witness) mayStop(in *Instance) {
	if w.specOf(in.UID) == nil {
		w.count(RuleUncalled, "a pod that the test does not register")
		return
	}
	w.count(RuleUncalled, "")
	if _, again := w.termed[in.ID]; again || len(w.causes(in)) > 0 {
		return
	}
	rule := RuleUncalled
	if w.statics[in.UID] != nil {
		rule = RuleStatic
	}
	w.suspects = append(w.suspects, suspect{in.ID, Violation{rule, time.Now(),
		fmt.Sprintf("pod %s: container %s, attempt %d, is stopped, and the agent knows no reason", in.Pod, in.Name, in.Attempt)}})
}

// suspect is a possible violation. It is dropped if a cause for the stop is recorded at the same instant, because the agent may learn of a
// failed probe before the Witness does.
type suspect struct {
	id string
	Violation
}

// mayStopSandbox checks that there is a cause when an agent stops the sandbox of a pod.
func (w *Witness) mayStopSandbox(id string) {
	s := w.sandboxes[id]
	if s == nil || !s.ready || w.specOf(s.uid) == nil {
		return
	}
	in := &Instance{UID: s.uid, Sandbox: id, Created: s.since, Started: s.since}
	in.Namespace, in.Pod, _ = strings.Cut(s.name, "/")
	w.count(RuleUncalled, "")
	if len(w.causes(in)) == 0 {
		w.broken(RuleUncalled, "pod %s: its sandbox is stopped, and the agent knows no reason", in.Pod)
	}
}
