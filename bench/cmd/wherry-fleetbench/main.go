// Command wherry-fleetbench compares programs that simulate many nodes: `wherry fleet` and KWOK, and beside them a client that only writes
// what must be written. All get the same pods on one control plane, one after another. It prints a table for each number of nodes.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/wherry-node/wherry/bench/internal/fleets"
	"github.com/wherry-node/wherry/bench/internal/rig"
)

type options struct {
	sizes, arms, bin, json, md, flags string
	load                              fleets.Load
}

func main() {
	var o options
	flag.StringVar(&o.sizes, "nodes", "1000,2000,5000", "numbers of nodes, with commas between them")
	flag.IntVar(&o.load.Pods, "pods", 10000, "pods, spread over the nodes")
	flag.StringVar(&o.arms, "arms", "writer,kwok,wherry", "only these, by comma: writer (only what must be written), kwok, wherry")
	flag.DurationVar(&o.load.Rest, "rest", time.Minute, "how long the nodes are watched at rest")
	flag.DurationVar(&o.load.Patience, "patience", 20*time.Minute, "how long each step may take")
	flag.StringVar(&o.flags, "fleet-flags", "", "more flags of wherry fleet, with spaces between them")
	flag.StringVar(&o.bin, "bin", "../bin", "directory of the built programs; KWOK is built into it")
	flag.StringVar(&o.json, "json", "", "file for the results; empty: none")
	flag.StringVar(&o.md, "markdown", "", "file for the tables; empty: only standard output")
	flag.Parse()
	o.load.Log = func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "wherry-fleetbench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o *options) (err error) {
	var sizes []int
	for s := range strings.SplitSeq(o.sizes, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return fmt.Errorf("-nodes %q: give numbers, such as 1000,2000", o.sizes)
		}
		sizes = append(sizes, n)
	}
	wanted := strings.Split(o.arms, ",")
	for _, arm := range wanted {
		if !slices.Contains([]string{"writer", "kwok", "wherry"}, arm) {
			return fmt.Errorf("-arms %s: there is no arm %q, only writer, kwok, wherry", o.arms, arm)
		}
	}
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return err
	}
	var kwok []string
	if slices.Contains(wanted, "kwok") {
		if kwok, err = fleets.BuildKwok(ctx, bin); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "wf")
	if err != nil {
		return err
	}
	r, err := rig.Open(ctx, bin, dir, "", o.load.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	kubeconfig := filepath.Join(dir, "cp", "admin.kubeconfig")
	arm := func(name string) fleets.Arm {
		switch name {
		case "kwok":
			return fleets.Kwok(kwok, kubeconfig, filepath.Join(dir, "kwok.log"), r.Client)
		case "wherry":
			return fleets.Wherry(filepath.Join(bin, "wherry"), kubeconfig, filepath.Join(dir, "fleet.log"), strings.Fields(o.flags))
		}
		return &fleets.Writer{Client: r.Client}
	}
	var results []fleets.Result
	for _, n := range sizes {
		o.load.Nodes = n
		for _, name := range wanted {
			result, err := measure(ctx, r.Client, arm(name), o.load)
			if err != nil {
				return errors.Join(fmt.Errorf("%s, %d nodes: %w", name, n, err), report(o, results))
			}
			results = append(results, result)
		}
	}
	return report(o, results)
}

func measure(ctx context.Context, client kubernetes.Interface, a fleets.Arm, l fleets.Load) (fleets.Result, error) {
	c, err := fleets.Follow(ctx, client)
	if err != nil {
		return fleets.Result{}, err
	}
	defer c.Close()
	return fleets.Measure(ctx, c, a, l)
}

func report(o *options, results []fleets.Result) error {
	text := fleets.Markdown(results)
	fmt.Print(text)
	var errs []error
	if o.md != "" {
		errs = append(errs, os.WriteFile(o.md, []byte(text), 0o644))
	}
	if o.json != "" {
		b, err := json.MarshalIndent(results, "", "  ")
		errs = append(errs, err, os.WriteFile(o.json, append(b, '\n'), 0o644))
	}
	return errors.Join(errs...)
}
