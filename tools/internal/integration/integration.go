package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// mostAgain is the largest number of failed tests that run again.
const mostAgain = 3

// toEnd is how long the test program may take to clean up after SIGTERM.
const toEnd = 2 * time.Minute

// failedTests is the exit code of a Go test program whose tests failed. After a panic the exit code is 2.
const failedTests = 1

var failedLine = regexp.MustCompile(`(?m)^--- FAIL: (Test\S*) \(`)

// Run runs the test program in the directory dir, and runs up to mostAgain failed tests once more, alone. It returns an error unless each
// test passed in its last run. The program's output goes to out. When ctx ends, the program gets SIGTERM.
func Run(ctx context.Context, program, dir string, args []string, out io.Writer) error {
	failed, err := once(ctx, program, dir, args, out)
	if err == nil || len(failed) == 0 || len(failed) > mostAgain || ctx.Err() != nil {
		return err
	}
	names := strings.Join(failed, " ")
	fmt.Fprintf(out, "\n%d failed in the run of all tests; run again, alone: %s\n", len(failed), names)
	alone := append(args[:len(args):len(args)], "-test.run", "^("+strings.Join(failed, "|")+")$", "-test.parallel", "1", "-test.v")
	if _, err := once(ctx, program, dir, alone, out); err != nil {
		return fmt.Errorf("failed a second time, alone: %s: %w", names, err)
	}
	fmt.Fprintf(out, "\nfailed in the run of all tests (see above) and passed alone: %s\n", names)
	return nil
}

// once runs the test program once. failed has the names of the failed tests, but only if nothing else went wrong.
func once(ctx context.Context, program, dir string, args []string, out io.Writer) (failed []string, err error) {
	var printed bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	cmd.Stdout = io.MultiWriter(out, &printed)
	cmd.Stderr = cmd.Stdout
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, toEnd
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == failedTests {
		for _, m := range failedLine.FindAllStringSubmatch(printed.String(), -1) {
			failed = append(failed, m[1])
		}
	}
	if err != nil {
		err = fmt.Errorf("run %s: %w", program, err)
	}
	return failed, err
}
