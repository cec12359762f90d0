package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/podctl"
	"github.com/wherry-node/wherry/internal/edge/config"
)

func main() {
	os.Exit(run(os.Args))
}

// run does the work of main and returns the exit status. It is a function of its own so that deferred calls run before the process exits.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// After the first signal the next one has its default effect again: it ends the process at once.
	context.AfterFunc(ctx, stop)

	root := newRoot()
	root.SetArgs(commandLine(args))
	err := root.ExecuteContext(ctx)
	if err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return 0
	}
	var status podctl.ExitStatus
	if errors.As(err, &status) {
		return int(status)
	}
	podctl.SayError(os.Stderr, err)
	var unmet *fleet.Unmet
	if errors.As(err, &unmet) {
		return exitUnmet
	}
	return 1
}

// exitInterrupted is the exit status of a command that the user has interrupted before it was done, as a shell gives it for SIGINT.
const exitInterrupted = 130

// finishing makes a command that has something to do to its end say so with its exit status if it is interrupted. Otherwise a script would take its end
// for success. Commands that run until the user ends them do not use it.
func finishing(run func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		err := run(cmd, args)
		if err != nil && cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
			return podctl.ExitStatus(exitInterrupted)
		}
		return err
	}
}

// exitUnmet is the exit status if expectations of a fleet did not hold in time.
const exitUnmet = 3

// commandLine returns the arguments for the root command. args[0] is the name of the program; if it is kubelet, the first argument becomes
// the command kubelet.
func commandLine(args []string) []string {
	if len(args) > 0 && filepath.Base(args[0]) == "kubelet" {
		return append([]string{"kubelet"}, args[1:]...)
	}
	return args[1:]
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "wherry",
		Short:         "A Kubernetes node agent, and the hand tools around it",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newKubelet(), newFleet(), newCRI(), newVersion(), newMan())
	root.AddCommand(newPodCommands()...)
	root.AddCommand(newTools()...)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w (%s --help lists the flags)", err, cmd.CommandPath())
	})
	sayUsage(root)
	return root
}

// sayUsage makes cmd and the commands below it say how they are used if the arguments are wrong. cobra's errors only count the arguments.
func sayUsage(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return fmt.Errorf("%w: use %s (%s --help says more)", err, cmd.UseLine(), cmd.CommandPath())
			}
			return nil
		}
	}
	for _, below := range cmd.Commands() {
		sayUsage(below)
	}
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Wherry and of the Kubernetes that it follows",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := config.ThisBuild()
			fmt.Fprintf(cmd.OutOrStdout(), "wherry %s (%s, %s, %s)\nKubernetes %s\n",
				config.WherryVersion, orUnknown(b.GitCommit), b.GoVersion, b.Platform, config.KubernetesVersion)
			return nil
		},
	}
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown commit"
	}
	return s
}
