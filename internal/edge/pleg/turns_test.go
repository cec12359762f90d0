package pleg

import (
	"log/slog"
	"testing"

	"github.com/wherry-node/wherry/internal/proof/roundstest"
)

func TestTurnsNoticesALoopThatStandsStill(t *testing.T) {
	t.Parallel()
	g := New(Config{Runtime: &world{}, Unsupported: func(error) bool { return true }, Log: slog.New(slog.DiscardHandler)})
	roundstest.StandsStill(t, g.Run, g.Turns, &g.mu)
}
