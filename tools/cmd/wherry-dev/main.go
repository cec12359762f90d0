// Command wherry-dev builds, starts, shows and ends the development environment. See `wherry-dev --help`.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "wherry-dev:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "wherry-dev",
		Short:         "The development environment of Wherry: a control plane, a container runtime, a node.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), downCommand(), statusCommand(), csiExampleCommand(), packagesCommand(), buildCommand(), releaseCommand(), imagesCommand(), runtimeCommand(), withPlaneCommand(), conformanceCommand(), systemctlCommand(), integrationCommand(), vmCommand(), kubeadmCommand())
	return root
}

// checkout returns the root of the project's checkout: the nearest directory that has tools/ and controlplane/, upwards from the working
// directory or, if there is none, upwards from this program.
func checkout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, start := range []string{dir, filepath.Dir(program)} {
		for at := start; at != filepath.Dir(at); at = filepath.Dir(at) {
			if exists(filepath.Join(at, "tools", "go.mod")) && exists(filepath.Join(at, "controlplane", "go.mod")) {
				return at, nil
			}
		}
	}
	return "", errors.New("find checkout: neither " + dir + " nor " + program + " is in a checkout")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
