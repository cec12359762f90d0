package differ

import (
	"fmt"
	"slices"
)

// Excuse is a rule that removes a difference from the comparison, because it says nothing about the agents. The uses of each rule are
// counted and limited, because a comparison that excuses too much could never fail.
type Excuse struct {
	Name string
	Why  string
	// Most is the limit on the percentage of cases that need the excuse. If more cases need it, the run fails. If Most is 0, Lines is the
	// limit.
	Most float64
	// Lines is the limit on the number of excused differences per 100 cases. It is for an excuse that nearly every case needs.
	Lines float64
}

// Bound returns the limit of the excuse as text.
func (e Excuse) Bound() string {
	if e.Lines > 0 {
		return fmt.Sprintf("%g lines", e.Lines)
	}
	return fmt.Sprintf("%g cases", e.Most)
}

// Exceeded reports whether a run needed the excuse too often. cases and lines are the numbers of excused cases and of excused
// differences, per 100 cases.
func (e Excuse) Exceeded(cases, lines float64) bool {
	if e.Lines > 0 {
		return lines > e.Lines
	}
	return cases > e.Most
}

// These are the names of the excuses.
const (
	excuseParted     = "the lives part at a decided difference"
	excuseLate       = "it follows what Wherry or upstream's kubelet does later by decision"
	excuseCrossed    = "two things happen to the pod in another order"
	excusePassing    = "it passes in the API within two seconds"
	excuseSoon       = "it began in the API in the five seconds before the deletion"
	excuseShown      = "only one side shows the API an end or a failed start that a back-off follows, or an end that is lost later"
	excuseTime       = "a time differs by two to five seconds"
	excuseDraw       = "upstream's kubelet lengthens a back-off by a random part of up to half"
	excuseOwnEnd     = "the container ends by itself when it is asked to"
	excuseHurried    = "the container is asked to end in its first second"
	excuseLast       = "a container is started in the last two seconds of the pod"
	excuseExtra      = "an instance that one side makes in the last five seconds of the pod"
	excuseSecond     = "a timeout differs by a second"
	excuseForced     = "the last status of a pod that is deleted by force"
	excuseMirror     = "the last status of the mirror of a removed static pod"
	excuseCut        = "a command that the end of its container cuts short"
	excuseUnreported = "a probe fails so shortly that an agent need not ask meanwhile"
	excuseKilled     = "an event from before the kill of an agent that does not have it"
	excuseBurst      = "more events than a client writes at once"
)

// Excuses lists all rules that remove a difference from the comparison, each with its limit.
var Excuses = []Excuse{
	{Name: excuseParted, Why: "After one of these differences, which are in the table of decided differences, everything that follows differs too.", Most: 20},
	{Name: excuseLate, Why: "Everything after it is late too.", Most: 10},
	{Name: excuseCrossed, Why: "Upstream's kubelet looks at its containers once a second and starts one after another, so that it may see an act, a deadline or an exit before or after another thing; what follows then differs. A difference is excused only if it began, in each run of the case, after that moment or less than five seconds before it.", Most: 6},
	{Name: excusePassing, Why: "Upstream's kubelet looks once a second, and sends only the newest status. A value that changes and changes back within a moment is excused only if something happened to the pod.", Lines: 750},
	{Name: excuseSoon, Why: "The other agent, a little later, may not get that far before the deletion.", Most: 25},
	{Name: excuseShown, Why: "The value is an end, or a failed start, that a back-off follows at once, or an end that upstream's kubelet later removes from the status.", Most: 10},
	{Name: excuseTime, Why: "The times of starts and stops may differ by five seconds.", Most: 35},
	{Name: excuseDraw, Why: "Upstream's kubelet adds a random part to each wait.", Most: 25},
	{Name: excuseOwnEnd, Why: "Whether the agent asked the container to end before that depends on the timing.", Most: 15},
	{Name: excuseHurried, Why: "Whether its hook had begun, and which probes had run, depends on the timing.", Most: 4},
	{Name: excuseLast, Why: "How it ends depends on the timing.", Most: 15},
	{Name: excuseExtra, Why: "The other agent, a little later, no longer needs the instance.", Most: 30},
	{Name: excuseSecond, Why: "The rest of a grace period after a hook is not a whole number of seconds.", Most: 5},
	{Name: excuseForced, Why: "Such a pod may leave the API at any point of its end.", Most: 15},
	{Name: excuseMirror, Why: "Upstream's kubelet deletes the mirror before it has reported the end.", Most: 5},
	{Name: excuseCut, Why: "The result of such a command does not depend on the agent.", Most: 25},
	{Name: excuseUnreported, Why: "Each agent probes once a second, but not at the same moment, and after a startup probe's success up to two seconds later.", Most: 5},
	{Name: excuseKilled, Why: "A client sends events one after another, and one that is killed loses those that wait.", Most: 2},
	{Name: excuseBurst, Why: "A client writes 25 events of a type at once, and then one in five minutes.", Most: 12},
}

