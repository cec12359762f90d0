package differ

import (
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// ErrSlow says that upstream's kubelet reported a running container to the API very late. The case would then show the speed of the
// machine and not the behaviour of the agents, so it is not compared.
var ErrSlow = errors.New("upstream's kubelet is too slow on this machine")

// tellsWithin is the longest time that an agent on a fast enough machine needs to report the start of a container to the API.
const tellsWithin = 6 * time.Second

// slow describes a container that ran long enough and that the agent nevertheless reported to the API too late, or never; "": there is
// none. The agent may take longer by the time that postStart hooks take.
func (t *Trace) slow(c *Case) string {
	within := tellsWithin + c.slowestHook()
	for _, a := range c.Acts {
		if a.Do == DeleteMirror {
			return "" // upstream reports nothing after the deletion of its mirror
		}
	}
	for _, call := range t.Calls {
		if call.Verb != "StartContainer" || call.Failed {
			continue
		}
		p := c.play(call.Container, call.Attempt%lifeAttempts)
		if p.StartError != "" || p.Exits && p.Runs < within || t.endsBefore(call, call.At.Add(within)) || t.down(call.At, call.At.Add(within)) {
			continue
		}
		if !t.reported(call, within) {
			for late := within; late < time.Minute; late += time.Second {
				if t.reported(call, late) {
					return fmt.Sprintf("%s#%d, started after %s, shown %s later", call.Container, call.Attempt, call.At.Sub(t.Created).Round(time.Second), late)
				}
			}
			return fmt.Sprintf("%s#%d, started after %s, never shown", call.Container, call.Attempt, call.At.Sub(t.Created).Round(time.Second))
		}
	}
	return ""
}

// down reports whether a restart stopped the agent at any moment between from and to, so that it sent no statuses then.
func (t *Trace) down(from, to time.Time) bool {
	return slices.ContainsFunc(t.Downs, func(d Down) bool { return d.From.Before(to) && d.To.After(from) })
}

// reported reports whether the API showed the container as running within the given time after the call that started it.
func (t *Trace) reported(call Call, within time.Duration) bool {
	for _, s := range t.Statuses {
		if s.At.Before(call.At) || s.At.After(call.At.Add(within)) {
			continue
		}
		st := statusOf(s.Pod, call.Container)
		if st != nil && st.State.Running != nil && !st.State.Running.StartedAt.Time.Before(call.At.Add(-2*time.Second)) {
			return true
		}
	}
	return false
}

// endsBefore reports whether, between the start of a container and the time at, the agent stopped the container, the sandbox ended or the
// pod was deleted.
func (t *Trace) endsBefore(start Call, at time.Time) bool {
	if !t.Deleted.IsZero() && t.Deleted.Before(at) {
		return true
	}
	for _, call := range t.Calls {
		if call.At.Before(start.At) || call.At.After(at) {
			continue
		}
		switch call.Verb {
		case "StopContainer":
			if call.Container == start.Container {
				return true
			}
		case "StopPodSandbox", "RunPodSandbox":
			return true
		}
	}
	return false
}

// slowestHook returns the longest time that the postStart hooks of all containers take in total.
func (c *Case) slowestHook() (all time.Duration) {
	for _, list := range [][]v1.Container{c.Spec.InitContainers, c.Spec.Containers} {
		for _, x := range list {
			most := time.Duration(0)
			for _, p := range c.Plays[x.Name] {
				most = max(most, p.Slow["postStart"])
			}
			all += most
		}
	}
	return all
}
