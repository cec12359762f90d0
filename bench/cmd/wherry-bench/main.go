// Command wherry-bench measures the same work on upstream's kubelet, on bare CRI calls and on Wherry, in one run on one
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
	"os/exec"
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

// The arms, in the order of a round.
const (
	bare     = "bare CRI"
	upstream = "upstream"
	wherry   = "wherry"
)

var rows = []table.Row{
	{Title: "RSS idle", Sample: "RSS, idle", Unit: table.MiB, Target: 0.4},
	{Title: "  of it anonymous", Sample: "RSS anonymous, idle", Unit: table.MiB},
	{Title: "  of it file pages", Sample: "RSS file, idle", Unit: table.MiB},
	{Title: "RSS with all pods", Sample: "RSS, all pods", Unit: table.MiB, Target: 0.45},
	{Title: "  of it anonymous", Sample: "RSS anonymous, all pods", Unit: table.MiB},
	{Title: "  of it file pages", Sample: "RSS file, all pods", Unit: table.MiB},
	{Title: "RSS with all pods, after a restart", Sample: "RSS, all pods, after a restart", Unit: table.MiB},
	{Title: "CPU with all pods at rest, of a core", Sample: "CPU at rest, % of a core", Unit: table.Percent, Target: 0.15},
	{Title: "one pod, create to Ready, p50", Sample: "one pod, create to Ready", Unit: table.Milliseconds, Target: 0.5},
	{Title: "one pod, delete (grace 1 s) to gone, p50", Sample: "one pod, delete to gone", Unit: table.Milliseconds, Target: 0.45},
	{Title: "pods at once, total", Sample: "pods at once, create to Ready, total", Unit: table.Seconds, Target: 0.55},
	{Title: "pods at once, p50 of a pod", Sample: "pods at once, create to Ready, each", Unit: table.Seconds, Target: 0.35},
	{Title: "pods at once, p99 of a pod", Sample: "pods at once, create to Ready, each", Unit: table.Seconds, Quantile: 0.99},
	{Title: "pods deleted (grace 1 s), total", Sample: "pods deleted, delete to gone, total", Unit: table.Seconds, Target: 0.5},
	{Title: "pods deleted by force (grace 0), to the end of the last process", Sample: "pods deleted by force, to the end of the last process", Unit: table.Seconds},
	{Title: "pod with 20 ConfigMap volumes, create to Ready, p50", Sample: "20 ConfigMap volumes, create to Ready", Unit: table.Milliseconds},
	{Title: "pod with 20 ConfigMap volumes, delete (grace 1 s) to gone, p50", Sample: "20 ConfigMap volumes, delete to gone", Unit: table.Milliseconds},
	{Title: "crowded node, pods at once, total", Sample: "dense, create to Ready, total", Unit: table.Seconds},
	{Title: "crowded node, pods at once, p50 of a pod", Sample: "dense, create to Ready, each", Unit: table.Seconds},
	{Title: "crowded node, RSS", Sample: "RSS, dense", Unit: table.MiB},
	{Title: "crowded node, pods deleted (grace 1 s), total", Sample: "dense, delete to gone, total", Unit: table.Seconds},
	{Title: "container death to API, p50", Sample: "container death to API", Unit: table.Milliseconds},
	{Title: "container death to API, p99", Sample: "container death to API", Unit: table.Milliseconds, Quantile: 0.99, Limit: 0.1},
	{Title: "first start to Ready, with TLS bootstrap", Sample: "first start to Ready", Unit: table.Milliseconds},
	{Title: "start to Ready, no pods", Sample: "start to Ready, no pods", Unit: table.Milliseconds},
	{Title: "restart with all pods, to Ready", Sample: "restart with all pods, to Ready", Unit: table.Milliseconds, Target: 0.6},
	{Title: "restart, changes of pods in the API", Sample: "restart, changes of pods in the API"},
	{Title: "CPU, each pod with an exec probe a second, of a core", Sample: "CPU with a probe a second, exec", Unit: table.Percent, Target: 0.5},
	{Title: "CPU, each pod with an HTTP probe a second, of a core", Sample: "CPU with a probe a second, http", Unit: table.Percent},
	{Title: "  probes that came, per second", Sample: "probes per second, http"},
	{Title: "CPU, each pod with a gRPC probe a second, of a core", Sample: "CPU with a probe a second, grpc", Unit: table.Percent},
	{Title: "  probes that came, per second", Sample: "probes per second, grpc"},
	{Title: "API requests per minute at rest", Sample: "API requests per minute at rest"},
	{Title: "API requests per pod start", Sample: "API requests per pod start"},
	{Title: "CRI calls per minute at rest", Sample: "CRI calls per minute at rest"},
	{Title: "goroutines with all pods", Sample: "go_goroutines"},
	{Title: "heap in use with all pods", Sample: "go_memstats_heap_inuse_bytes", Unit: table.MiB},
	{Title: "binary, stripped", Sample: "binary", Unit: table.MiB, Target: 0.6},
	{Title: "Go packages", Sample: "packages", Target: 0.75},
}

