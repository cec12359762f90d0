package differ

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// This file calculates the results of an instance's probes. They follow from the spec and the play, except for the moment at
// which an agent asks.

// container returns the init or main container of a name, or nil.
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

// probe returns a probe of a container, or nil.
func (c *Case) probe(name, probe string) *v1.Probe {
	x := c.container(name)
	if x == nil {
		return nil
	}
	return map[string]*v1.Probe{"startup": x.StartupProbe, "liveness": x.LivenessProbe, "readiness": x.ReadinessProbe}[probe]
}

// never is later than any case lasts.
const never = 1 << 60

// interval is a range of times since the start of an instance.
type interval struct{ first, last time.Duration }

// asked returns when a probe runs for the first time: after its delay, and after the success of the startup probe if there is one.
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
	// Wherry counts a failure only one period after the startup probe's success.
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

// threshold returns the time between a probe's first failure and the failure that reaches its threshold: one period of a second
// for each further failure.
func (c *Case) threshold(p *v1.Probe) time.Duration {
	return time.Duration(max(p.FailureThreshold, 1)-1) * time.Second
}

// fails returns when a probe first fails, and when it fails no longer.
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

// kills returns when a liveness or startup probe has failed so often that the container must end, and maybe is true if that
// depends on the timing.
func (c *Case) kills(name, probe string, p Play) (at interval, maybe bool) {
	first, until := c.fails(name, probe, p)
	if first.first == never {
		return first, false
	}
	more := c.threshold(c.probe(name, probe))
	at = interval{first.first + more, first.last + more}
	if p.Exits {
		until = min(until, p.Runs)
	}
	if at.first >= until {
		return interval{never, never}, false
	}
	return at, at.last >= until
}

// tells returns whether a side may have seen a probe of a container fail while the container ran, and whether the side must have seen it.
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
		if probe != "readiness" { // readiness probes continue during the container's grace period
			asked = min(asked, d.ends(t).Sub(in.began))
			runs = asked
		}
		may = may || first.first <= min(runs+probed, until)
		must = must || t.killedBy(name, probe) || first.last < min(asked, until)
	}
	return may, must
}

// killedBy reports whether an event says that a container was asked to end because this probe failed.
func (t *Trace) killedBy(name, probe string) bool {
	for k, e := range t.Events {
		if strings.HasPrefix(k, "Normal Killing ") && containerOf(k) == name && strings.Contains(e.Message, " failed "+probe+" probe") {
			return true
		}
	}
	return false
}

// unreported reports whether it depends on the timing that only one side reports a probe's failures: the side that reports may have
// seen one, and the other may have seen none.
func (d *differ) unreported(name, probe string, u, w Event) bool {
	if (u.Count > 0) == (w.Count > 0) {
		return false
	}
	mayU, mustU := d.tells(d.upstream, name, probe)
	mayW, mustW := d.tells(d.wherry, name, probe)
	// A connection to a container that has just ended is also refused.
	silent := d.c.probe(name, probe) != nil && d.c.probe(name, probe).TCPSocket != nil
	if u.Count > 0 {
		return (mayU || silent && d.upstream.ended(d.c, name)) && !mustW
	}
	return (mayW || silent && d.wherry.ended(d.c, name)) && !mustU
}

// ended reports whether an instance of a container ended while it was watched.
func (t *Trace) ended(c *Case, name string) bool {
	for attempt, in := range t.instances(name) {
		if !in.stopped.IsZero() || c.play(name, attempt%lifeAttempts).Exits {
			return true
		}
	}
	return false
}

// askedInTheEnd reports whether only upstream's kubelet reports that a liveness or startup probe of a sidecar failed, and the probe
// failed only after the pod's end had begun.
func (d *differ) askedInTheEnd(name, probe string, u, w Event) bool {
	if u.Count == 0 || w.Count > 0 || probe == "readiness" || d.c.kind(name) != "sidecar" {
		return false
	}
	may, _ := d.tells(d.upstream, name, probe)
	return !may && d.failsAfter(d.upstream, name, probe)
}

// failsAfter reports whether the newest instance of a container was running when its pod's end had begun, and its probe failed
// after that.
func (d *differ) failsAfter(t *Trace, name, probe string) bool {
	for attempt, in := range t.instances(name) {
		p := d.c.play(name, attempt%lifeAttempts)
		first, until := d.c.fails(name, probe, p)
		ends := d.ends(t).Sub(in.began)
		last := t.Ended.Sub(in.began)
		if !in.stopped.IsZero() {
			last = in.stopped.Sub(in.began) + slowEnd
		}
		if first.first < last && until > ends && (!p.Exits || p.Runs > ends) {
			return true
		}
	}
	return false
}

// probeOf returns the probe that an event of reason Unhealthy is about, or "".
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
