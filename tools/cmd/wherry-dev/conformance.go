package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/tools/internal/conformance"
)

func conformanceCommand() *cobra.Command {
	o := conformance.Options{}
	var inside, noBuild bool
	cmd := &cobra.Command{
		Use: "conformance", Args: cobra.NoArgs,
		Short: "Run upstream's tests on a node of its own, in namespaces of its own",
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := checkout()
			if err != nil {
				return err
			}
			if o.Node != "wherry" && o.Node != "kubelet" {
				return fmt.Errorf("--node=%s is neither wherry nor kubelet", o.Node)
			}
			if os.Geteuid() != 0 {
				return errors.New("conformance tests start containers: run as root")
			}
			o.Checkout, o.Progress = root, cmd.OutOrStdout()
			if inside {
				return conformance.Run(cmd.Context(), o)
			}
			if !noBuild {
				if err := conformance.Build(cmd.Context(), o); err != nil {
					return err
				}
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			again := exec.Command(self, append(os.Args[1:], "--inside")...)
			again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
			again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
			if err := again.Start(); err != nil {
				return fmt.Errorf("enter new namespaces: %w", err)
			}
			go func() { // a terminal's interrupt reaches both; SIGTERM only this one
				<-cmd.Context().Done()
				_ = again.Process.Signal(syscall.SIGTERM)
			}()
			return again.Wait()
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.Node, "node", "wherry", "the node agent: wherry, or kubelet (upstream's)")
	fs.StringVar(&o.Focus, "focus", `\[NodeConformance\]`, "which tests: a regular expression")
	fs.StringVar(&o.Skip, "skip", "", "which not")
	fs.StringVar(&o.List, "list", "", "a file with the names of the tests, one per line, in place of --focus")
	fs.IntVar(&o.Procs, "procs", 6, "tests at a time")
	fs.IntVar(&o.Repeat, "repeat", 1, "run them so often, until one fails")
	fs.BoolVar(&o.Keep, "keep", false, "at the end leave everything up until interrupted")
	fs.BoolVar(&noBuild, "no-build", false, "take the programs in bin/ as they are")
	fs.BoolVar(&inside, "inside", false, "")
	_ = fs.MarkHidden("inside")
	return cmd
}
