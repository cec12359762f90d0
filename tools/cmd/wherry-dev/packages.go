package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/tools/internal/debian"
)

func packagesCommand() *cobra.Command {
	var browser bool
	cmd := &cobra.Command{
		Use: "packages", Args: cobra.NoArgs,
		Short: "Install the Debian packages that are missing (as root; without root, name them)",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := debian.Install(cmd.Context(), debian.Needed(), cmd.ErrOrStderr()); err != nil || !browser {
				return err
			}
			// Only the tests of the console need a browser, so a machine whose package sources have none can still run all others.
			if err := debian.Install(cmd.Context(), debian.Browser(), cmd.ErrOrStderr()); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "the tests of the console in a browser are skipped: %v\n", err)
			}
			return cmd.Context().Err()
		},
	}
	cmd.Flags().BoolVar(&browser, "browser", false, "also the browser that the tests of the console use, if the package sources have it")
	return cmd
}
