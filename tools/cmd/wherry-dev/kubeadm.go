package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/tools/internal/kubeadm"
)

// kubeadmCommand returns the commands that manage a cluster of two nodes made by kubeadm.
func kubeadmCommand() *cobra.Command {
	var o kubeadm.Options
	parent := &cobra.Command{Use: "kubeadm", Short: "A cluster of two nodes that kubeadm makes on this machine, its control plane as static pods"}
	parent.PersistentFlags().StringVar(&o.Dir, "dir", "", "directory of all files of the cluster (default: .wherry/kubeadm in the checkout)")
	parent.PersistentFlags().StringVar(&o.Agent, "node", "wherry", "the node agent: wherry, or kubelet (upstream's)")
	parent.PersistentFlags().BoolVar(&o.NoBuild, "no-build", false, "take the programs in bin/ as they are")
	command := func(use, short string, args cobra.PositionalArgs, do func(ctx context.Context, c *kubeadm.Cluster, args []string) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: args, RunE: func(cmd *cobra.Command, args []string) error {
			root, err := checkout()
			if err != nil {
				return err
			}
			o.Checkout, o.Progress = root, cmd.OutOrStdout()
			c, err := kubeadm.New(o)
			if err != nil {
				return err
			}
			return do(cmd.Context(), c, args)
		}}
	}
	var keep bool
	walk := command("walk", "Make the cluster, walk through its life (init, join, renewal, upgrade, reset), and end it", cobra.NoArgs,
		func(ctx context.Context, c *kubeadm.Cluster, _ []string) error { return c.Walk(ctx, keep) })
	walk.Flags().BoolVar(&keep, "keep", false, "leave the cluster up, and the reset out")
	up := command("up", "Make the cluster", cobra.NoArgs, func(ctx context.Context, c *kubeadm.Cluster, _ []string) error { return c.Up(ctx) })
	down := command("down", "End the cluster and leave nothing but the logs", cobra.NoArgs,
		func(ctx context.Context, c *kubeadm.Cluster, _ []string) error { return c.Down(ctx) })
	kubectl := command("kubectl ARG...", "Run kubectl as administrator of the cluster", cobra.ArbitraryArgs,
		func(ctx context.Context, c *kubeadm.Cluster, args []string) error {
			return here(c.Command(ctx, filepath.Join(c.Checkout, "bin", "kubectl"), args...))
		})
	run := command("run COMMAND [ARG...]", "Run a command where the cluster can be reached, with $KUBECONFIG", cobra.MinimumNArgs(1),
		func(ctx context.Context, c *kubeadm.Cluster, args []string) error {
			return here(c.Command(ctx, args[0], args[1:]...))
		})
	on := command("on NODE COMMAND [ARG...]", "Run a command on the node one or two", cobra.MinimumNArgs(2),
		func(ctx context.Context, c *kubeadm.Cluster, args []string) error {
			return here(c.On(ctx, args[0], args[1], args[2:]...))
		})
	for _, c := range []*cobra.Command{kubectl, run, on} { // flags after the first argument belong to the command that runs
		c.Flags().SetInterspersed(false)
	}
	parent.AddCommand(walk, up, down, kubectl, run, on)
	return parent
}

// here runs a command with the standard input and output of this program.
func here(cmd *exec.Cmd, err error) error {
	if err != nil {
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
