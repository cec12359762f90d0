// Command wherry-bench measures the same work with upstream's kubelet, with bare CRI calls and with Wherry, in one run on one
// machine, and prints medians, spreads and ratios.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/wherry-node/wherry/bench/internal/rig"
	"github.com/wherry-node/wherry/bench/internal/table"
	"github.com/wherry-node/wherry/bench/internal/work"
)

type options struct {
	rounds         int
	plan           work.Plan
	work, probes   string
	arms           string
	json, md, plot string
	readme         string
	dir            string
	runtime        string
	full           bool
	keep, prebuilt bool
	agree, merge   string
}

func main() {
	o := options{}
	flag.BoolVar(&o.full, "full", false, "more of everything, and what takes long: 500 pods, HTTP and gRPC probes. What is set by a flag stays")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each arm has its turns; on a machine with neighbours the same work takes half as long again from one minute to the next")
	flag.IntVar(&o.plan.Sequence, "sequence", 4, "pods one after another, per round")
	flag.IntVar(&o.plan.Pods, "pods", 100, "pods at once")
	flag.IntVar(&o.plan.Deaths, "deaths", 8, "containers killed, per round")
	flag.IntVar(&o.plan.Volumes, "volumes", 2, "pods with 20 ConfigMap volumes, one after another, per round")
	flag.IntVar(&o.plan.Dense, "dense", 0, "pods on a crowded node, such as 500, in two halves, at most 900; 0: not done")
	flag.IntVar(&o.plan.Parallel, "parallel", 0, "workers that start pods in the arms bare and limit; 0: the best of 4, 8 and 16, tried first")
	flag.DurationVar(&o.plan.Rest, "rest", 20*time.Second, "how long the agent is watched at rest")
	flag.StringVar(&o.probes, "probes", "exec", "kinds of probe that all pods have each second, by comma: exec, http, grpc")
	flag.StringVar(&o.work, "work", "", "only these, by comma: idle, one, volumes, many, death, restart, busy, crash, chatter, pull, slow, pressure, collect, disks, probes, exec, dense (death and restart need many); default all")
	flag.StringVar(&o.arms, "arms", "", "only these, by comma: bare, limit, upstream, wherry; default all")
	flag.StringVar(&o.json, "json", "results/bench.json", "file for all samples; empty: none")
	flag.StringVar(&o.md, "markdown", "results/bench.md", "file for the table in Markdown; empty: none")
	flag.StringVar(&o.readme, "readme", "", "file in which the text between the lines <!-- bench --> and <!-- /bench --> is replaced by the table's most important rows; empty: none")
	flag.StringVar(&o.plot, "plot", "results/bench.svg", "file for the plot of start times; empty: none")
	flag.StringVar(&o.dir, "dir", "", "directory of the rig, short (default: a new one below /tmp)")
	flag.StringVar(&o.runtime, "runtime", "containerd2", "the runtime of all arms: containerd2, or debian (containerd 1.6)")
	flag.BoolVar(&o.prebuilt, "prebuilt", false, "measure bin/bench-kubelet and bin/wherry as they are, unbuilt")
	flag.StringVar(&o.plan.Profiles, "profiles", "", "directory for CPU and heap profiles of the agents with many pods and at rest; empty: none are taken")
	flag.BoolVar(&o.keep, "keep-logs", false, "keep the agents' logs in the current directory")
	flag.StringVar(&o.agree, "agree", "", "measure nothing: read the samples of two runs, files of -json with a comma between them, and print which cells of their tables do not agree: their spreads do not overlap, and their medians differ by more than a tenth")
	flag.StringVar(&o.merge, "merge", "", "measure nothing: read the samples of runs of the same work on the same machine, files of -json with commas between them, and report their rounds as one run; it writes only the files that -json, -markdown, -readme and -plot name")
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if o.merge != "" {
		o.writeOnly(given)
		fail(merge(&o, strings.Split(o.merge, ",")))
		return
	}
	if o.agree != "" {
		fail(agree(strings.Split(o.agree, ",")))
		return
	}
	o.plan.Brief = !o.full
	if o.full {
		for name, value := range map[string]string{"sequence": "20", "deaths": "20", "volumes": "5", "dense": "500", "rest": "1m", "probes": "exec,http,grpc"} {
			if !given[name] {
				_ = flag.Set(name, value)
			}
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fail(run(ctx, &o))
}

// fail prints err and exits with status 1; it does nothing if err is nil.
func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "wherry-bench:", err)
		os.Exit(1)
	}
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func run(ctx context.Context, o *options) (err error) {
	if os.Geteuid() != 0 {
		return fmt.Errorf("needs root: it starts a container runtime")
	}
	if err := o.names(); err != nil {
		return err
	}
	checkout, err := findCheckout()
	if err != nil {
		return err
	}
	b := &bench{options: o, samples: map[string][]table.Samples{}, calls: map[string]map[string][]string{}, began: time.Now()}
	if b.programs, err = buildPrograms(ctx, checkout, o.prebuilt, func(name string) work.Samples { return b.arm(name, 0) }); err != nil {
		return err
	}
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "wb"); err != nil {
			return err
		}
	}
	// The benchmark runs copies of the programs, so that a build during the run does not change what is measured.
	for _, p := range b.programs {
		if p[0], err = copyFile(p[0], filepath.Join(dir, "bin")); err != nil {
			return err
		}
	}
	b.machine = describe(ctx, checkout, b.programs, o.runtime)
	fmt.Fprintln(os.Stderr, strings.Join(b.machine, "\n"))
	if b.rig, err = rig.Open(ctx, filepath.Join(checkout, "bin"), dir, o.runtime, progress); err != nil {
		return err
	}
	defer func() {
		if e := b.rig.Close(); err == nil {
			err = e
		}
	}()
	err = b.rounds(ctx)
	// After a failure, the report contains the samples that were taken before it.
	return errors.Join(err, b.report())
}

