package podctl

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/replay"
)

// Replay makes this version of the agent decide an exported turn of a pod again.
type Replay struct {
	// Update writes the present decision into the file.
	Update bool
	// Step also prints what each rule of this version saw and decided.
	Step bool
	// Script prints a script for the tests of package decide instead. The script has the present decision.
	Script bool
}

// errDiffers is the error if this version's decision differs from that of the version that exported the turn.
var errDiffers = errors.New("this version decides otherwise")

// Run decides the turn in a file again. It prints the decision and marks the lines that differ from the decision in the
// file. The file "-" is standard input. If a line differs, Run returns an error.
func (r *Replay) Run(s Streams, file string) error {
	if file == "-" && r.Update {
		return errors.New("--update needs a file")
	}
	if r.Script && (r.Update || r.Step) {
		return errors.New("--script excludes --update and --step")
	}
	t, err := readTurn(file, s.In)
	if err != nil {
		return err
	}
	if r.Script {
		text, err := t.Script()
		if err != nil {
			return err
		}
		_, err = io.WriteString(s.Out, text)
		return err
	}
	now := t.Again()
	lines, same := replay.Diff(t.Plan, now)
	fmt.Fprintf(s.Out, "%s/%s, exported by %s at %s\n", plain.Text(t.Namespace), plain.Text(t.Name), plain.Text(orNone(t.Agent)), t.Input.Now.UTC().Format("2006-01-02 15:04:05"))
	for _, l := range lines {
		fmt.Fprintln(s.Out, plain.Text(l))
	}
	if r.Step {
		writeSteps(s.Out, t.Steps())
	}
	switch {
	case same:
		fmt.Fprintln(s.Out, "This version decides the same.")
		return nil
	case !r.Update:
		return errDiffers
	}
	t.Plan = now
	data, err := t.Encode()
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, data, 0o644); err != nil {
		return fmt.Errorf("write the decision: %w", err)
	}
	fmt.Fprintln(s.Out, "The file has the present decision now.")
	return nil
}

// writeSteps prints what each rule saw and decided.
func writeSteps(w io.Writer, steps []decide.Step) {
	for i, s := range steps {
		fmt.Fprintf(w, "%2d. %s\n      saw      %s\n", i+1, plain.Text(s.Rule), plain.Text(s.Saw))
		for _, d := range s.Decided {
			fmt.Fprintf(w, "      decided  %s\n", plain.Text(d))
		}
		if len(s.Decided) == 0 {
			fmt.Fprintln(w, "      decided  nothing")
		}
	}
}

func readTurn(file string, stdin io.Reader) (*replay.Turn, error) {
	in := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, replay.MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return replay.Parse(file, data)
}
