// Command wherry-configs compares the CRI requests that upstream's kubelet and Wherry send for the same pods: for pods that set a single
// field of the spec, and for random pods.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/bench/internal/configs"
	"github.com/wherry-node/wherry/bench/internal/differ"
)

type options struct {
	n       int
	seed    uint64
	node    string
	fields  bool
	table   bool
	pods    bool
	profile string
	dir     string
}

func main() {
	var o options
	flag.IntVar(&o.n, "n", 1000, "how many random pods")
	flag.Uint64Var(&o.seed, "seed", 1, "seed of the first random pod")
	flag.StringVar(&o.node, "node", "default", "how the node is set up: default; strict (a seccomp profile by default, no CPU quota); swap (limited swap, 4 GiB)")
	flag.BoolVar(&o.fields, "fields", true, "each field alone, too")
	flag.BoolVar(&o.table, "table", false, "print what became of each field")
	flag.StringVar(&o.dir, "dir", "/dev/shm", "where the agents' files go while it runs")
	flag.BoolVar(&o.pods, "pods", false, "print the first pod of each undecided class")
	flag.StringVar(&o.profile, "cpuprofile", "", "file for a profile of the run")
	klogFlags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	flag.Parse()
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := klogFlags.Set(name, value); err != nil {
			fail(err)
		}
	}
	klog.SetOutput(io.Discard)
	utilruntime.ErrorHandlers = nil // errors are expected, because no container is started; the default handlers would log each one and wait
	if err := run(context.Background(), o); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "wherry-configs:", err)
	os.Exit(1)
}

// seen counts the pods that show one class of differences, and has the first of these pods with its difference.
type seen struct {
	count int
	first configs.Case
	diff  configs.Difference
}

