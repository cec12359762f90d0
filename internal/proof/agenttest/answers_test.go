package agenttest

import (
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/core/why"
)

// The simulation fails if too many answers of the agent to "why does this pod not run?" are wrong: answers that do not name the cause for
// which a pod does not run, and answers that name such a cause for a pod that runs. Of 100 answers one may be wrong, but not three.
func TestAnswersAreJudged(t *testing.T) {
	t.Parallel()
	pulls := situation{what: "an image cannot be pulled", causes: pullCauses}
	runs := situation{what: "everything runs", well: true, causes: []why.Cause{why.Running}}
	for _, c := range []struct {
		name          string
		missed, false int // wrong answers: missed of 100 about pods that are not well, and false of 100 about pods that run
		fails         bool
	}{
		{"all answers are right", 0, 0, false},
		{"one cause is missed", 1, 0, false},
		{"three causes are missed", 3, 0, true},
		{"a false alarm", 0, 1, false},
		{"three false alarms", 0, 3, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, w := newAnswers(), &World{}
			for i := range 100 {
				answer := why.Answer{Cause: why.ImageNotFound}
				if i < c.missed {
					answer.Cause = why.Running
				}
				a.judge(w, pulls, "p", &answer)
				answer.Cause = why.Running
				if i < c.false {
					answer.Cause = why.CrashLoop
				}
				a.judge(w, runs, "q", &answer)
			}
			all := tally{}
			all.add(&tally{seeds: enoughSeeds, answers: a.tally})
			failed := false
			for _, lack := range all.unarmed() {
				failed = failed || strings.Contains(lack, "recall")
			}
			if failed != c.fails {
				recall, precision := all.answered()
				t.Errorf("it failed is %v with recall %.3f and precision %.3f", failed, recall, precision)
			}
		})
	}
}
