package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/base/hostfs"
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

// The limit of process IDs may change while the machine runs, so it is read for each summary.
func TestMaxPIDIsReadEachTime(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	set := func(name, content string) {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	set("proc/cpuinfo", "processor\t: 0\n")
	set("proc/meminfo", "MemTotal: 1024 kB\n")
	a := &Agent{deps: Deps{Machine: &Machine{real: true, proc: hostfs.Machine{Root: root}}}, log: slog.New(slog.DiscardHandler)}
	facts := a.statsMachine()
	for _, limit := range []int64{32768, 4194304} {
		set("proc/sys/kernel/pid_max", strconv.FormatInt(limit, 10)+"\n")
		if m := facts(); m.CPUs != 1 || m.MaxPID() != limit {
			t.Errorf("%d CPUs, %d process IDs; want 1 and %d", m.CPUs, m.MaxPID(), limit)
		}
	}
}

// A scrape of the metrics may come before the agent has built its pod cache.
func TestScrapeBeforeThePodCache(t *testing.T) {
	t.Parallel()
	if got := (observed{&Agent{}}).Observed(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