func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp(o.dir, "wherry-configs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w := configs.NewWorld(dir)
	switch o.node {
	case "default":
	case "strict":
		w.SeccompDefault, w.CPUQuota = true, false
	case "swap":
		w.LimitedSwap, w.Swap = true, 4<<30
	default:
		return fmt.Errorf("-node %s: use default, strict or swap", o.node)
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	began := time.Now()
	pair, err := configs.NewPair(ctx, w)
	if err != nil {
		return err
	}
	r := report{pair: pair, options: o, classes: map[string]*seen{}}
	fmt.Printf("both agents made in %v\n", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	if o.fields {
		if err := r.alone(ctx); err != nil {
			return err
		}
	}
	random := configs.NewRandom()
	for i := range o.n {
		if _, err := r.take(ctx, random.Case(o.seed+uint64(i))); err != nil {
			return err
		}
	}
	fmt.Printf("%d pods compared in %v: %d sandboxes and %d containers, %d fields of the runtime's interface\n", r.compared, time.Since(began).Round(time.Millisecond),
		r.sandboxes, r.containers, r.values)
	fmt.Printf("%d more pods have a volume that cannot be made; for %d, neither agent makes a sandbox\n", r.without, r.neither)
	return r.finish()
}

type report struct {
	options
	pair                                    *configs.Pair
	classes                                 map[string]*seen
	compared, sandboxes, containers, values int
	// without is the number of pods with a volume that cannot be set up, because an object or a file is missing (configs.ErrNoVolume).
	without int
	// neither is the number of pods for which neither agent makes a sandbox, so that nothing is compared.
	neither int
	missing int
}

func (r *report) take(ctx context.Context, c configs.Case) (configs.Result, error) {
	res, err := r.pair.Run(ctx, c)
	if errors.Is(err, configs.ErrNoVolume) {
		r.without++
		return res, nil
	}
	if err != nil {
		return res, err
	}
	if res.Upstream.Sandbox == nil && res.Wherry.Sandbox == nil {
		r.neither++
		return res, nil
	}
	r.compared++
	if res.Upstream.Sandbox != nil {
		r.sandboxes++
	}
	r.containers += len(res.Upstream.Containers)
	r.values += res.Upstream.Fields()
	for _, d := range res.Found {
		if r.classes[d.Class] == nil {
			r.classes[d.Class] = &seen{first: c, diff: d}
		}
		r.classes[d.Class].count++
	}
	return res, nil
}

// alone compares, for each field of a pod's spec, pods in which only this field is set.
func (r *report) alone(ctx context.Context) error {
	plain, err := r.take(ctx, configs.Plain())
	if err != nil {
		return err
	}
	var set, shown, left int
	for _, f := range configs.Fields() {
		shows := false
		for _, c := range f.Cases {
			res, err := r.take(ctx, c)
			if err != nil {
				return err
			}
			shows = shows || res.Upstream != nil && configs.Shows(plain.Upstream, res.Upstream)
		}
		what := fmt.Sprintf("values tried: %d; reaches the runtime", len(f.Cases))
		switch {
		case f.Left != "":
			left++
			what = "not tried: " + f.Left
		case len(f.Cases) == 0 && strings.Contains(f.Refused, "Forbidden"):
			left++
			what = "not tried: the API server forbids this field"
		case len(f.Cases) == 0:
			r.missing++
			fmt.Printf("no valid value for field %s: %.300s\n", f.Path, f.Refused)
			continue
		case !shows:
			set++
			what = fmt.Sprintf("values tried: %d; does not reach the runtime", len(f.Cases))
		default:
			set++
			shown++
		}
		if r.table {
			fmt.Printf("| `%s` | %s |\n", f.Path, what)
		}
	}
	fmt.Printf("%d fields were set alone, %d of them reach the runtime; %d were not tried\n", set, shown, left)
	return nil
}

// Some pods of a run cannot be compared: pods with a volume that cannot be set up, and pods without a sandbox. A run fails if, of 100
// pods, more than mostWithout are of the first kind or more than mostNeither of the second. Runs of fewer than someRun pods are not
// checked. (Of 100 random pods, about 20 are of the first kind and 0.4 of the second.)
const (
	someRun     = 500
	mostWithout = 30
	mostNeither = 2
)

// leftOut returns an error if the run compared too few of its pods (see mostWithout and mostNeither).
func (r *report) leftOut() error {
	all := r.compared + r.without + r.neither
	if all < someRun || r.without*100 <= mostWithout*all && r.neither*100 <= mostNeither*all {
		return nil
	}
	return fmt.Errorf("of %d pods, %d have a volume that cannot be made (at most %d in 100 may) and for %d neither agent makes a sandbox (at most %d in 100)",
		all, r.without, mostWithout, r.neither, mostNeither)
}

// wholeRun is the number of pods from which a run counts as complete. In a complete run each class in differ.ConfigDecisions must occur,
// or the run fails.
const wholeRun = 9000

func (r *report) finish() error {
	undecided := 0
	for _, class := range slices.Sorted(maps.Keys(r.classes)) {
		s := r.classes[class]
		if differ.Decided(class) {
			fmt.Printf("decided   %6d  %s\n", s.count, class)
			continue
		}
		undecided++
		fmt.Printf("UNDECIDED %6d  %s\n                  first: %s, %s\n", s.count, class, s.first.Name, s.diff.Where)
		if r.options.pods {
			if text, err := yaml.Marshal(s.first.Pod); err == nil {
				fmt.Printf("%s\n", text)
			}
		}
	}
	unneeded := 0
	for _, d := range differ.ConfigDecisions {
		if r.classes[d.Class] == nil && r.compared >= wholeRun {
			unneeded++
			fmt.Printf("no pod needs the decision: %s\n", d.Class)
		}
	}
	err := r.leftOut()
	if undecided > 0 || r.missing > 0 || unneeded > 0 {
		err = errors.Join(err, fmt.Errorf("%d undecided classes, %d fields without a valid value, %d decisions that no pod needs", undecided, r.missing, unneeded))
	}
	return err
}
