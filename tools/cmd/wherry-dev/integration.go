package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/tools/internal/integration"
)

func integrationCommand() *cobra.Command {
	return &cobra.Command{
		Use: "integration", Args: cobra.NoArgs,
		Short: "Run the integration tests with what is in bin/; the few that fail once more, alone",
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := checkout()
			if err != nil {
				return err
			}
			program := filepath.Join(root, "bin", "integration.test")
			compile := exec.CommandContext(cmd.Context(), "go", "test", "-c", "-o", program, "./test/integration")
			compile.Dir, compile.Stdout, compile.Stderr = root, os.Stdout, os.Stderr
			if err := compile.Run(); err != nil {
				return fmt.Errorf("compile the integration tests: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "integration tests: a control plane and containers of their own")
			return integration.Run(cmd.Context(), program, filepath.Join(root, "test", "integration"), []string{"-test.timeout", "40m"}, cmd.OutOrStdout())
		},
	}
}
