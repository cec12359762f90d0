// Command wherry-differential runs the same pods on upstream's kubelet and on Wherry and prints the differences in their
// behaviour.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/wherry-node/wherry/bench/internal/differ"
	"github.com/wherry-node/wherry/bench/internal/rig"
)

type options struct {
	n, specs, statics int
	restarts          int
	seed              uint64
	pairs             int
	restartPairs      int
	atOnce            int
	perSecond         float64
	again, more       int
	show              int
	shrink            time.Duration
	columns           bool
	keep, file        string
	record, replay    string
	counts            string
	plant             string
	dir               string
	upstream, wherry  string
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 100, "how many lives of pods")
	flag.IntVar(&o.specs, "specs", 0, "how many pods with many fields, whose configuration is compared")
	flag.IntVar(&o.statics, "statics", 0, "how many lives of static pods")
	flag.IntVar(&o.restarts, "restarts", 0, "how many lives during which both agents are restarted: first asked to end, then as many killed")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first case of each kind")
	flag.IntVar(&o.pairs, "pairs", 5, "how many pairs of agents run the cases, at most 10")
	flag.IntVar(&o.restartPairs, "restart-pairs", 1, "how many more pairs run the lives with restarts, beside the others, at most 5")
	flag.IntVar(&o.atOnce, "at-once", 600, "how many cases run at once")
	flag.Float64Var(&o.perSecond, "per-second", 1.7, "how many cases begin in a second, beside those with restarts; the default is for two cores: bench/PROFILE.md")
	flag.IntVar(&o.again, "again", 2, "how often a case with a difference is run again: the difference counts when each run shows it")
	flag.IntVar(&o.more, "more", 4, "how often a case is run again after that, if each run shows a difference, or one run shows what no run of upstream's kubelet does")
	flag.IntVar(&o.show, "show", 1, "how many cases are printed for each class of difference")
	flag.BoolVar(&o.columns, "columns", true, "print what both did with a printed case beside each other")
	flag.DurationVar(&o.shrink, "shrink", 0, "how long the first case of each class is made smaller; for few cases")
	flag.StringVar(&o.keep, "keep", "", "directory into which the first case of each undecided class is written")
	flag.StringVar(&o.file, "case", "", "run the case of this file, or the cases of this directory (as -keep leaves it), instead of generated ones")
	flag.StringVar(&o.record, "record", "", "file into which what both agents did is written, case by case, to be compared again")
	flag.StringVar(&o.replay, "replay", "", "compare what this file has from -record again, without running anything")
	flag.StringVar(&o.counts, "counts", "", "add how many cases show each decided difference to this file, from which docs/differences.md is generated")
	flag.StringVar(&o.plant, "plant", "", "with -replay: plant this fault into all that Wherry did (grace, restart, reason), and say how many cases show it")
	flag.StringVar(&o.dir, "dir", "", "directory of the run, short (default: a new one below /tmp)")
	flag.StringVar(&o.upstream, "upstream", "../bin/conformance/kubelet", "upstream's kubelet")
	flag.StringVar(&o.wherry, "wherry", "../bin/wherry", "Wherry")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "wherry-differential:", err)
		os.Exit(1)
	}
}

// check returns an error if a numeric option is out of range.
func (o options) check() error {
	if o.pairs < 1 || o.pairs > 10 || o.restartPairs < 1 || o.restartPairs > 5 {
		return fmt.Errorf("%d pairs of agents and %d for restarts: give 1 to 10, and 1 to 5", o.pairs, o.restartPairs)
	}
	if o.atOnce < 1 {
		return fmt.Errorf("-at-once %d: give at least 1", o.atOnce)
	}
	if !(o.perSecond > 0) {
		return fmt.Errorf("-per-second %g: give more than 0", o.perSecond)
	}
	return nil
}

