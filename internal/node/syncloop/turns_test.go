package syncloop

import (
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/proof/roundstest"
)

func TestTurnsNoticesALoopThatStandsStill(t *testing.T) {
	t.Parallel()
	l := New(Config{Housekeeping: time.Hour})
	roundstest.StandsStill(t, l.Run, l.Turns, &l.mu)
}
