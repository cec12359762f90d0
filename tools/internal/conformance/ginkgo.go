package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"
)

// ginkgo runs the tests and returns their results, and an error if a test failed. When ctx ends, ginkgo gets an interrupt and still writes
// its report. If it wrote none, the results may be those in its log (see results).
func (o Options) ginkgo(ctx context.Context, env cluster, focus, report string) (Results, error) {
	if err := errors.Join(os.RemoveAll(report), os.MkdirAll(report, 0o755)); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(o.dir("logs", "ginkgo.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	skip, err := o.skips()
	if err != nil {
		return nil, err
	}
	args := []string{"--procs=" + strconv.Itoa(o.Procs), "--no-color", "--timeout=4h", "--poll-progress-after=10m", "--focus=" + focus, "--skip=" + skip}
	if o.Repeat > 1 { // ginkgo runs the tests each time in a new random order
		args = append(args, "--repeat="+strconv.Itoa(o.Repeat-1))
	} else { // Both node agents run the tests in the same order, because the total time depends on which long test comes last.
		args = append(args, "--seed=1")
	}
	run, written := o.runHere, report
	if guest, ok := env.(*guestCluster); ok {
		run, written = guest.run, guestReport
		args = append(args, "-v") // the log then has the result of each test, which is all that is left if the guest ends before its report
	}
	began, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	own, err := o.arguments(ctx, env, written)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Progress, "testing with %d processes; %s\n", o.Procs, log.Name())
	err = run(ctx, env, append(append(args, o.testProgram(), "--"), own...), report, log)
	if err != nil {
		err = fmt.Errorf("run the tests: %w; see %s", err, log.Name())
	}
	return o.results(report, log.Name(), began, err)
}

// runHere runs ginkgo on this machine, where it writes its report into the directory that its arguments name.
func (o Options) runHere(ctx context.Context, env cluster, args []string, _ string, log *os.File) error {
	cmd, err := env.Command(ctx, o.bin("conformance/ginkgo"), args...)
	if err != nil {
		return err
	}
	// The interrupt goes to the whole process group, as from a terminal: each process ends its own tests, and ginkgo writes the report.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 45 * time.Second
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, o.dir("logs")
	cmd.Env = append(os.Environ(), "PATH="+o.standInDir()+":"+os.Getenv("PATH"))
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ends processes that ignored the interrupt
	}
	return err
}
