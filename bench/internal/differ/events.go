package differ

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// repeated lists the reasons of events whose exact number is not compared: it depends on how often an agent looks at the pod, or on
// whether the deletion comes between two attempts.
var repeated = []string{"BackOff", "Unhealthy", "Failed", "Pulling", "FailedCreatePodSandBox", "FailedSync"}

// events compares the events of both agents: which exist, whether each came once or several times, and their messages.
func (d *differ) events() {
	upstream, wherry := d.upstream.Events, d.wherry.Events
	often := func(k string, n int) string {
		switch {
		case n == 0:
			return "none"
		case n == 1:
			return "one"
		case slices.Contains(repeated, strings.Fields(k)[1]), d.c.Kind == Restart && strings.Fields(k)[1] == "Killing": // the next agent sends Killing again
			return "one"
		}
		return "several"
	}
	for _, k := range slices.Sorted(maps.Keys(both(upstream, wherry))) {
		u, w := upstream[k], wherry[k]
		if !d.told(d.upstream, u) && !d.told(d.wherry, w) {
			continue
		}
		if d.askedInTheEnd(containerOf(k), probeOf(k), u, w) {
			d.level = InEvents
			d.add(classAskedInTheEnd, "events "+k, fmt.Sprintf("%d %s", u.Count, u.Message), "")
			continue
		}
		if d.readyBeforeProbed(containerOf(k), probeOf(k), u, w) {
			d.level = InEvents
			d.add(classProbedAfter, "events "+k, "", fmt.Sprintf("%d %s", w.Count, w.Message))
			continue
		}
		if d.killsUnknown(k) {
			d.level = InEvents
			d.add(classKillsUnknown, "events "+k, "", "")
			continue
		}
		if d.killsMeanwhile(k, u, w) {
			d.level = InEvents
			d.add(classWhileHook, "message of "+k, u.Message, w.Message)
			continue
		}
		if d.pullsMeanwhile(k, u, w) {
			d.level = InEvents
			d.add(classWhileStop, "events "+k, fmt.Sprint(u.Count), fmt.Sprint(w.Count))
			continue
		}
		if excuse := d.noEvent(k, u, w); excuse != "" {
			if often(k, u.Count) != often(k, w.Count) || d.message(u.Message) != d.message(w.Message) {
				d.excuse(excuse, 1)
			}
			continue
		}
		of := strings.TrimSpace(d.general(k)) + d.ofWhat(k)
		d.level = InEvents
		if a, b := often(k, u.Count), often(k, w.Count); a != b && (d.before == never || a == "none" || b == "none") {
			class := fmt.Sprintf("event %s: upstream %s, Wherry %s", of, a, b)
			if !Decided(class) && d.lostInKill(u, w) {
				d.excuse(excuseKilled, 1)
				continue
			}
			d.add(class, "events "+k, fmt.Sprintf("%d %s", u.Count, u.Message), fmt.Sprintf("%d %s", w.Count, w.Message))
			continue
		}
		d.level = InMessages
		a, b := d.message(u.Message), d.message(w.Message)
		switch {
		case a == b, !d.told(d.upstream, u), !d.told(d.wherry, w):
		case strings.HasPrefix(k, "Normal ResizeCompleted") && a == d.beforeResizes(b):
			d.add(classOldSize, "message of "+k, u.Message, w.Message)
		case strings.HasPrefix(b, a):
			kind, _, _ := strings.Cut(of, " spec.")
			d.add(fmt.Sprintf("message of event %s: Wherry says more", kind), "message of "+k, u.Message, w.Message)
		default:
			d.add(fmt.Sprintf("message of event %s: upstream %q, Wherry %q", of, a, b), "message of "+k, u.Message, w.Message)
		}
	}
}

// classOldSize is the class for an event of upstream's kubelet that shows the size of a container from before the resize.
const classOldSize = "message of event Normal ResizeCompleted: upstream gives the size from before the resize"

// beforeResizes replaces the new CPU sizes of resized containers in a message with the old ones.
func (d *differ) beforeResizes(message string) string {
	for _, a := range d.c.Acts {
		x := d.c.container(a.Container)
		if a.Do != Resize || x == nil {
			continue
		}
		message = strings.ReplaceAll(message, fmt.Sprintf("\"cpu\":%q", a.Value), fmt.Sprintf("\"cpu\":%q", x.Resources.Requests.Cpu()))
	}
	return message
}

// noEvent returns the name of the Excuse for which the events with the key k are not compared; "" if they are compared.
func (d *differ) noEvent(k string, u, w Event) string {
	if d.upstream.talks(k) || d.wherry.talks(k) {
		return excuseBurst
	}
	if d.pullsLast(k, u, w) {
		return excuseSoon
	}
	if strings.Fields(k)[1] == "BackOff" && (d.endsLast(d.upstream, containerOf(k)) || d.endsLast(d.wherry, containerOf(k))) {
		return excuseSoon
	}
	return d.hangsOnAMoment(k, u, w)
}

// ofWhat returns an addition to the class of a difference in the events with the key k. It separates special situations, such as a resize
// of a pod that ends, from others with the same reason; "" for most events.
func (d *differ) ofWhat(k string) string {
	reason := strings.Fields(k)[1]
	switch {
	case (reason == "ResizeStarted" || reason == "ResizeCompleted") && d.resizedInItsEnd():
		return ", of a pod that ends"
	case reason == "ResizeCompleted" && d.resizedAtItsEnd():
		return ", of a container that ends"
	case reason == "Failed" && strings.HasPrefix(d.upstream.Events[k].Message, "Error: sandbox container "):
		return ", in a sandbox that was lost"
	case (reason == "Pulling" || reason == "Failed") && d.sharesMissing():
		return ", whose image another container could not get"
	case (reason == "SandboxChanged" || reason == "BackOff") && d.comesBack():
		return ", of a static pod whose manifest comes back"
	}
	return ""
}

// sharesMissing reports whether several containers use noImage, the image that no registry has.
func (d *differ) sharesMissing() bool {
	n := 0
	for _, x := range slices.Concat(d.c.Spec.InitContainers, d.c.Spec.Containers) {
		if x.Image == noImage {
			n++
		}
	}
	return n > 1
}

// burst is how many events of one type (Normal or Warning) about one object a client sends at once. After that it sends one every
// five minutes and drops the others, so it is random which events are lost.
const burst = 25

// talks reports whether the client dropped some events because there were too many of their type. k is the key of an event, which begins
// with the type.
func (t *Trace) talks(k string) bool {
	kind, all := strings.Fields(k)[0], 0
	for other, e := range t.Events {
		if strings.Fields(other)[0] == kind {
			all += e.Count
		}
	}
	return all >= burst-2 // burst-2, because the dropped events are not in the trace and cannot be counted
}
