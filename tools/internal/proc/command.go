package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Output runs a command and returns its standard output. If the command fails, the error contains name and its standard error.
func Output(cmd *exec.Cmd, name string) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// Line returns a command line as it stands in errors: the program without its directory, and the arguments.
func Line(program string, args ...string) string {
	return strings.Join(append([]string{filepath.Base(program)}, args...), " ")
}

// Lock locks a file until unlock is called or this process ends. If another process has locked it, the error is busy.
func Lock(path, busy string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(errors.New(busy), file.Close())
	}
	return func() { _ = file.Close() }, nil
}