type options struct {
	rounds         int
	plan           work.Plan
	work, probes   string
	arms           string
	json, md, plot string
	dir            string
	runtime        string
	full           bool
	keep, prebuilt bool
}

func main() {
	o := options{}
	flag.BoolVar(&o.full, "full", false, "more rounds, more of everything, and what takes long: 250 pods, HTTP and gRPC probes. What is set by a flag stays")
	flag.IntVar(&o.rounds, "rounds", 2, "how often each arm has its turn")
	flag.IntVar(&o.plan.Sequence, "sequence", 6, "pods one after another, per round")
	flag.IntVar(&o.plan.Pods, "pods", 100, "pods at once")
	flag.IntVar(&o.plan.Deaths, "deaths", 10, "containers killed, per round")
	flag.IntVar(&o.plan.Volumes, "volumes", 3, "pods with 20 ConfigMap volumes, one after another, per round")
	flag.IntVar(&o.plan.Dense, "dense", 0, "pods at once on a crowded node, such as 250; 0: not done")
	flag.IntVar(&o.plan.Parallel, "parallel", 16, "workers of the bare arm")
	flag.DurationVar(&o.plan.Rest, "rest", 30*time.Second, "how long the agent is watched at rest")
	flag.StringVar(&o.probes, "probes", "exec", "kinds of probe that all pods have each second, by comma: exec, http, grpc")
	flag.StringVar(&o.work, "work", "", "only these, by comma: idle, one, volumes, many, death, restart, probes, dense (death and restart need many); default all")
	flag.StringVar(&o.arms, "arms", "", "only these, by comma: bare, upstream, wherry; default all")
	flag.StringVar(&o.json, "json", "results/bench.json", "file for all samples; empty: none")
	flag.StringVar(&o.md, "markdown", "results/bench.md", "file for the table in Markdown; empty: none")
	flag.StringVar(&o.plot, "plot", "results/bench.svg", "file for the plot of start times; empty: none")
	flag.StringVar(&o.dir, "dir", "", "directory of the rig, short (default: a new one below /tmp)")
	flag.StringVar(&o.runtime, "runtime", "containerd2", "the runtime of all arms: containerd2, or debian (containerd 1.6)")
	flag.BoolVar(&o.prebuilt, "prebuilt", false, "measure bin/bench-kubelet and bin/wherry as they are, unbuilt")
	flag.StringVar(&o.plan.Profiles, "profiles", "", "directory for CPU and heap profiles of the agents with many pods and at rest; empty: none are taken")
	flag.BoolVar(&o.keep, "keep-logs", false, "keep the agents' logs in the current directory")
	flag.Parse()
	if o.full {
		given := map[string]bool{}
		flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
		for name, value := range map[string]string{"rounds": "4", "sequence": "20", "deaths": "20", "volumes": "5", "dense": "250", "rest": "1m", "probes": "exec,http,grpc"} {
			if !given[name] {
				_ = flag.Set(name, value)
			}
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
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
	checkout, err := findCheckout()
	if err != nil {
		return err
	}
	o.plan.Work = set(o.work)
	o.plan.Probes = slices.Sorted(maps.Keys(set(o.probes)))
	b := &bench{options: o, samples: map[string]map[string][]float64{}, began: time.Now()}
	if b.programs, err = buildPrograms(ctx, checkout, o.prebuilt, b.arm); err != nil {
		return err
	}
	dir := o.dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "wb"); err != nil {
			return err
		}
	}
	// A copy: a build beside us must not change what runs.
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
	// What was measured before a failure is shown, too.
	return errors.Join(err, b.report())
}

type bench struct {
	*options
	rig      *rig.Rig
	programs map[string][]string // by arm
	samples  map[string]map[string][]float64
	calls    map[string]map[string][]string
	machine  []string
	began    time.Time
}

// arm is where an arm's samples go.
func (b *bench) arm(name string) work.Samples {
	if b.samples[name] == nil {
		b.samples[name] = map[string][]float64{}
	}
	return b.samples[name]
}

func (b *bench) wants(arm string) bool {
	s := set(b.arms)
	return len(s) == 0 || s[strings.Fields(arm)[0]]
}

