package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/wherry-node/wherry/internal/cli/manpage"
	"github.com/wherry-node/wherry/internal/edge/config"
)

// newMan returns the command `wherry man`, which writes the manual pages. They are generated from the commands, so they match this program.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the manual pages of all commands into a directory",
		Example: `  wherry man /usr/local/share/man/man1
  wherry man /tmp/man && man /tmp/man/wherry-run.1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			pages := manualPages(cmd.Root())
			for _, p := range pages {
				if err := os.WriteFile(filepath.Join(args[0], p.Name), []byte(p.Text), 0o644); err != nil {
					return err
				}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%d pages in %s\n", len(pages), args[0])
			return nil
		},
	}
}

// manualPages returns the manual pages of all commands below root.
func manualPages(root *cobra.Command) []manpage.Page {
	root.InitDefaultCompletionCmd()
	return manpage.Of(root, manpage.Config{
		Source: "wherry " + config.WherryVersion,
		Flags: func(c *cobra.Command) *pflag.FlagSet {
			if c.Name() == "kubelet" {
				return config.Flags()
			}
			return nil
		},
	})
}
