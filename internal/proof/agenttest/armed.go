package agenttest

// Armed counts how often the Witness applied a rule, and how often it made an exception, by the reason for the exception.
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

// Armed returns the counts of each rule.
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

// count counts one case in which the Witness applied a rule or, if excuse is not empty, made an exception. It is called with the lock
// held.
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

// compared counts pods whose status agreed with the runtime.
func (w *Witness) compared(pods int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range pods {
		w.count(RuleConverges, "")
	}
}
