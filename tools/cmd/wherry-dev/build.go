package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/tools/internal/build"
)

func buildCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "build [target...]",
		Short: "Build our programs and the pinned ones of others into bin/, and the images",
		RunE: func(cmd *cobra.Command, names []string) error {
			root, err := checkout()
			if err != nil {
				return err
			}
			return build.Run(cmd.Context(), root, names, cmd.ErrOrStderr())
		},
	}
}

func releaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "release",
		Short: "Build the commit twice, compare, and make dist/: the agent, its bill of materials and checksums",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := checkout()
			if err != nil {
				return err
			}
			return build.Release(cmd.Context(), root, cmd.ErrOrStderr())
		},
	}
}

func imagesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "images",
		Short: "Make bin/images.tar, the container images (without a registry)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := checkout()
			if err != nil {
				return err
			}
			archive, err := build.Images(cmd.Context(), root)
			if err == nil {
				fmt.Fprintln(cmd.OutOrStdout(), archive)
			}
			return err
		},
	}
}
