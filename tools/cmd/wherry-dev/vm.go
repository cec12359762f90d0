package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// vmCommand returns the commands that manage a virtual machine as a node.
func vmCommand() *cobra.Command {
	var o vmnode.Options
	parent := &cobra.Command{Use: "vm", Short: "A virtual machine with systemd and cgroup v2 as a node, with Wherry from its packages"}
	parent.PersistentFlags().StringVar(&o.Dir, "dir", "", "directory of all files of the machine (default: .wherry/vm in the checkout)")
	parent.PersistentFlags().StringVar(&o.Cache, "cache", "", "where images are kept (default: wherry/vm in the user's cache directory)")
	env := func(cmd *cobra.Command) (*vmnode.Env, error) {
		root, err := checkout()
		if err != nil {
			return nil, err
		}
		o.Checkout, o.Progress = root, cmd.OutOrStdout()
		return vmnode.New(o)
	}
	up := &cobra.Command{
		Use: "up", Args: cobra.NoArgs, Short: "Build all, boot the guest, install the packages in it and join it to a control plane",
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := env(cmd)
			if err != nil {
				return err
			}
			if err := e.Up(cmd.Context()); err != nil {
				return err
			}
			return e.Summary(cmd.Context())
		},
	}
	up.Flags().BoolVar(&o.NoBuild, "no-build", false, "take the programs in bin/ as they are")
	up.Flags().StringVar(&o.Accel, "accel", "", "kvm or tcg, emulation ($WHERRY_VM_ACCEL; default: kvm where guests run under it)")
	prepare := &cobra.Command{
		Use: "prepare", Args: cobra.NoArgs, Short: "Build the programs and the image that up and the tests need, upstream's kubelet too",
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := env(cmd)
			if err != nil {
				return err
			}
			return e.Prepare(cmd.Context(), "kubelet")
		},
	}
	prepare.Flags().BoolVar(&o.NoBuild, "no-build", false, "build only the image")
	down := &cobra.Command{
		Use: "down", Args: cobra.NoArgs, Short: "End the guest and its control plane, and leave nothing but the image and the logs",
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := env(cmd)
			if err != nil {
				return err
			}
			return e.Down(cmd.Context())
		},
	}
	sh := &cobra.Command{
		Use: "sh COMMAND [ARG...]", Args: cobra.MinimumNArgs(1), Short: "Run a shell command in the guest as root, without a terminal",
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := env(cmd)
			if err != nil {
				return err
			}
			r, err := e.Agent().Run(cmd.Context(), 10*time.Minute, "/bin/sh", "-c", strings.Join(args, " "))
			if err != nil {
				return err
			}
			fmt.Fprint(os.Stdout, r.Stdout)
			fmt.Fprint(os.Stderr, r.Stderr)
			if r.Code != 0 {
				return fmt.Errorf("the command ended with code %d", r.Code)
			}
			return nil
		},
	}
	kubectl := &cobra.Command{
		Use: "kubectl ARG...", Short: "Run kubectl as administrator of the guest's cluster",
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := env(cmd)
			if err != nil {
				return err
			}
			return e.KubectlHere(cmd.Context(), args...)
		},
	}
	for _, c := range []*cobra.Command{sh, kubectl} { // flags after the first argument belong to the command that runs in the guest, or to kubectl
		c.Flags().SetInterspersed(false)
	}
	parent.AddCommand(up, prepare, down, sh, kubectl)
	return parent
}
