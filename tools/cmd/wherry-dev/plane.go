package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// withPlaneCommand returns a command that starts a control plane, runs another command, and ends the control plane.
func withPlaneCommand() *cobra.Command {
	return &cobra.Command{
		Use: "with-plane -- COMMAND [ARG...]", Args: cobra.MinimumNArgs(1),
		Short: "Run a command with its own control plane, which ends after the command; $KUBECONFIG and {kubeconfig} in arguments name its kubeconfig",
		RunE: func(cmd *cobra.Command, args []string) error {
			root, err := checkout()
			if err != nil {
				return err
			}
			return withPlane(cmd.Context(), filepath.Join(root, "bin", "wherry-controlplane"), args)
		},
	}
}

func withPlane(ctx context.Context, program string, args []string) (err error) {
	dir, err := os.MkdirTemp("", "wherry-plane-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	kubeconfig, ready := filepath.Join(dir, "admin.kubeconfig"), filepath.Join(dir, "ready")
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	plane := exec.Command(program, "--data-dir", dir, "--secure-port", "0", "--proxy=false", "--ready-file", ready)
	plane.Stdout, plane.Stderr = log, log
	// The control plane is in a process group of its own, so that an interrupt from the terminal reaches only the command; the control plane
	// ends after the command.
	plane.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := plane.Start(); err != nil {
		return fmt.Errorf("start control plane: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- plane.Wait() }()
	stop := func() error {
		_ = plane.Process.Signal(syscall.SIGTERM)
		return <-ended
	}
	if err := awaitFile(ctx, ready, ended); err != nil {
		if ctx.Err() != nil {
			_ = stop()
		} else {
			_ = plane.Process.Kill()
		}
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("start control plane: %w\n%s", err, text)
	}
	defer func() { err = errors.Join(err, stop()) }()
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "{kubeconfig}", kubeconfig)
	}
	command := exec.CommandContext(ctx, args[0], args[1:]...)
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	if err := command.Run(); err != nil {
		return fmt.Errorf("run %s: %w", args[0], err)
	}
	return nil
}

// awaitFile waits until a file exists. It returns an error if the process that writes the file ends before that.
func awaitFile(ctx context.Context, path string, ended chan error) error {
	deadline := time.After(4 * time.Minute)
	for {
		if _, err := os.Stat(path); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			ended <- err
			return fmt.Errorf("the control plane ended: %w", errors.Join(err, errors.New("see its output below")))
		case <-deadline:
			return errors.New("not ready in 4 minutes")
		case <-time.After(100 * time.Millisecond):
		}
	}
}
