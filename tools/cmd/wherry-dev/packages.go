package main

import (
	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/tools/internal/debian"
)

func packagesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "packages", Args: cobra.NoArgs,
		Short: "Install the Debian packages that are missing (as root; without root, name them)",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return debian.Install(cmd.Context(), debian.Needed(), cmd.ErrOrStderr())
		},
	}
}