func (b *bench) rounds(ctx context.Context) error {
	cri, err := work.DialCRI(b.rig.Socket, filepath.Join(b.rig.Dir, "bare"))
	if err != nil {
		return err
	}
	defer cri.Close()
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
	b.calls = map[string]map[string][]string{}
	var errs []error // what fails costs its own rows alone
	for round := range b.options.rounds {
		if ctx.Err() != nil {
			break
		}
		order := []string{upstream, wherry}
		if round%2 == 1 { // so that neither has always the colder machine
			slices.Reverse(order)
		}
		if b.wants(bare) {
			progress("round %d of %d: %s", round+1, b.options.rounds, bare)
			if err := cri.Bare(ctx, b.plan, b.arm(bare), round); err != nil {
				errs = append(errs, fmt.Errorf("round %d: %s: %w", round+1, bare, err))
			}
		}
		for _, name := range order {
			if !b.wants(name) || ctx.Err() != nil {
				continue
			}
			progress("round %d of %d: %s", round+1, b.options.rounds, name)
			s := &work.Session{Rig: b.rig, Agent: agents[name], Plan: b.plan, Samples: b.arm(name), CRI: cri}
			if err := s.Run(ctx, round); err != nil {
				errs = append(errs, fmt.Errorf("round %d: %s: %w", round+1, name, err))
			}
			b.calls[name] = map[string][]string{
				"CRI calls per minute at rest": work.Lines(s.Calls), "API requests per minute at rest": work.Lines(s.Requests),
				"API requests per pod start": work.Lines(s.Starts),
			}
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

func (b *bench) report() error {
	lines := table.Fill(rows, b.samples, upstream, wherry)
	arms := []string{bare, upstream, wherry}
	head := fmt.Sprintf("%s\n%d rounds, %d pods in sequence per round, %d pods at once (%d on the crowded node), %d containers killed per round, %v at rest; took %v\n"+
		"median (least-greatest); ratio: wherry to upstream\n",
		strings.Join(b.machine, "\n"), b.options.rounds, b.plan.Sequence, b.plan.Pods, b.plan.Dense, b.plan.Deaths, b.plan.Rest, time.Since(b.began).Round(time.Second))
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
	if b.plot != "" {
		var series []table.Series
		for _, name := range arms {
			if times := b.samples[name]["pods at once, create to Ready, each"]; len(times) > 0 {
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

// findCheckout looks for the project's root from here upwards.
func findCheckout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "bench", "cmd", "wherry-bench")); err == nil {
			return d, nil
		}
	}
	return "", fmt.Errorf("%s is not in a checkout of the project", dir)
}

// buildPrograms builds both agents, stripped and without cgo, and counts what is in them.
func buildPrograms(ctx context.Context, checkout string, prebuilt bool, arm func(string) work.Samples) (map[string][]string, error) {
	bin := filepath.Join(checkout, "bin")
	for _, need := range []string{"wherry-controlplane", "wherry-dev", "containerd", "images.tar"} {
		if _, err := os.Stat(filepath.Join(bin, need)); err != nil {
			return nil, fmt.Errorf("%w: run `make build` first", err)
		}
	}
	const v = "k8s.io/component-base/version."
	ldflags := "-s -w -X " + v + "gitVersion=v1.36.3 -X " + v + "gitMajor=1 -X " + v + "gitMinor=36 -X " + v + "gitTreeState=clean"
	for _, p := range []struct {
		arm, file, module, pkg string
		build                  []string // in the module's directory, or that of the build's own
	}{
		{upstream, "bench-kubelet", "bench", "k8s.io/kubernetes/cmd/kubelet",
			[]string{"bench", "build", "-ldflags", ldflags, "-o", filepath.Join(bin, "bench-kubelet"), "k8s.io/kubernetes/cmd/kubelet"}},
		// Wherry as everybody builds it.
		{wherry, "wherry", ".", "./cmd/wherry", []string{"tools", "run", "./cmd/wherry-dev", "build", "wherry"}},
	} {
		if !prebuilt {
			progress("building %s", p.file)
			if msg, err := goCommand(ctx, filepath.Join(checkout, p.build[0]), p.build[1:]...); err != nil {
				return nil, fmt.Errorf("build %s: %w\n%s", p.file, err, msg)
			}
		}
		deps, err := goCommand(ctx, filepath.Join(checkout, p.module), "list", "-tags", "grpcnotrace", "-deps", p.pkg)
		if err != nil {
			return nil, fmt.Errorf("list packages of %s: %w\n%s", p.pkg, err, deps)
		}
		st, err := os.Stat(filepath.Join(bin, p.file))
		if err != nil {
			return nil, err
		}
		arm(p.arm)["binary"] = []float64{float64(st.Size())}
		arm(p.arm)["packages"] = []float64{float64(strings.Count(string(deps), "\n"))}
	}
	return map[string][]string{
		upstream: {filepath.Join(bin, "bench-kubelet")},
		wherry:   {filepath.Join(bin, "wherry"), "kubelet"},
	}, nil
}

func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	return cmd.CombinedOutput()
}
