package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/tools/internal/dev"
)

func environment(cmd *cobra.Command, o dev.Options) (*dev.Env, error) {
	root, err := checkout()
	if err != nil {
		return nil, err
	}
	o.Checkout, o.Progress = root, cmd.OutOrStdout()
	return dev.New(o)
}

func upCommand() *cobra.Command {
	var o dev.Options
	cmd := &cobra.Command{
		Use: "up", Args: cobra.NoArgs,
		Short: "Build everything and bring up a control plane, a runtime and one Wherry node with an example",
		RunE: func(cmd *cobra.Command, _ []string) error {
			env, err := environment(cmd, o)
			if err != nil {
				return err
			}
			return env.Up(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&o.Runtime, "runtime", os.Getenv("RUNTIME"), "containerd2, debian, simulated, or the path of a CRI socket ($RUNTIME); default containerd2, simulated where that cannot run")
	cmd.Flags().StringVar(&o.NodeName, "node-name", "", "the node's name (default: the machine's)")
	cmd.Flags().BoolVar(&o.SkipExample, "no-example", false, "leave the example out")
	cmd.Flags().BoolVar(&o.SkipDNS, "no-dns", false, "leave the cluster's DNS out")
	return cmd
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End everything that up started and leave nothing behind", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			env, err := environment(cmd, dev.Options{})
			if err != nil {
				return err
			}
			return env.Down(cmd.Context())
		},
	}
}

func statusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show what runs", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			env, err := environment(cmd, dev.Options{})
			if err != nil {
				return err
			}
			return env.Status(cmd.Context())
		},
	}
}

func csiExampleCommand() *cobra.Command {
	var o dev.Options
	cmd := &cobra.Command{
		Use: "csi-example", Args: cobra.NoArgs,
		Short: "On the environment that is up: a StatefulSet with a CSI volume that waits, grows and moves, step by step (examples/csi)",
		RunE: func(cmd *cobra.Command, _ []string) error {
			env, err := environment(cmd, o)
			if err != nil {
				return err
			}
			return env.CSIExample(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&o.Bare, "no-build", false, "the driver and the sidecars have been built already")
	return cmd
}
