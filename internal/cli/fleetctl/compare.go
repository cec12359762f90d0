package fleetctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/plain"
)

// record makes the fleet write its changes to the file of Record. The caller calls end after the fleet has ended; its error says that the
// file is not complete.
func (r *Run) record(cfg *fleet.Config) (end func() error, err error) {
	if r.Record == "" {
		return func() error { return nil }, nil
	}
	file, err := openRecord(r.Record)
	if err != nil {
		return nil, fmt.Errorf("--record: %w", err)
	}
	rec := &lockedRecorder{to: fleet.NewRecorder(file)}
	if err := rec.to.Flush(); err != nil { // so that the file has content, and other fleets refuse it
		return nil, errors.Join(fmt.Errorf("--record: %w", err), file.Close())
	}
	cfg.Changed = rec.changed
	return func() error {
		if err := errors.Join(rec.close(), file.Close()); err != nil {
			return fmt.Errorf("--record: the file is not complete: %w", err)
		}
		return nil
	}, nil
}

// openRecord opens a file for a record. It refuses a file that has content, because that may be the record of another run, with which the user wants to
// compare this one.
func openRecord(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	st, err := file.Stat()
	if err == nil && st.Mode().IsRegular() && st.Size() > 0 {
		err = fmt.Errorf("%s exists and is not empty: choose another name, or remove it", name)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// checkRecord says early, before anything is started, that the file of Record cannot be used.
func (r *Run) checkRecord() error {
	if st, err := os.Stat(r.Record); r.Record != "" && err == nil && st.Mode().IsRegular() && st.Size() > 0 {
		return fmt.Errorf("--record: %s exists and is not empty: choose another name, or remove it", r.Record)
	}
	return nil
}

// recordWithin is how soon a change is in the file of Record.
const recordWithin = time.Second

// lockedRecorder lets the watches of nodes and of pods record at the same time, and writes to the file from time to time.
type lockedRecorder struct {
	mu    sync.Mutex
	to    *fleet.Recorder
	timer *time.Timer // calls flush; nil: nothing is buffered
	over  bool        // the file is closed
}

func (l *lockedRecorder) changed(c fleet.Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to.Changed(c)
	if l.timer == nil {
		l.timer = time.AfterFunc(recordWithin, l.flush)
	}
}

// flush writes what is buffered to the file.
func (l *lockedRecorder) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.timer = nil; !l.over {
		_ = l.to.Flush() // close returns the error, too
	}
}

func (l *lockedRecorder) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over = true; l.timer != nil {
		l.timer.Stop()
	}
	return l.to.Close()
}

// Compare is the command `wherry fleet compare`.
type Compare struct {
	States bool
	Output string // "" or json
}

// ErrDiffers means that two runs of a fleet had different outcomes.
var ErrDiffers = errors.New("the runs differ")

// comparison is the result in the form for programs.
type comparison struct {
	Differences []fleet.Difference `json:"differences"`
	A           timings            `json:"a"`
	B           timings            `json:"b"`
}

// timings say how long nodes and pods took to become Ready.
type timings struct {
	Nodes fleet.Timing `json:"nodes"`
	Pods  fleet.Timing `json:"pods"`
}

// Run compares two files and writes the result to out. It returns ErrDiffers if the runs had different outcomes.
func (c *Compare) Run(out io.Writer, a, b string) error {
	if c.Output != "" && c.Output != "json" {
		return fmt.Errorf("--output: %q: use json", c.Output)
	}
	var of [2]*fleet.History
	var result comparison
	for i, name := range []string{a, b} {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		of[i], err = fleet.ReadHistory(name, file)
		_ = file.Close()
		if err != nil {
			return err
		}
	}
	result.Differences = append([]fleet.Difference{}, fleet.Compare(of[0], of[1], c.States)...) // none is [] in JSON
	result.A.Nodes, result.A.Pods = of[0].Timings()
	result.B.Nodes, result.B.Pods = of[1].Timings()
	if err := c.print(out, &result); err != nil {
		return err
	}
	if len(result.Differences) > 0 {
		return ErrDiffers
	}
	return nil
}

func (c *Compare) print(out io.Writer, r *comparison) error {
	if c.Output == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	before := ""
	for _, d := range r.Differences {
		if d.Object != before {
			fmt.Fprintf(out, "%s\n", plain.Text(d.Object))
		}
		before = d.Object
		which := "A"
		if d.B > d.A {
			which = "B"
		}
		fmt.Fprintf(out, "  A %d, B %d: %s (first in %s: %s, %.1f s)\n", d.A, d.B, plain.Text(d.Outcome), which, plain.Text(d.Name), d.First.Seconds())
	}
	if len(r.Differences) == 0 {
		fmt.Fprintln(out, "The runs had the same outcome.")
	}
	for _, row := range []struct {
		what string
		a, b fleet.Timing
	}{{"nodes Ready", r.A.Nodes, r.B.Nodes}, {"pods Ready", r.A.Pods, r.B.Pods}} {
		fmt.Fprintf(out, "%s: A %s; B %s\n", row.what, timeText(row.a), timeText(row.b))
	}
	return nil
}

func timeText(t fleet.Timing) string {
	if t.Count == 0 {
		return "none"
	}
	return fmt.Sprintf("%d, after %v (p50), %v (p99)", t.Count, t.P50.Round(time.Millisecond), t.P99.Round(time.Millisecond))
}
