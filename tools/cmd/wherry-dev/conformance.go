package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/tools/internal/conformance"
	"github.com/wherry-node/wherry/tools/internal/unit"
)

// toEnd is how long a test run may take to clean up after it is asked to stop.
const toEnd = 3 * time.Minute

func conformanceCommand() *cobra.Command {
	o := conformance.Options{}
	var inside, noBuild bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use: "conformance", Args: cobra.NoArgs,
		Short: "Run upstream's tests on a node of its own, in namespaces of its own",
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := checkout()
			if err != nil {
				return err
			}
			if !slices.Contains(conformance.Suites(), o.Suite) {
				return fmt.Errorf("--suite=%s is none of %s", o.Suite, strings.Join(conformance.Suites(), ", "))
			}
			o = o.Focused()
			if !o.OwnNamespaces() && o.Runtime == conformance.RuntimeDebian {
				return fmt.Errorf("--suite=%s runs only over containerd2", o.Suite)
			}
			if o.Node != "wherry" && o.Node != "kubelet" {
				return fmt.Errorf("--node=%s is neither wherry nor kubelet", o.Node)
			}
			if o.Runtime != "" && o.Runtime != "containerd2" && o.Runtime != conformance.RuntimeDebian {
				return fmt.Errorf("--runtime=%s is neither containerd2 nor %s", o.Runtime, conformance.RuntimeDebian)
			}
			if os.Geteuid() != 0 {
				return errors.New("conformance tests start containers: run as root")
			}
			o.Checkout, o.Progress = root, cmd.OutOrStdout()
			o.Whole = o.List == "" && o.Skip == "" && o.Focus == conformance.FocusDefault && o.Repeat <= 1
			ctx := cmd.Context()
			if inside {
				return conformance.Run(ctx, o)
			}
			if !noBuild {
				if err := conformance.Build(ctx, o); err != nil {
					return err
				}
			}
			if limit > 0 { // the build is outside the limit, because its time depends on the Go cache
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, limit)
				defer cancel()
			}
			if o.OwnNamespaces() {
				err = outside(ctx, o)
			} else {
				err = conformance.Run(ctx, o)
			}
			if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				err = fmt.Errorf("not done within --limit=%v (the start counts), so the run was ended: %w", limit, err)
			}
			return err
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Suite, "suite", conformance.SuiteCluster, "upstream's suite: e2e (of a cluster), node (of one node), kubeadm (e2e on the two nodes of a cluster that kubeadm makes), storage (e2e's tests of volumes on such nodes), external (those that use the CSI driver examples/csi) or vm (node, in a virtual machine with systemd and cgroup v2)")
	fs.StringVar(&o.Node, "node", "wherry", "the node agent: wherry, or kubelet (upstream's)")
	fs.StringVar(&o.Runtime, "runtime", "", "containerd2 (default) or debian: Debian's containerd, which has no container events")
	fs.StringVar(&o.Focus, "focus", conformance.FocusDefault, "regular expression of the tests to run")
	fs.StringVar(&o.Skip, "skip", "", "regular expression of the tests to leave out")
	fs.StringVar(&o.List, "list", "", "a file with the names of the tests, one per line, in place of --focus")
	fs.IntVar(&o.Procs, "procs", 6, "how many tests run at the same time")
	fs.IntVar(&o.Repeat, "repeat", 1, "how many times the tests run, or until one fails")
	fs.BoolVar(&o.Retry, "retry", false, "run the few that failed once more, alone, before they count")
	fs.BoolVar(&o.Brief, "brief", false, "print a summary in place of the table: what failed and why comes last")
	fs.DurationVar(&limit, "limit", 0, "end the run this long after the build; ending takes up to three minutes more")
	fs.BoolVar(&o.Keep, "keep", false, "at the end keep everything running until interrupted; with --suite=vm the guest stays for the next run")
	fs.IntVar(&o.SwapMiB, "swap", 0, "swap space of the guest in MiB (--suite=vm)")
	fs.BoolVar(&noBuild, "no-build", false, "take the programs in bin/ as they are")
	fs.BoolVar(&inside, "inside", false, "")
	_ = fs.MarkHidden("inside")
	return cmd
}

// systemctlCommand returns the command that other programs run in place of systemctl (package unit).
func systemctlCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "systemctl", Hidden: true,
		Short: "Start, stop or restart a node agent of this tool, as systemctl does",
		RunE: func(cmd *cobra.Command, args []string) error {
			return unit.Systemctl(cmd.Context(), file, args, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&file, "unit", "", "file that describes the unit")
	return cmd
}

// outside runs this program again in new network and mount namespaces. When ctx ends, that inner program has the time toEnd to clean up;
// then it is killed, and outside cleans up the rest.
func outside(ctx context.Context, o conformance.Options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	again := exec.CommandContext(ctx, self, append(os.Args[1:], "--inside")...)
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	// An interrupt from a terminal reaches both programs. SIGTERM and the time limit reach only this program, which passes them on.
	again.Cancel, again.WaitDelay = func() error { return again.Process.Signal(syscall.SIGTERM) }, toEnd
	if err := again.Start(); err != nil {
		return fmt.Errorf("enter new namespaces: %w", err)
	}
	err = again.Wait()
	if status, ok := again.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), toEnd)
		defer cancel()
		err = errors.Join(err, conformance.Down(down, o))
	}
	return err
}
