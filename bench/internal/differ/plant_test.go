package differ

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// The comparison finds each planted fault. In a trace that gives no occasion for a fault, its function changes nothing and returns false.
func TestPlantsAreFound(t *testing.T) {
	lived := func() life {
		l := newLife()
		l.ready(1, v1.ConditionFalse, "ContainersNotReady")
		l.ready(5, v1.ConditionTrue, "")
		for attempt, at := range []float64{10, 20} {
			l.call(at, Call{Verb: "CreateContainer", Container: "main-0", Attempt: uint32(attempt + 1)})
			l.call(at, Call{Verb: "StartContainer", Container: "main-0", Attempt: uint32(attempt + 1)})
		}
		l.call(40, Call{Verb: "StopContainer", Container: "main-0", Attempt: 2, Timeout: 8})
		return l
	}
	for name, class := range map[string]string{
		"grace":   `calls of main: only upstream has ["stop(8)"], only Wherry has ["stop(12)"]`,
		"restart": "calls of main: only upstream has a further instance",
		"reason":  `condition Ready: only upstream has ["False ContainersNotReady"], only Wherry has ["False NotReady"]`,
	} {
		w := lived()
		if !Plants[name](oneContainer(), w.Trace) {
			t.Errorf("%s is not planted", name)
		}
		want(t, Shown(Compare(oneContainer(), lived().Trace, w.Trace)), class)
		if Plants[name](oneContainer(), newLife().Trace) {
			t.Errorf("%s is planted in a life that gives it no chance", name)
		}
	}
}
