package differ

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Difference is one thing that the two agents did differently with one pod.
type Difference struct {
	// Class is the kind of difference: what differs, the kind of container, and the values of both agents, without names and numbers that
	// vary from pod to pod. A Decision (an intended difference) is about one class.
	Class string
	// Level is where the difference was found. Differences at a lower level are often the cause of differences at a higher level.
	Level Level
	// About is the part of the pod that differs. Upstream and Wherry are the values of the two agents.
	About, Upstream, Wherry string
}

// Level is where a difference was found. Differences at a low level cause others at higher levels: an agent that starts a container once
// more also reports other statuses and events. If a case has undecided (unintended) differences, only those of level InConfig and those
// of the lowest other level are shown.
type Level int

// These are the levels of differences, the lowest first.
const (
	InConfig   Level = iota // the configuration of a sandbox or container, which has no consequences in a simulated runtime
	InCalls                 // the requests to the runtime
	InStatus                // the status of containers in the API
	InPod                   // the status of the pod in the API
	InEvents                // which events exist
	InMessages              // the messages of events
)

const (
	// settled is the minimum time that a value must be in the API to be compared. A shorter value may be seen with one agent only,
	// because upstream's kubelet lists its containers once a second, and its status manager merges statuses that wait to be sent.
	settled = 2 * time.Second
	// late is the largest difference that is allowed between the times at which the two agents do the same thing. Upstream's kubelet adds
	// a jitter of up to some seconds to some waits.
	late = 5 * time.Second
)

// Compare returns the differences between what upstream's kubelet and Wherry did with a case.
func Compare(c *Case, upstream, wherry *Trace) []Difference {
	return CompareAll(c, upstream, wherry).Found
}

// CompareAll compares what upstream's kubelet and Wherry did with the pod of a case. The Verdict also has the number of excused
// differences, and the moment from which the timing may make the traces differ (Crossing).
func CompareAll(c *Case, upstream, wherry *Trace) Verdict {
	whole := newDiffer(c, upstream, wherry, never)
	v := Verdict{Found: whole.judge(), Excused: whole.excused, Crossing: whole.crossing()}
	v.Sure = v.Found
	if v.Crossing != nil {
		v.Sure = newDiffer(c, upstream, wherry, v.Crossing.At).judge()
	}
	return v
}

func newDiffer(c *Case, upstream, wherry *Trace, before time.Duration) *differ {
	return &differ{c: c, upstream: upstream, wherry: wherry, before: before, waited: never, excused: map[string]int{}, extras: map[extra]time.Time{}}
}

// judge runs all comparisons and returns the differences. If one decided (intended) difference explains all undecided ones, it returns
// only that one, and the differences of the configurations.
func (d *differ) judge() []Difference {
	d.configs()
	inConfig := len(d.found)
	d.calls()
	inCalls := undecidedOf(d.found[inConfig:])
	d.later()
	hidden := undecidedOf(d.found[inConfig:])
	if hidden == 0 {
		return d.found
	}
	if class := d.root(); class != "" {
		d.excuse(excuseParted, hidden)
		return append(d.found[:inConfig:inConfig], Difference{Class: class, Level: InCalls, About: "what parts the two lives"})
	}
	if inCalls == 0 && d.deadlineInTheEnd() {
		d.excuse(excuseParted, hidden)
		return append(d.found[:inConfig:inConfig], Difference{Class: classDeadlineInTheEnd, Level: InStatus, About: "what parts the two ends"})
	}
	if inCalls == 0 && d.mirrorAgain() {
		d.excuse(excuseParted, hidden)
		return append(d.found[:inConfig:inConfig], Difference{Class: classMirrorAgain, Level: InStatus, About: "what parts the two mirrors"})
	}
	if inCalls == 0 && d.neverAgain() {
		d.excuse(excuseParted, hidden)
		return append(d.found[:inConfig:inConfig], Difference{Class: classNeverAgain, Level: InStatus, About: "what parts the two ends"})
	}
	return d.found
}

