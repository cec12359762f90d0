package agenttest

// Armed counts, for one rule that the Witness checks during a test run, how many cases it checked by the rule (Applied), and how many it
// did not check because of an exception (Excused, by the reason).
type Armed struct {
	Applied int
	Excused map[string]int
}

func (a *Armed) cases() int {
	n := a.Applied
	for _, excused := range a.Excused {
		n += excused
	}
	return n
}

func (a *Armed) add(o Armed) {
	if a.Excused == nil {
		a.Excused = map[string]int{}
	}
	a.Applied += o.Applied
	for why, n := range o.Excused {
		a.Excused[why] += n
	}
}

// Armed returns, for each rule, how many cases the Witness has checked and excused.
func (w *Witness) Armed() map[Rule]Armed {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[Rule]Armed{}
	for rule, a := range w.tallies {
		sum := Armed{}
		sum.add(*a)
		out[rule] = sum
	}
	return out
}

// count counts a case of a rule: applied, or excused if excuse is the reason for an exception. The caller holds w.mu.
func (w *Witness) count(rule Rule, excuse string) {
	a := w.tallies[rule]
	if a == nil {
		a = &Armed{Excused: map[string]int{}}
		w.tallies[rule] = a
	}
	if excuse == "" {
		a.Applied++
	} else {
		a.Excused[excuse]++
	}
}

// compared counts pods whose status in the API agreed with the runtime, as cases in which RuleConverges was applied.
func (w *Witness) compared(pods int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range pods {
		w.count(RuleConverges, "")
	}
}