type bench struct {
	*options
	rig      *rig.Rig
	programs map[string][]string        // command line of each agent, by arm
	samples  map[string][]table.Samples // samples of each round, by arm
	calls    map[string]map[string][]string
	machine  []string
	began    time.Time
	took     string // how long the run took; "": it is still running
}

// arm returns the map into which a round writes the samples of an arm (one of the compared ways to run the pods).
func (b *bench) arm(name string, round int) work.Samples {
	for len(b.samples[name]) <= round {
		b.samples[name] = append(b.samples[name], table.Samples{})
	}
	return b.samples[name][round]
}

// names parses the flags -arms, -work and -probes, which are lists of names. It returns an error if a name is unknown.
func (o *options) names() error {
	var of []string
	for _, arm := range arms {
		of = append(of, strings.Fields(arm)[0])
	}
	for name := range set(o.arms) {
		if !slices.Contains(of, name) {
			return fmt.Errorf("-arms %s: there is no arm %q, only %s", o.arms, name, strings.Join(of, ", "))
		}
	}
	o.plan.Work = set(o.work)
	o.plan.Probes = slices.Sorted(maps.Keys(set(o.probes)))
	return o.plan.Check()
}

func (b *bench) wants(arm string) bool {
	s := set(b.arms)
	return len(s) == 0 || s[strings.Fields(arm)[0]]
}

// searched is the beginning of one line in the description of the machine. The line says how many workers start pods in the arms "bare
// CRI" and "limit", and how that number was found.
const searched = "bare and limit: "

