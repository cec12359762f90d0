package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/wherry-node/wherry/bench/internal/work"
)

// findCheckout returns the root of the project's checkout: the working directory, or the nearest parent directory that is the root of a
// checkout.
func findCheckout() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "bench", "cmd", "wherry-bench")); err == nil {
			return d, nil
		}
	}
	return "", fmt.Errorf("%s is not in a checkout of the project", dir)
}

// buildPrograms builds both agents, stripped and without cgo, unless prebuilt is true. It stores the size of each binary and the number of
// its packages in the samples that arm returns, and returns the command line of each agent by the name of its arm.
func buildPrograms(ctx context.Context, checkout string, prebuilt bool, arm func(string) work.Samples) (map[string][]string, error) {
	bin := filepath.Join(checkout, "bin")
	for _, need := range []string{"wherry-controlplane", "wherry-dev", "containerd", "images.tar"} {
		if _, err := os.Stat(filepath.Join(bin, need)); err != nil {
			return nil, fmt.Errorf("%w: run `make build` first", err)
		}
	}
	const v = "k8s.io/component-base/version."
	ldflags := "-s -w -X " + v + "gitVersion=v1.36.3 -X " + v + "gitMajor=1 -X " + v + "gitMinor=36 -X " + v + "gitTreeState=clean"
	for _, p := range []struct {
		arm, file, module, pkg string
		tags                   string   // the build tags with which the program is built
		build                  []string // directory of the module in which the go command runs, then the arguments of the go command
	}{
		{upstream, "bench-kubelet", "bench", "k8s.io/kubernetes/cmd/kubelet", "",
			[]string{"bench", "build", "-ldflags", ldflags, "-o", filepath.Join(bin, "bench-kubelet"), "k8s.io/kubernetes/cmd/kubelet"}},
		// Wherry is built by its own build command, as users build it.
		{wherry, "wherry", ".", "./cmd/wherry", "grpcnotrace", []string{"tools", "run", "./cmd/wherry-dev", "build", "wherry"}},
	} {
		if !prebuilt {
			progress("building %s", p.file)
			if _, err := goCommand(ctx, filepath.Join(checkout, p.build[0]), p.build[1:]...); err != nil {
				return nil, fmt.Errorf("build %s: %w", p.file, err)
			}
		}
		deps, err := goCommand(ctx, filepath.Join(checkout, p.module), "list", "-tags", p.tags, "-deps", p.pkg)
		if err != nil {
			return nil, fmt.Errorf("list packages of %s: %w", p.pkg, err)
		}
		st, err := os.Stat(filepath.Join(bin, p.file))
		if err != nil {
			return nil, err
		}
		arm(p.arm)["binary"] = []float64{float64(st.Size())}
		arm(p.arm)["packages"] = []float64{float64(strings.Count(string(deps), "\n"))}
	}
	return map[string][]string{
		upstream: {filepath.Join(bin, "bench-kubelet")},
		wherry:   {filepath.Join(bin, "wherry"), "kubelet"},
	}, nil
}

// goCommand runs the go command in dir and returns its standard output. If the command fails, the error contains its standard error.
func goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	return out, err
}
