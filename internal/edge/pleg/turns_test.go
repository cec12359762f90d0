package pleg

import (
	"log/slog"
	"testing"

	"github.com/wherry-node/wherry/internal/proof/pulsetest"
)

func TestTurnsNoticesALoopThatStandsStill(t *testing.T) {
	t.Parallel()
	g := New(Config{Runtime: &world{}, Unsupported: func(error) bool { return true }, Log: slog.New(slog.DiscardHandler)})
	pulsetest.StandsStill(t, g.Run, g.Turns, &g.mu)
}