func run(ctx context.Context, o options) (err error) {
	if o.replay != "" {
		return replay(o)
	}
	if err := o.check(); err != nil {
		return err
	}
	if _, err := exec.LookPath(o.upstream); err != nil {
		return fmt.Errorf("upstream's kubelet is missing (bin/wherry-dev build kubelet): %w", err)
	}
	quiet, restarts, err := blocksOf(o)
	if err != nil {
		return err
	}
	if len(restarts) == 0 {
		o.restartPairs = 0
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "wd-"); err != nil {
			return err
		}
	}
	bin, err1 := filepath.Abs("../bin")
	up, err2 := filepath.Abs(o.upstream)
	own, err3 := filepath.Abs(o.wherry)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	logf := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	if os.Getenv("GOGC") == "" {
		// With less garbage collection, two cores can run more cases in a second. The agents inherit the setting; this process, in which
		// the simulated runtimes are, has read its environment already.
		if err := os.Setenv("GOGC", strconv.Itoa(gogc)); err != nil {
			return err
		}
		debug.SetGCPercent(gogc)
	}
	r, err := rig.OpenPlane(ctx, bin, o.dir, differ.PlaneArgs(), logf)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	runner, err := differ.Start(ctx, r, o.pairs, o.restartPairs, rig.Program{Name: "upstream", Args: []string{up}}, rig.Program{Name: "wherry", Args: []string{own, "kubelet"}})
	if err != nil {
		return err
	}
	defer runner.Close()
	t := newTally(o)
	if o.record != "" {
		if t.records, err = create(o.record); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.records.Close()) }()
	}
	before, errBefore := runner.Spent()
	err = t.runAll(ctx, runner, quiet, restarts)
	if after, errAfter := runner.Spent(); errors.Join(errBefore, errAfter) == nil {
		logf("processor time of a case: %s", after.Sub(before))
	}
	if err == nil && o.shrink > 0 {
		t.shrinkAll(ctx, runner)
	}
	// After a failure, the report contains the cases that were compared before it.
	return errors.Join(err, t.report())
}

// gogc is the GOGC of all processes of a run. With a greater value they use so much memory that the kernel needs more processor time to clear
// pages than the collector saves.
const gogc = 400

// block is a number of cases that run at the same time.
type block struct {
	cases    []*differ.Case
	restarts bool // both agents restart once, while the pods of the block run
	kill     bool
	// perSecond is how many cases begin per second; 0 means options.perSecond.
	perSecond float64
}

func (b block) rate(o options) float64 {
	if b.perSecond > 0 {
		return b.perSecond
	}
	return o.perSecond
}

// atRestart is the largest number of cases in a block with a restart of the agents.
const atRestart = 30

// blocksOf returns the blocks of a run: quiet without a restart of the agents, restarts with one.
func blocksOf(o options) (quiet, restarts []block, err error) {
	if o.file != "" {
		return keptBlocks(o.file)
	}
	some := func(n int, generate func(uint64) *differ.Case) (b block) {
		for i := range n {
			b.cases = append(b.cases, generate(o.seed+uint64(i)))
		}
		return b
	}
	restarted := func(kill bool) func(uint64) *differ.Case {
		return func(seed uint64) *differ.Case {
			c := differ.Generate(seed)
			c.Kind, c.Kill = differ.Restart, kill
			return c
		}
	}
	all := block{cases: slices.Concat(some(o.n, differ.Generate).cases, some(o.statics, differ.GenerateStatic).cases, some(o.specs, differ.GenerateSpec).cases)}
	for _, kill := range []bool{false, true} { // half of these cases restart the agents with SIGTERM, half with SIGKILL, so the report counts both
		for some := range slices.Chunk(some(o.restarts, restarted(kill)).cases, atRestart) {
			restarts = append(restarts, block{cases: some, restarts: true, kill: kill, perSecond: 1})
		}
	}
	if len(all.cases) > 0 {
		quiet = append(quiet, all)
	}
	return quiet, restarts, nil
}
