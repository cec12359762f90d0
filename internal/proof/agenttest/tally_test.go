package agenttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wherry-node/wherry/internal/core/why"
)

// tally counts what the seeds of TestSim have covered, and how many answers of the agents to "why does this pod not run?" were right.
type tally struct {
	mu         sync.Mutex
	seeds      int
	pods       int
	containers int
	crashes    int
	virtual    time.Duration
	faults     map[string]int
	rules      map[Rule]Armed
	answers    map[string]*judged // judged answers, by the field what of the situation
	early      int                // number of answers that were not judged, because the situation or the agent was too new
	blind      int                // number of answers that were not judged, because the agent could not know the situation
}

func (t *tally) count(fault string) {
	if t.faults == nil {
		t.faults = map[string]int{}
	}
	t.faults[fault]++
}

func (t *tally) add(o *tally) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seeds, t.pods, t.containers, t.crashes = t.seeds+o.seeds, t.pods+o.pods, t.containers+o.containers, t.crashes+o.crashes
	t.virtual += o.virtual
	if t.faults == nil {
		t.faults, t.rules = map[string]int{}, map[Rule]Armed{}
	}
	for k, n := range o.faults {
		t.faults[k] += n
	}
	for rule, a := range o.rules {
		sum := t.rules[rule]
		sum.add(a)
		t.rules[rule] = sum
	}
	t.early, t.blind = t.early+o.early, t.blind+o.blind
	if t.answers == nil {
		t.answers = map[string]*judged{}
	}
	for what, j := range o.answers {
		sum := t.answers[what]
		if sum == nil {
			sum = &judged{well: j.well, instead: map[why.Cause]int{}}
			t.answers[what] = sum
		}
		sum.right, sum.wrong, sum.unwell = sum.right+j.right, sum.wrong+j.wrong, sum.unwell+j.unwell
		sum.rightUnwell += j.rightUnwell
		for c, n := range j.instead {
			sum.instead[c] += n
		}
	}
}

// enoughSeeds is the smallest number of seeds with which the limits of leastArmed are checked.
const enoughSeeds = 50

// leastArmed returns limits for some rules that the Witness checks: in at least this many of 1000 cases it has to apply the rule, and may
// not make an exception. No limit is 1000, because a run of many seeds may have a rare exception. The tally prints each exception.
func leastArmed() map[Rule]int {
	return map[Rule]int{RuleEnding: 995, RuleTerm: 995, RuleUncalled: 995, RuleGrace: 900, RuleReadiness: 995, RuleConverges: 995}
}

// leastAnswered is the smallest recall and the smallest precision that the agents' answers to "why does this pod not run?" must have (see
// answered).
const leastAnswered = 0.98

// answered returns two shares. recall is the share of right causes among the answers about pods that are not well. precision is the share
// of right answers among the answers that say that a pod is not well.
func (t *tally) answered() (recall, precision float64) {
	unwell, right, said, saidRight := 0, 0, 0, 0
	for _, j := range t.answers {
		said += j.unwell + j.rightUnwell
		saidRight += j.rightUnwell
		if !j.well {
			unwell += j.right + j.wrong
			right += j.right
		}
	}
	return float64(right) / float64(max(1, unwell)), float64(saidRight) / float64(max(1, said))
}

// unarmed returns a text for each rule that the Witness applied too rarely (see leastArmed), with the exceptions. It also returns a text if
// too many answers of the agents were wrong (see leastAnswered).
func (t *tally) unarmed() (out []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seeds < enoughSeeds {
		return nil
	}
	for rule, least := range leastArmed() {
		a := t.rules[rule]
		if all := a.cases(); all < t.seeds || a.Applied*1000 < least*all {
			out = append(out, fmt.Sprintf("rule %q was applied in %d of %d cases in %d seeds; it has to be in %.1f of 100; excused: %v",
				rule, a.Applied, all, t.seeds, float64(least)/10, a.Excused))
		}
	}
	if recall, precision := t.answered(); recall < leastAnswered || precision < leastAnswered {
		out = append(out, fmt.Sprintf("of the answers why a pod does not run, recall is %.4f and precision %.4f; both have to be at least %.2f", recall, precision, leastAnswered))
	}
	slices.Sort(out)
	return out
}

// String returns the tally as text: the totals of all seeds, the number of injected faults of each kind, the number of cases in which the
// Witness checked each rule, and how many of the agents' answers were right.
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	total := 0
	for _, k := range slices.Sorted(maps.Keys(t.faults)) {
		fmt.Fprintf(&b, "\n  %6d %s", t.faults[k], k)
		total += t.faults[k]
	}
	for _, rule := range slices.Sorted(maps.Keys(t.rules)) {
		a := t.rules[rule]
		fmt.Fprintf(&b, "\n  %6d of %d cases checked: %s", a.Applied, a.cases(), rule)
		for _, why := range slices.Sorted(maps.Keys(a.Excused)) {
			fmt.Fprintf(&b, "\n  %6d excused: %s", a.Excused[why], why)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(t.answers)) {
		j := t.answers[what]
		fmt.Fprintf(&b, "\n  %6d of %d answers right: %s %v", j.right, j.right+j.wrong, what, j.instead)
	}
	fmt.Fprintf(&b, "\n  %6d answers not judged: the situation or the agent was too new\n  %6d answers not judged: the agent could not know the situation", t.early, t.blind)
	recall, precision := t.answered()
	fmt.Fprintf(&b, "\n  answers about pods that are not well: recall %.4f, precision %.4f", recall, precision)
	return fmt.Sprintf("%d seeds, %d pods, %d container starts, %d agents killed, %d faults injected, %s of the nodes' time%s",
		t.seeds, t.pods, t.containers, t.crashes, total, t.virtual.Round(time.Minute), b.String())
}