// calls compares the requests to the runtime: sandboxes, starts, stops, their order and times, and what is left in the runtime.
func (d *differ) calls() {
	upstream, wherry := d.upstream, d.wherry
	configs := len(d.found)
	d.level = InCalls
	d.late = d.times()
	if u, w := upstream.sandboxes(), wherry.sandboxes(); d.before == never || d.moreSandboxes(upstream, wherry) || d.moreSandboxes(wherry, upstream) {
		d.list("sandboxes", "how many sandboxes were made", []string{fmt.Sprint(u)}, []string{fmt.Sprint(w)})
	}
	u, w := d.soFar(upstream, upstream.starts()), d.soFar(wherry, wherry.starts())
	// This compares only containers that both agents started; callsOf reports the others.
	d.list("order of first starts", "the order of first starts", d.order(common(u, w)), d.order(common(w, u)))
	for _, name := range d.c.containers() {
		d.callsOf(name)
	}
	if len(d.found) == configs {
		u, w := d.stopsSoFar(upstream), d.stopsSoFar(wherry)
		if own, other := d.ownOrder(u), d.ownOrder(w); slices.Equal(common(own, other), common(other, own)) && !slices.Equal(common(u, w), common(w, u)) {
			d.excuse(excuseOwnEnd, 1)
			u, w = own, other
		}
		d.list("order of stops", "the order of stops", common(u, w), common(w, u))
	}
	if l := d.late; l != nil {
		d.add(l.class(), "time of "+l.what, l.upstream.Round(100*time.Millisecond).String(), l.wherry.Round(100*time.Millisecond).String())
	}
	d.list("left", "what is left in the runtime", nil, wherry.Left)
	d.list("gone", "whether the pod left the API", []string{fmt.Sprint(upstream.Gone)}, []string{fmt.Sprint(wherry.Gone)})
}

// later compares what the API server saw: statuses and events. If one agent does something late because of a decided (intended)
// difference, everything after that is late too and is excused.
func (d *differ) later() {
	calls := len(d.found)
	d.statuses()
	d.events()
	from := d.waited
	if l := d.late; l != nil && Decided(l.class()) {
		from = min(from, l.from())
	}
	if from == never {
		return
	}
	all := undecidedOf(d.found[calls:])
	early := *d
	early.found, early.before, early.excused = d.found[:calls:calls], min(d.before, from+late), map[string]int{}
	early.statuses()
	early.events()
	d.found = early.found
	d.excuse(excuseLate, all-undecidedOf(d.found[calls:]))
}

// statuses compares the statuses that the API saw.
func (d *differ) statuses() {
	upstream, wherry := d.upstream, d.wherry
	d.level = InStatus
	for _, name := range d.c.containers() {
		of := " of " + d.c.kind(name)
		d.series("states"+of, "states of "+name+" in the API", upstream.states(name), wherry.states(name))
		d.series("readiness"+of, "readiness of "+name+" in the API", upstream.readiness(name), wherry.readiness(name))
		if d.sameNumber(name) {
			d.fields("last status"+of, "last status of "+name, upstream.final(name), wherry.final(name), name)
		}
	}
	d.level = InPod
	if !d.removedStatic() { // the manifest was not removed
		d.series("phases", "the phases in the API", upstream.phases(), wherry.phases())
	} else {
		d.series("phases", "the phases in the API", upstream.beforeRemoval(upstream.phases()), wherry.beforeRemoval(wherry.phases()))
	}
	for _, kind := range []v1.PodConditionType{v1.PodScheduled, v1.PodInitialized, v1.ContainersReady, v1.PodReady, v1.PodReadyToStartContainers, v1.DisruptionTarget} {
		d.series("condition "+string(kind), "condition "+string(kind)+" in the API", upstream.condition(kind), wherry.condition(kind))
	}
	d.fields("last status of the pod", "last status of the pod", upstream.finalPod(), wherry.finalPod(), "")
	if d.mirrorWithoutEnd() {
		d.add("the mirror of a removed static pod shows how it ended: only Wherry's", "last status of the mirror", "", "")
	}
}

type differ struct {
	c                *Case
	upstream, wherry *Trace
	level            Level
	late             *delay            // the first start or stop that one agent made late; nil: none
	lates            map[string]*delay // the first late start of each container that has one
	waited           time.Duration     // when a decided wait of one agent began that lasted until the pod ended; never: none
	before           time.Duration     // time of the Crossing; what comes after it is not compared; never: everything is compared
	found            []Difference
	excused          map[string]int
	extras           map[extra]time.Time // instances that only one agent started, with the time of their creation
}

// extra identifies a container of which one agent, the agent of the trace t, created an instance that the other agent did not create.
type extra struct {
	t    *Trace
	name string
}

func (d *differ) add(class, about, upstream, wherry string) {
	d.found = append(d.found, Difference{Class: class, Level: d.level, About: about, Upstream: upstream, Wherry: wherry})
}

// list adds a difference if two sequences of values are not equal. The class of the difference contains the elements that only one agent
// has, with the kinds of containers in place of their names.
func (d *differ) list(aspect, about string, upstream, wherry []string) {
	if slices.Equal(upstream, wherry) {
		return
	}
	u, w := apart(d.generals(upstream), d.generals(wherry))
	d.add(aspect+": "+only(u, w), about, strings.Join(upstream, ", "), strings.Join(wherry, ", "))
}

