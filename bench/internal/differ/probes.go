package differ

import (
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// The functions in this file calculate when the probes of a container instance succeed and fail, from the spec and the container's Play
// (its script). The results are intervals, because the exact moments at which an agent probes are not known.

// container returns the init or main container with this name, or nil.
func (c *Case) container(name string) *v1.Container {
	for _, list := range [][]v1.Container{c.Spec.InitContainers, c.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// probe returns the startup, liveness or readiness probe of a container; nil: the container has no such probe.
func (c *Case) probe(name, probe string) *v1.Probe {
	x := c.container(name)
	if x == nil {
		return nil
	}
	return map[string]*v1.Probe{"startup": x.StartupProbe, "liveness": x.LivenessProbe, "readiness": x.ReadinessProbe}[probe]
}

// never is later than any time of a case. It stands for an event that does not happen.
const never = 1 << 60

// interval is a range of times, counted from the start of a container instance.
type interval struct{ first, last time.Duration }

// asked returns when a probe of an instance runs first: after its initialDelaySeconds and, if the container has a startup probe, after the
// startup probe has succeeded.
func (c *Case) asked(name, probe string, p Play) interval {
	delay := time.Duration(c.probe(name, probe).InitialDelaySeconds) * time.Second
	first := interval{delay, delay + probed}
	if probe == "startup" || c.probe(name, "startup") == nil {
		return first
	}
	began := c.starts(name, p)
	if began.first == never {
		return interval{never, never}
	}
	// Wherry may count the first failure only one period after the success of the startup probe.
	return interval{max(first.first, began.first), max(first.last, began.last+probed)}
}

// starts returns when the startup probe of an instance succeeds.
func (c *Case) starts(name string, p Play) interval {
	spec := c.probe(name, "startup")
	at := c.asked(name, "startup", p)
	w, fails := p.Fails["startup"]
	if !fails || !w.has(at.first) {
		return at
	}
	if w.To == 0 || c.threshold(spec) <= w.To-at.last {
		return interval{never, never}
	}
	return interval{w.To, w.To + probed}
}

// threshold returns the time from the first failure of a probe until it reaches its failureThreshold. The period of all probes is one
// second.
func (c *Case) threshold(p *v1.Probe) time.Duration {
	return time.Duration(max(p.FailureThreshold, 1)-1) * time.Second
}

// fails returns when a probe fails first (an interval), and until when it continues to fail.
func (c *Case) fails(name, probe string, p Play) (first interval, until time.Duration) {
	w, fails := p.Fails[probe]
	if c.probe(name, probe) == nil || !fails {
		return interval{never, never}, never
	}
	asked := c.asked(name, probe, p)
	first = interval{max(asked.first, w.From), max(asked.last, w.From+probed)}
	if until = w.To; until == 0 {
		until = never
	}
	return first, until
}

// kills returns when a liveness or startup probe reaches its failureThreshold, so that the agent has to stop the container. maybe is true
// if the timing decides whether it reaches the threshold before it succeeds again or the container exits.
func (c *Case) kills(name, probe string, p Play) (at interval, maybe bool) {
	first, until := c.fails(name, probe, p)
	if first.first == never {
		return first, false
	}
	more := c.threshold(c.probe(name, probe))
	at = interval{first.first + more, first.last + more}
	most := until
	if p.Exits { // an exit and a failure at the same moment: an agent may see either first
		most, until = min(most, p.Runs+atOnce), min(until, p.Runs)
	}
	if at.first >= most {
		return interval{never, never}, false
	}
	return at, at.last >= until
}

// tells reports whether the agent of the trace may have seen the probe of a running container fail (may), and whether it must have seen a
// failure, whatever the timing (must).
func (d *differ) tells(t *Trace, name, probe string) (may, must bool) {
	for attempt, in := range t.instances(name) {
		p := d.c.play(name, attempt%lifeAttempts)
		first, until := d.c.fails(name, probe, p)
		if p.StartError != "" || first.first == never {
			continue
		}
		runs, asked := t.Ended.Sub(in.began), t.Ended.Sub(in.began)
		if p.Exits {
			runs, asked = min(runs, p.Runs), min(asked, p.Runs)
		}
		if !in.stopped.IsZero() {
			asked = min(asked, in.stopped.Sub(in.began))
		}
		for _, a := range d.c.Acts {
			if lost := t.Created.Add(a.At).Sub(in.began); a.Do == LoseSandbox && lost > 0 { // the instance ends with its sandbox
				runs, asked = min(runs, lost), min(asked, lost)
			}
		}
		if probe != "readiness" { // readiness probes continue while the container has its grace period
			asked = min(asked, d.ends(t).Sub(in.began))
			runs = asked
		} else if failed := t.tellsFailed(); t == d.upstream && !failed.IsZero() { // see classReadyOfFailed
			asked = min(asked, failed.Add(-time.Second).Sub(in.began))
		}
		may = may || first.first <= min(runs+probed, until)
		surely := first.last
		if hook := p.Slow["postStart"]; hook > 0 { // an agent need not probe a container before its postStart hook has ended
			surely = max(surely, hook+probed)
		}
		must = must || t.killedBy(name, probe) || surely < min(asked, until)
	}
	return may, must
}

// killedBy reports whether an event says that the agent stopped a container because this probe failed.
func (t *Trace) killedBy(name, probe string) bool {
	for k, e := range t.Events {
		if strings.HasPrefix(k, "Normal Killing ") && containerOf(k) == name && strings.Contains(e.Message, " failed "+probe+" probe") {
			return true
		}
	}
	return false
}

// unreported reports whether the timing explains that only one agent reports failures of a probe: that agent may have seen a failure, and
// the other agent need not have seen one.
func (d *differ) unreported(name, probe string, u, w Event) bool {
	if (u.Count > 0) == (w.Count > 0) {
		return false
	}
	mayU, mustU := d.tells(d.upstream, name, probe)
	mayW, mustW := d.tells(d.wherry, name, probe)
	// A TCP probe of a container that has just exited is refused too.
	silent := d.c.probe(name, probe) != nil && d.c.probe(name, probe).TCPSocket != nil
	if u.Count > 0 {
		return (mayU || silent && d.upstream.ended(d.c, name)) && !mustW
	}
	return (mayW || silent && d.wherry.ended(d.c, name)) && !mustU
}

// ended reports whether an instance of the container was stopped, exited by itself or was lost with its sandbox.
func (t *Trace) ended(c *Case, name string) bool {
	lost := c.losesSandbox()
	for attempt, in := range t.instances(name) {
		if lost || !in.stopped.IsZero() || c.play(name, attempt%lifeAttempts).Exits {
			return true
		}
	}
	return false
}

// askedInTheEnd reports whether only upstream's kubelet reports that a liveness or startup probe of a sidecar failed, and the failure
// came after the pod's end had begun.
func (d *differ) askedInTheEnd(name, probe string, u, w Event) bool {
	if u.Count == 0 || w.Count > 0 || probe == "readiness" || d.c.kind(name) != "sidecar" {
		return false
	}
	may, _ := d.tells(d.upstream, name, probe)
	return !may && d.failsAfter(d.upstream, name, probe)
}

// failsAfter reports whether an instance of a container still ran when the pod's end began, and its probe failed after that.
func (d *differ) failsAfter(t *Trace, name, probe string) bool {
	for attempt, in := range t.instances(name) {
		p := d.c.play(name, attempt%lifeAttempts)
		first, until := d.c.fails(name, probe, p)
		ends := d.ends(t).Sub(in.began)
		last := t.Ended.Sub(in.began)
		if !in.stopped.IsZero() {
			grace := time.Duration(ptr.Deref(d.c.Spec.TerminationGracePeriodSeconds, 30)) * time.Second
			last = in.stopped.Sub(in.began) + slowEnd
			if slices.Contains(in.calls, "preStop") { // the instance gets its SIGTERM after the hook
				last += min(p.Slow["preStop"], grace)
			}
			if p.Term == TermIgnored { // the instance runs until the runtime kills it
				last = in.stopped.Sub(in.began) + grace
			}
		}
		if first.first < last && until > ends && (!p.Exits || p.Runs > ends) {
			return true
		}
	}
	return false
}

// probeOf returns the probe in the key of an event with the reason Unhealthy: liveness, readiness or startup. It returns "" for other
// events.
func probeOf(key string) string {
	fields := strings.Fields(key)
	if fields[1] != "Unhealthy" {
		return ""
	}
	if len(fields) > 3 {
		return strings.ToLower(fields[2])
	}
	return ""
}

// readySooner reports whether the values w of readiness, or of a condition that depends on it, only say that containers were ready that exit by
// themselves sooner than an agent needs that asks once in each period of their probes. wherry has all values that Wherry reported.
func (d *differ) readySooner(aspect, name string, wherry []span, w []string) bool {
	switch {
	case strings.HasPrefix(aspect, "readiness"):
		return stood(wherry, w, func(s span) bool { return d.exitsBeforeReady(name, s) })
	case strings.HasPrefix(aspect, "condition Ready"), strings.HasPrefix(aspect, "condition ContainersReady"):
		return stood(wherry, w, func(s span) bool {
			return s.value == "True" && slices.ContainsFunc(d.c.containers(), func(name string) bool {
				return slices.ContainsFunc(d.wherry.readiness(name), func(one span) bool {
					return one.since.Sub(s.since).Abs() < time.Second && d.exitsBeforeReady(name, one) && !slices.Contains(values(d.upstream.readiness(name)), one.value)
				})
			})
		})
	}
	return false
}

// exitsBeforeReady reports whether s says that an instance of a container is ready, and the instance exits by itself before an agent that asks once
// in each period of the container's probes has heard of enough successes.
func (d *differ) exitsBeforeReady(name string, s span) bool {
	number, ready := strings.CutSuffix(s.value, " ready=true started=true")
	attempt, err := strconv.Atoi(number)
	if !ready || err != nil {
		return false
	}
	var needs time.Duration
	for _, probe := range []string{"startup", "readiness"} {
		if p := d.c.probe(name, probe); p != nil {
			// The first probe of an agent that has just started the container, or learned of its start, may come a period later.
			needs += time.Duration(p.InitialDelaySeconds+max(p.PeriodSeconds, 1)*(max(p.SuccessThreshold, 1)+1)) * time.Second
		}
	}
	p := d.c.play(name, uint32(attempt)%lifeAttempts) //nolint:gosec // a small number
	return d.c.probe(name, "readiness") != nil && p.Exits && p.Runs < needs
}
