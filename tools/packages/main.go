// Command wherry-packages builds the agent and the packages from which users install it: .deb, .rpm, a tarball and an OCI image. It is in a
// module of its own, so that the development environment does not need the libraries that write packages.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/wherry-node/wherry/tools/internal/build"
	"github.com/wherry-node/wherry/tools/packages/internal/packages"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "wherry-packages:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var root, out, version string
	var arches []string
	cmd := &cobra.Command{
		Use: "wherry-packages", Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		Short: "Build the agent of a checkout and make .deb, .rpm, a tarball and an OCI image of it",
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := filepath.Abs(root)
			if err != nil {
				return err
			}
			if out == "" {
				out = filepath.Join(root, "dist", "packages")
			}
			return makePackages(cmd.Context(), root, out, version, arches, cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&root, "checkout", ".", "the root of the project's tree")
	cmd.Flags().StringVar(&out, "out", "", "where they are written (default: dist/packages in the checkout)")
	cmd.Flags().StringVar(&version, "version", "", "the version of the packages, in place of the commit's: for tests of upgrades")
	cmd.Flags().StringSliceVar(&arches, "arch", []string{"amd64", "arm64"}, "for which architectures")
	return cmd
}

func makePackages(ctx context.Context, root, out, version string, arches []string, progress io.Writer) error {
	dir, err := os.MkdirTemp("", "wherry-packages-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	programs := map[string][]byte{}
	for _, arch := range arches {
		if programs[arch], err = agentFor(ctx, root, dir, arch, progress); err != nil {
			return err
		}
	}
	if !slices.Contains(arches, runtime.GOARCH) { // a program that can run on this machine is needed to print the manual
		if _, err := agentFor(ctx, root, dir, runtime.GOARCH, progress); err != nil {
			return err
		}
	}
	source, err := packages.Describe(ctx, root, filepath.Join(dir, "wherry-"+runtime.GOARCH))
	if err != nil {
		return err
	}
	source.Programs = programs
	if version != "" {
		source.Version = version
	}
	all, err := source.All()
	if err != nil {
		return err
	}
	if err := sameAgain(source, all); err != nil {
		return err
	}
	if strings.HasSuffix(source.Version, packages.Changed) {
		fmt.Fprintln(progress, "the checkout has changes that are in no commit: nobody else can make these packages")
	}
	fmt.Fprintf(progress, "made twice and equal; in %s:\n", out)
	return packages.Write(out, all, progress)
}

func agentFor(ctx context.Context, root, dir, arch string, progress io.Writer) ([]byte, error) {
	fmt.Fprintf(progress, "building the agent for %s\n", arch)
	file := filepath.Join(dir, "wherry-"+arch)
	if err := build.Agent(ctx, root, arch, file, true); err != nil {
		return nil, fmt.Errorf("build the agent for %s: %w", arch, err)
	}
	return os.ReadFile(file)
}

// sameAgain makes the packages once more and returns an error if they differ, because then they depend on something other than the commit.
func sameAgain(source *packages.Source, all map[string][]byte) error {
	again, err := source.All()
	if err != nil {
		return err
	}
	if len(again) != len(all) {
		return errors.New("two builds have different files")
	}
	for name, data := range all {
		if !bytes.Equal(again[name], data) {
			return fmt.Errorf("two builds of %s differ", name)
		}
	}
	return nil
}