// MostCrossed is the maximum percentage of cases in which the timing may change the order of events (Crossing).
const MostCrossed = 20.0

// Verdict is the result of comparing the two traces of a case.
type Verdict struct {
	Found []Difference
	// Sure are the differences that began before the Crossing; without a Crossing, Sure is equal to Found.
	Sure []Difference
	// Excused is how many differences each excuse took out of the comparison, by the name of the excuse.
	Excused map[string]int
	// Crossing is the moment from which the timing may change the order of events. After a second run it is nil if one of the runs had
	// none.
	Crossing *Crossing
}

// Undecided returns the undecided (unintended) differences of a case, one for each class, including those after the Crossing.
func (v *Verdict) Undecided() (all []Difference) {
	for _, f := range slices.Concat(v.Found, v.Sure) {
		if !Decided(f.Class) && !hasClass(all, f.Class) {
			all = append(all, f)
		}
	}
	return all
}

// Again combines v with w, the verdict of another run of the same case. Of the undecided differences, v keeps those that both runs show;
// those that began before the Crossing in at least one run are Sure. unsteady is the number of undecided differences of v that w does not
// have.
func (v *Verdict) Again(w Verdict) (unsteady int) {
	first, second := v.Undecided(), w.Undecided()
	both := slices.DeleteFunc(slices.Clone(first), func(f Difference) bool { return !hasClass(second, f.Class) })
	decided := slices.DeleteFunc(slices.Clone(v.Found), func(f Difference) bool { return !Decided(f.Class) })
	sure := slices.DeleteFunc(slices.Clone(both), func(f Difference) bool { return !hasClass(v.Sure, f.Class) && !hasClass(w.Sure, f.Class) })
	v.Found, v.Sure = append(decided, both...), sure
	if w.Crossing == nil {
		v.Crossing = nil
	}
	return len(first) - len(both)
}

// Settle makes the verdict final. Of the undecided differences it keeps those that began before the Crossing in at least one run of the
// case. It removes the others and counts them as excused, because from the Crossing on the timing may change the order of events.
func (v *Verdict) Settle() {
	all := len(v.Undecided())
	v.Found = slices.DeleteFunc(slices.Clone(v.Found), func(f Difference) bool { return !Decided(f.Class) })
	v.Sure = slices.DeleteFunc(slices.Clone(v.Sure), func(f Difference) bool { return Decided(f.Class) })
	if n := all - len(v.Undecided()); n > 0 {
		v.Excused[excuseCrossed] += n
	}
	v.Found = append(v.Found, v.Sure...)
}

func hasClass(found []Difference, class string) bool {
	return slices.ContainsFunc(found, func(d Difference) bool { return d.Class == class })
}

// excuse counts differences that are not reported. name is the excuse; lines is the number of differences.
func (d *differ) excuse(name string, lines int) {
	if lines > 0 {
		d.excused[name] += lines
	}
}

// undecidedOf returns how many of the differences are undecided (not intended).
func undecidedOf(found []Difference) (n int) {
	for _, f := range found {
		if !Decided(f.Class) {
			n++
		}
	}
	return n
}
