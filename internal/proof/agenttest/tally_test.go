package agenttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// tally counts what the simulation has covered.
type tally struct {
	mu         sync.Mutex
	seeds      int
	pods       int
	containers int
	crashes    int
	virtual    time.Duration
	faults     map[string]int
	rules      map[Rule]Armed
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
}

// enoughSeeds is the smallest number of seeds for which leastArmed is checked.
const enoughSeeds = 50

// leastArmed returns, for each rule, the smallest share of its cases, in thousandths, in which the rule must be applied without
// an exception. A share is below 1000 even if no exception has occurred so far, because a run of many seeds may have a rare one.
// The tally prints how often each exception was made.
func leastArmed() map[Rule]int {
	return map[Rule]int{RuleEnding: 995, RuleTerm: 995, RuleUncalled: 995, RuleGrace: 900, RuleReadiness: 995, RuleConverges: 995}
}

// unarmed returns the rules that were applied too rarely, with the exceptions that were made.
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
	slices.Sort(out)
	return out
}

// String returns the tally as text: faults by kind, then rules.
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
	return fmt.Sprintf("%d seeds, %d pods, %d container starts, %d agents killed, %d faults injected, %s of the nodes' time%s",
		t.seeds, t.pods, t.containers, t.crashes, total, t.virtual.Round(time.Minute), b.String())
}
