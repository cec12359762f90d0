package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// config has the values of the command's flags.
type config struct {
	dir, pkg, known, only string
	among                 string
	stages                []string
	args                  string
	timeout               time.Duration
	list                  bool
	from                  int
}

func main() {
	var c config
	var stages string
	flag.StringVar(&c.dir, "dir", ".", "root of the module")
	flag.StringVar(&c.pkg, "pkg", "./internal/core/decide", "the package to change and whose tests to run")
	flag.StringVar(&c.known, "known", "", "file of known survivors: NAME: reason")
	flag.StringVar(&c.only, "only", "", "only mutants whose name contains this")
	flag.StringVar(&stages, "run", "^TestScripts$;^TestSearch$", "regular expressions of tests, run one after another, quick ones first")
	flag.StringVar(&c.args, "args", "-test.short -test.failfast", "arguments of the test binary")
	flag.DurationVar(&c.timeout, "timeout", 2*time.Minute, "time of one run of the tests; a mutant that exceeds it is noticed")
	flag.StringVar(&c.among, "among", "", "file of names: only these mutants (lines of an earlier run's \"lived\")")
	flag.BoolVar(&c.list, "list", false, "only list the mutants")
	flag.IntVar(&c.from, "from", 1, "begin with this mutant")
	flag.Parse()
	c.stages = strings.Split(stages, ";")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "wherry-mutate:", err)
		os.Exit(1)
	}
}

func (c *config) run(ctx context.Context) error {
	tmp, err := os.MkdirTemp("", "wherry-mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	p, err := load(ctx, c.dir, c.pkg)
	if err != nil {
		return err
	}
	if err := p.instrument(); err != nil {
		return err
	}
	if c.list {
		for i, m := range p.mutants {
			fmt.Printf("%d %s\n", i+1, m)
		}
		return nil
	}
	bin, err := c.compile(ctx, p, tmp)
	if err != nil {
		return err
	}
	pkgDir := filepath.Join(c.dir, c.pkg)
	for _, stage := range c.stages { // without a mutant all tests must pass; otherwise every mutant would seem to be noticed
		if noticed, out := c.noticed(ctx, bin, pkgDir, stage, 0); noticed {
			return fmt.Errorf("the tests %s fail without any change:\n%s", stage, out)
		}
	}
	r, err := c.runAll(ctx, p, bin, pkgDir)
	if err != nil {
		return err
	}
	return c.verdict(r)
}

// compile writes the changed files into tmp and builds the test binary with them. It returns the path of the binary.
func (c *config) compile(ctx context.Context, p *pkg, tmp string) (string, error) {
	replace := map[string]string{}
	for path, src := range p.changed {
		to := filepath.Join(tmp, filepath.Base(path))
		if err := os.WriteFile(to, src, 0o644); err != nil {
			return "", err
		}
		replace[path] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(tmp, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		return "", err
	}
	bin := filepath.Join(tmp, "mutants.test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", bin, c.pkg)
	cmd.Dir = c.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the mutants: %w\n%s", err, out)
	}
	return bin, nil
}

// result tells how many mutants the tests noticed, and which ones survived.
type result struct {
	runs      int
	noticed   []int // number of mutants that each stage (a set of tests) noticed
	survivors []string
}

// runAll runs the tests for one mutant after another. For each mutant it runs the stages (sets of tests) in order, until one notices it.
func (c *config) runAll(ctx context.Context, p *pkg, bin, pkgDir string) (*result, error) {
	began := time.Now()
	var among []byte
	if c.among != "" {
		var err error
		if among, err = os.ReadFile(c.among); err != nil {
			return nil, err
		}
	}
	r := &result{noticed: make([]int, len(c.stages))}
	for i, m := range p.mutants {
		if i+1 < c.from || !strings.Contains(m, c.only) || (c.among != "" && !bytes.Contains(among, []byte(" "+m+"\n"))) {
			continue
		}
		r.runs++
		lived := true
		for n, stage := range c.stages {
			noticed, _ := c.noticed(ctx, bin, pkgDir, stage, i+1)
			if ctx.Err() != nil {
				return nil, fmt.Errorf("ended at mutant %d of %d: %w", i+1, len(p.mutants), ctx.Err())
			}
			if noticed {
				lived = false
				r.noticed[n]++
				break
			}
		}
		if lived {
			r.survivors = append(r.survivors, m)
			fmt.Printf("lived  %d %s\n", i+1, m)
		}
		if r.runs%50 == 0 {
			fmt.Printf("       %d of %d mutants, %d lived, %s\n", i+1, len(p.mutants), len(r.survivors), time.Since(began).Round(time.Second))
		}
	}
	return r, nil
}

// noticed runs the tests of a stage with one mutant (0: none), and reports whether they noticed it: they failed, panicked or did not end in
// time. It also returns their output.
func (c *config) noticed(ctx context.Context, bin, dir, stage string, mutant int) (bool, []byte) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	args := append([]string{"-test.run", stage}, strings.Fields(c.args)...)
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "WHERRY_MUTANT="+strconv.Itoa(mutant))
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return err != nil, out
}

// verdict returns an error if a mutant has survived that is not in the file of known survivors. If all mutants ran, it also returns an
// error if the file names a mutant that has not survived.
func (c *config) verdict(r *result) error {
	known, err := readKnown(c.known)
	if err != nil {
		return err
	}
	var fresh, stale []string
	for _, s := range r.survivors {
		if known[s] == "" {
			fresh = append(fresh, s)
		}
	}
	if c.only == "" && c.from == 1 && c.among == "" {
		for name := range known {
			if !slices.Contains(r.survivors, name) {
				stale = append(stale, name)
			}
		}
	}
	slices.Sort(stale)
	fmt.Printf("%d mutants of %s: %d noticed, %d lived (%d of them known, with a reason)\n",
		r.runs, c.pkg, r.runs-len(r.survivors), len(r.survivors), len(r.survivors)-len(fresh))
	for i, stage := range c.stages {
		fmt.Printf("%6d noticed by %s\n", r.noticed[i], stage)
	}
	for _, s := range stale {
		fmt.Printf("known, but noticed or not there any more: %s\n", s)
	}
	if len(fresh) > 0 || len(stale) > 0 {
		return fmt.Errorf("%d survivors without a reason in %s, %d reasons without a survivor", len(fresh), c.known, len(stale))
	}
	return nil
}

func readKnown(file string) (map[string]string, error) {
	known := map[string]string{}
	if file == "" {
		return known, nil
	}
	raw, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return known, nil
	}
	if err != nil {
		return nil, err
	}
	s := bufio.NewScanner(bytes.NewReader(raw))
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, ok := strings.Cut(line, ": ")
		if !ok || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s:%d: want NAME: reason", file, n)
		}
		known[name] = reason
	}
	return known, s.Err()
}
