package fleetctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/plain"
)

// Expect is wherry fleet expect.
type Expect struct {
	Client
	Texts  []string      // the expectations
	Hold   time.Duration // for how long they must hold without a break
	Within time.Duration // how long to wait; 0: without limit
	Output string        // "": text; json
}

// Result is the outcome of expectations, as JSON.
type Result struct {
	Held         bool            `json:"held"` // all held in time
	TookSeconds  float64         `json:"tookSeconds"`
	Expectations []fleet.Outcome `json:"expectations"`
	State        State           `json:"state"` // of the fleet, at the end
	// Virtual is nil if the fleet ran in real time.
	Virtual *VirtualTime `json:"virtual,omitempty"`
}

// checkOutput returns an error if a form of output is unknown.
func checkOutput(form string) error {
	if form != "" && form != "json" {
		return fmt.Errorf("--output=%q: use json, or leave it out", form)
	}
	return nil
}

// Run waits until the expectations hold. The error is a *fleet.Unmet if they do not in time, or before ctx ends.
func (c *Expect) Run(ctx context.Context, out io.Writer) error {
	if err := checkOutput(c.Output); err != nil {
		return err
	}
	if c.Hold < 0 || c.Within < 0 {
		return errors.New("--hold and --within must not be negative")
	}
	all, err := fleet.ParseExpectations(c.Texts)
	if err != nil {
		return err
	}
	began := time.Now()
	bounded := ctx
	if c.Within > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, c.Within)
		defer cancel()
	}
	var s State
	outcomes, err := fleet.AwaitStatus(bounded, c.Hold, all, func(ctx context.Context) (fleet.Status, int, error) {
		now, err := c.State(ctx)
		if err == nil {
			s = now
		}
		return s.Status, s.Wanted, err
	})
	switch {
	case outcomes == nil:
		return err
	case err != nil && ctx.Err() != nil:
		err = &early{err}
	}
	if c.Output == "json" {
		return errors.Join(writeResult(out, outcomes, err, time.Since(began), s), err)
	}
	for _, o := range outcomes {
		fmt.Fprintln(out, outcomeText(&o))
	}
	return err
}

// early is the error of a wait for expectations that was ended before they held.
type early struct{ unmet error }

// Error says what did not hold.
func (e *early) Error() string { return "ended before the expectations held: " + e.unmet.Error() }

// Unwrap returns the *fleet.Unmet.
func (e *early) Unwrap() error { return e.unmet }

// awaits reports whether the user waits for expectations. Otherwise the end of the fleet before they hold is no error.
func (r *Run) awaits() bool { return len(r.Expect) > 0 || r.Once || r.Within > 0 }

// early returns the error of a fleet that its user has ended. unmet says which expectations did not hold; nil: all held.
func (r *Run) early(unmet error) error {
	if unmet == nil || !r.awaits() {
		return nil
	}
	return &early{unmet}
}

// unmet returns the error of expectations about a fleet that has not begun.
func unmet(all []fleet.Expectation) error {
	u := &fleet.Unmet{}
	for _, e := range all {
		u.Outcomes = append(u.Outcomes, fleet.Outcome{Expect: e.String(), Now: "the fleet has not begun"})
	}
	return u
}

// writeResult prints the outcome of expectations as JSON. err is nil if all held in time.
func writeResult(out io.Writer, outcomes []fleet.Outcome, err error, took time.Duration, s State) error {
	r := Result{Held: err == nil, TookSeconds: took.Seconds(), Expectations: outcomes, State: s}
	return r.write(out)
}

func (r *Result) write(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // so that an expectation reads as the user has written it
	return e.Encode(r)
}

// outcomeText describes an outcome in one line.
func outcomeText(o *fleet.Outcome) string {
	word := "holds"
	if !o.Held {
		word = "does not hold"
	}
	return fmt.Sprintf("%s: %s (%s)", plain.Text(o.Expect), word, plain.Text(o.Now))
}