func (b *bench) rounds(ctx context.Context) error {
	cri, err := work.DialCRI(b.rig.Socket, filepath.Join(b.rig.Dir, "bare"))
	if err != nil {
		return err
	}
	defer cri.Close()
	if (b.wants(bare) || b.wants(limit)) && b.plan.Parallel == 0 {
		progress("how many workers start pods soonest")
		var said string
		if b.plan.Parallel, said, err = cri.Fastest(ctx, []int{4, 8, 16}, 30); err != nil {
			return fmt.Errorf("try numbers of workers: %w", err)
		}
		b.machine = append(b.machine, searched+said)
	}
	agents := map[string]*rig.Agent{}
	for _, name := range []string{upstream, wherry} {
		if agents[name], err = b.rig.NewAgent(rig.Program{Name: name, Args: b.programs[name]}); err != nil {
			return err
		}
		defer func() {
			if b.keep {
				log, _ := os.ReadFile(filepath.Join(b.rig.Dir, name, "agent.log"))
				_ = os.WriteFile("bench-"+name+".log", log, 0o644)
			}
			agents[name].Stop()
		}()
	}
	var errs []error // a failed block of work affects only the rows of that block
	for round := range b.options.rounds {
		for _, block := range work.BlockNames() {
			for _, name := range order(round) {
				agent := name == upstream || name == wherry
				if !b.wants(name) || !slices.Contains(b.plan.Blocks(round, agent), block) || ctx.Err() != nil {
					continue
				}
				progress("round %d of %d, %s: %s", round+1, b.options.rounds, block, name)
				if err := b.turn(ctx, cri, agents[name], name, round, block); err != nil {
					errs = append(errs, fmt.Errorf("round %d: %s: %s: %w", round+1, block, name, err))
				}
			}
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

// order returns the order in which a round runs the arms. The order changes from round to round, so that no arm always comes first or
// always follows the same other arm.
func order(round int) []string {
	arms := slices.Clone(arms)
	n := round % len(arms)
	arms = append(arms[n:], arms[:n]...)
	if round/2%2 == 1 {
		slices.Reverse(arms)
	}
	return arms
}

// turn runs one block of work with one arm, in one round. agent is nil for the arms that run no agent: bare and limit.
func (b *bench) turn(ctx context.Context, cri *work.CRI, agent *rig.Agent, name string, round int, block string) error {
	switch name {
	case bare:
		return cri.Bare(ctx, b.rig, b.plan, b.arm(name, round), round, block)
	case limit:
		s := &work.Session{Rig: b.rig, Node: "bench-limit", Plan: b.plan, Samples: b.arm(name, round), CRI: cri}
		return s.RunLimit(ctx, round, block)
	}
	s := &work.Session{Rig: b.rig, Agent: agent, Node: agent.Node, Plan: b.plan, Samples: b.arm(name, round), CRI: cri}
	err := s.Run(ctx, round, block)
	if b.calls[name] == nil {
		b.calls[name] = map[string][]string{}
	}
	for what, calls := range map[string]map[string]float64{
		"CRI calls per minute at rest": s.Calls, "API requests per minute at rest": s.Requests,
		"API requests per pod start": s.Starts, "CRI calls per pod deletion": s.Stops,
	} {
		if len(calls) > 0 {
			b.calls[name][what] = work.Lines(calls)
		}
	}
	return err
}

func (b *bench) report() error {
	lines := table.Fill(rows(b.plan.Pods), b.samples, upstream, wherry)
	if b.took == "" {
		b.took = "took " + time.Since(b.began).Round(time.Second).String()
	}
	head := fmt.Sprintf("%s\n%d rounds, %d pods in sequence per round, %d pods at once (%d on the crowded node), %d containers killed per round, %v at rest; %s\n"+
		"median of all (least-greatest of a round); ratio: wherry to upstream\n",
		strings.Join(b.machine, "\n"), b.options.rounds, b.plan.Sequence, b.plan.Pods, b.plan.Dense, b.plan.Deaths, b.plan.Rest, b.took)
	fmt.Println(head)
	if err := table.Print(os.Stdout, lines, arms); err != nil {
		return err
	}
	for _, name := range []string{upstream, wherry} {
		for _, what := range slices.Sorted(maps.Keys(b.calls[name])) {
			if l := b.calls[name][what]; len(l) > 0 {
				fmt.Printf("\n%s, %s: %s", name, what, strings.Join(l, ", "))
			}
		}
	}
	fmt.Println()
	if b.md != "" {
		var s strings.Builder
		s.WriteString(strings.ReplaceAll(head, "\n", "\n\n"))
		if err := table.Markdown(&s, lines, arms); err != nil {
			return err
		}
		if err := write(b.md, []byte(s.String())); err != nil {
			return err
		}
	}
	if b.readme != "" {
		if err := b.intoReadme(lines); err != nil {
			return err
		}
	}
	if b.plot != "" {
		var series []table.Series
		for _, name := range arms {
			var times []float64
			for _, s := range b.samples[name] {
				times = append(times, s["pods at once, create to Ready, each"]...)
			}
			if len(times) > 0 {
				series = append(series, table.Series{Name: name, Times: times})
			}
		}
		title := fmt.Sprintf("%d pods at once: how many are Ready after how long", b.plan.Pods)
		if err := write(b.plot, []byte(table.Plot(title, "seconds since the pod was created", series))); err != nil {
			return err
		}
	}
	if b.json == "" {
		return nil
	}
	data, err := json.MarshalIndent(map[string]any{
		"began": b.began, "machine": b.machine, "plan": b.plan, "rounds": b.options.rounds, "table": lines, "samples": b.samples, "calls": b.calls,
	}, "", " ")
	if err != nil {
		return err
	}
	return write(b.json, data)
}

// intoReadme writes the rows of the table that are marked Short into the README.
func (b *bench) intoReadme(lines []table.Line) error {
	var s strings.Builder
	fmt.Fprintf(&s, "%s; %s; %s; %d rounds, %d pods at once. Median of all (least-greatest of a round); ratio: wherry to upstream.\n\n",
		b.machine[0], b.machine[2], b.machine[4], b.options.rounds, b.plan.Pods)
	short := slices.DeleteFunc(slices.Clone(lines), func(l table.Line) bool { return !l.Short })
	if err := table.Markdown(&s, short, arms); err != nil {
		return err
	}
	old, err := os.ReadFile(b.readme)
	if err != nil {
		return err
	}
	text, err := table.Between(string(old), "<!-- bench -->\n", "<!-- /bench -->", s.String())
	if err != nil {
		return fmt.Errorf("%s: %w", b.readme, err)
	}
	return write(b.readme, []byte(text))
}

// agree compares the tables of two runs, from files that -json wrote. It prints each cell whose spreads do not overlap and whose medians
// differ by more than table.Near, and returns an error if there are any.
func agree(files []string) error {
	if len(files) != 2 {
		return fmt.Errorf("-agree has %d files, it takes two", len(files))
	}
	var runs [2]struct{ Table []table.Line }
	for i, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, &runs[i]); err != nil {
			return fmt.Errorf("read %s: %w", f, err)
		}
	}
	cells, apart := table.Compare(runs[0].Table, runs[1].Table)
	if cells == 0 {
		return fmt.Errorf("%s and %s have no cell in common", files[0], files[1])
	}
	for _, a := range apart {
		fmt.Printf("%s, %s: %s and %s\n", strings.TrimSpace(a.Work), a.Column, a.One, a.Other)
	}
	fmt.Printf("%d of %d cells agree: their spreads overlap, or their medians differ by at most %.0f %%\n", cells-len(apart), cells, 100*table.Near)
	if len(apart) > 0 {
		return fmt.Errorf("%d cells do not agree", len(apart))
	}
	return nil
}

func write(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

func copyFile(path, dir string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(path))
	return to, os.WriteFile(to, data, 0o755)
}

func set(list string) map[string]bool {
	out := map[string]bool{}
	for _, s := range strings.Split(list, ",") {
		if s = strings.TrimSpace(s); s != "" {
			out[s] = true
		}
	}
	return out
}