// fields compares the last status of a container, or of the pod if name is "", field by field.
func (d *differ) fields(aspect, about string, upstream, wherry map[string]string, name string) {
	if upstream == nil || wherry == nil || d.before != never {
		return
	}
	if excuse := d.noLastStatus(name); excuse != "" {
		lines := 0
		for k := range both(upstream, wherry) {
			if upstream[k] != wherry[k] {
				lines++
			}
		}
		d.excuse(excuse, lines)
		return
	}
	if name != "" && d.c.kind(name) == "ephemeral" && upstream["status"] == "none" && wherry["status"] == "" && d.after(func(a Act) bool { return a.Do == Debug }) {
		d.add(aspect+", changed after its pod's end: only Wherry has one", about, "none", wherry["state"])
		return
	}
	for _, k := range slices.Sorted(maps.Keys(both(upstream, wherry))) {
		aspect, u, w := aspect, upstream[k], wherry[k]
		if of, message := strings.CutPrefix(k, "message of "); u == w || message && upstream[of] != wherry[of] {
			continue // messages are compared only if the reasons are equal
		}
		if excuse := d.ofAMoment(name, k, u, w); excuse != "" {
			d.excuse(excuse, 1)
			continue
		}
		if strings.HasPrefix(k, "observedGeneration") && d.changedAfterItsEnd() {
			d.add(aspect+", observedGeneration, changed after its end: only Wherry's is the new one", about+", "+k, u, w)
			continue
		}
		if k == "condition Initialized" && u == "True" && d.startsInItsEnd() {
			d.add(classStartsInItsEnd, about+", "+k, u, w)
			continue
		}
		if k == "state" && name != "" && d.pullForgotten(name) != "" {
			d.add(classPullForgotten, about+", "+k, u, w)
			continue
		}
		if k == "phase" && name == "" && d.removedStatic() {
			aspect = "last status of the mirror of a removed static pod"
		}
		if k == "image" && d.after(func(a Act) bool { return a.Do == SetImage }) {
			d.add(aspect+", image, changed after its pod's end: only Wherry's is the new one", about+", "+k, u, w)
			continue
		}
		if k == "podIPs" && d.c.Kind == Restart && u == "0" {
			k += ", after a restart of the agents"
		} else if k == "podIPs" && u == "0" && d.upstream.tellsWithoutSandbox() {
			k += ", after the sandbox was removed"
		}
		if strings.HasPrefix(k, "observedGeneration") && d.deletedAfterItsEnd() {
			d.add(aspect+", observedGeneration, deleted after its end: only upstream's is the new one", about+", "+k, u, w)
			continue
		}
		if k == "state" && strings.HasPrefix(u, "terminated ContainerStatusUnknown ") && d.reportedBefore(strings.TrimPrefix(about, "last status of "), w) {
			d.add(aspect+", state: upstream says ContainerStatusUnknown of an end that it had reported, Wherry keeps that end", about+", "+k, u, w)
			continue
		}
		if k == "lastState" && strings.HasPrefix(upstream["state"], "terminated "+unknownEnd+" ") && u != upstream["state"] && u == wherry["state"] && d.reportedBefore(strings.TrimPrefix(about, "last status of "), u) {
			d.add(aspect+", lastState: upstream has the end there whose place ContainerStatusUnknown took", about+", "+k, u, w)
			continue
		}
		if k == "lastState" && d.repeatsItsEnd(strings.TrimPrefix(about, "last status of "), u, w, upstream["state"], wherry["state"]) {
			d.add(aspect+", lastState: upstream repeats the end that is its state, Wherry has the one before", about+", "+k, u, w)
			continue
		}
		gu, gw := d.message(u), d.message(w)
		d.add(fmt.Sprintf("%s, %s: upstream %q, Wherry %q", aspect, k, gu, gw), about+", "+k, u, w)
	}
}

// noLastStatus returns the name of the Excuse for which the last status of a container, or of the pod if name is "", is not compared. It
// returns "" if the status is compared.
func (d *differ) noLastStatus(name string) string {
	switch {
	case d.c.forced():
		return excuseForced
	case d.mirrorWithoutEnd():
		return excuseMirror
	case d.startsLast(name):
		return excuseLast
	case name != "" && d.lastEndsItself(name):
		return excuseOwnEnd
	}
	return ""
}

func both[K comparable, V any](a, b map[K]V) map[K]bool {
	all := map[K]bool{}
	for k := range a {
		all[k] = true
	}
	for k := range b {
		all[k] = true
	}
	return all
}

// only returns a text with the elements that only upstream's kubelet has (u) and that only Wherry has (w). If there are none, the text
// says that the order differs.
func only(u, w []string) string {
	var parts []string
	if len(u) > 0 {
		parts = append(parts, fmt.Sprintf("only upstream has %q", slices.Compact(u)))
	}
	if len(w) > 0 {
		parts = append(parts, fmt.Sprintf("only Wherry has %q", slices.Compact(w)))
	}
	if parts == nil {
		return "another order"
	}
	return strings.Join(parts, ", ")
}
