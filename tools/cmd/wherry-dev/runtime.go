package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/tools/internal/debian"
	"github.com/wherry-node/wherry/tools/internal/images"
	"github.com/wherry-node/wherry/tools/internal/runtime"
)

// runtimeCommand returns the commands that start and end a separate containerd, which `wherry-dev up` and tests use.
func runtimeCommand() *cobra.Command {
	c := runtime.Config{SandboxImage: images.Pause}
	var flavor string
	parent := &cobra.Command{
		Use:   "runtime",
		Short: "A containerd with all its files below --dir; instances with different --dir and --pod-subnet do not disturb each other",
	}
	fs := parent.PersistentFlags()
	fs.StringVar(&c.Dir, "dir", "", "directory of the instance; its path must be short, because a unix socket is in it")
	fs.StringVar(&c.PodSubnet, "pod-subnet", "10.88.0.0/24", "addresses of its pods; no two instances may share them")
	fs.StringVar(&flavor, "flavor", string(runtime.Containerd2), "containerd2 (pinned) or debian (1.6)")
	fs.StringVar(&c.Registries, "registries", "", "directory of registry configurations, HOST/hosts.toml")
	fs.BoolVar(&c.Routed, "routed", false, "do not masquerade what pods send, because their addresses have routes outside the node")
	fs.BoolVar(&c.NoNetwork, "no-network", false, "write no CNI configuration yet, so that pods without hostNetwork cannot start")
	complete := func() error {
		root, err := checkout()
		if err != nil {
			return err
		}
		if c.Dir == "" {
			return errors.New("no --dir")
		}
		c.Flavor, c.Bin, c.DebianBin = runtime.Flavor(flavor), filepath.Join(root, "bin"), filepath.Join(root, ".wherry", "debian", "bin")
		c.Dir, err = filepath.Abs(c.Dir)
		return err
	}
	up := &cobra.Command{
		Use: "up", Short: "Start it, with the development images; prints its CRI endpoint", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := complete(); err != nil {
				return err
			}
			if c.Flavor == runtime.Debian {
				if _, err := debian.Runtime(cmd.Context(), filepath.Dir(c.DebianBin), cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			if err := runtime.Start(cmd.Context(), c); err != nil {
				return err
			}
			if err := runtime.Import(cmd.Context(), c, filepath.Join(c.Bin, "images.tar")); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), "unix://"+c.Socket())
			return nil
		},
	}
	var keep bool
	down := &cobra.Command{
		Use: "down", Short: "End it, its pods, mounts, networks and rules, and remove --dir", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := complete(); err != nil {
				return err
			}
			if keep {
				return runtime.Stop(cmd.Context(), c)
			}
			return runtime.Purge(cmd.Context(), c)
		},
	}
	down.Flags().BoolVar(&keep, "keep", false, "keep --dir")
	network := &cobra.Command{
		Use: "network", Short: "Write the CNI configuration that --no-network left out", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := complete(); err != nil {
				return err
			}
			return c.WriteNetwork()
		},
	}
	parent.AddCommand(up, down, network)
	return parent
}
