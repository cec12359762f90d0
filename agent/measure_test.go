package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/stats"
)

// If /proc cannot be read when the agent starts, the metrics read the machine's facts again later, until that succeeds.
func TestMachineFactsAreReadUntilTheyCanBe(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	reads, broken := 0, true
	m := &machineFacts{log: slog.New(slog.NewTextHandler(&said, nil)), read: func() (stats.Machine, error) {
		reads++
		if broken {
			return stats.Machine{}, errors.New("no /proc")
		}
		return stats.Machine{CPUs: 4}, nil
	}}
	for range 2 {
		if n := m.get().CPUs; n != 0 {
			t.Errorf("%d CPUs although nothing could be read", n)
		}
	}
	broken = false
	for range 2 {
		if n := m.get().CPUs; n != 4 {
			t.Errorf("%d CPUs, want 4", n)
		}
	}
	if reads != 3 {
		t.Errorf("%d reads, want one for each failure and one that succeeds", reads)
	}
	if n := strings.Count(said.String(), "no /proc"); n != 1 {
		t.Errorf("logged %d times", n)
	}
}
