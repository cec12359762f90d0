package vm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"
)

// Job is a program that may run for hours in the guest. It runs as a systemd unit of its own, so it does not depend on the guest agent.
type Job struct {
	// Name is the name of the unit, without ".service". No two jobs with one name may run at the same time.
	Name string
	// Dir is the program's working directory. The files NAME.sh, NAME.log and NAME.code in it belong to the job.
	Dir string
	// Search is the program's PATH; "": that of the commands of Run.
	Search string
	// Args are the program and its arguments.
	Args []string
	// Every is the pause between two requests for the program's output; 0: 5 s.
	Every time.Duration
	// Most bounds how much of the output is copied, in bytes, because the guest may be hostile; 0: 1 GiB. atOnce is how much is copied between two
	// looks at the exit code; 0: 64 MiB.
	Most, atOnce int64
}

// These errors end RunJob.
var (
	// ErrGone means that the guest's emulator has ended: nobody will learn how the job ended.
	ErrGone = errors.New("the guest is gone")
	// ErrCut means that the job has ended, and that its output is longer than Job.Most: only the beginning was copied.
	ErrCut = errors.New("the end of the output is missing")
)

const (
	// jobToEnd is how long a program may take to end after an interrupt.
	jobToEnd = 3 * time.Minute
	// jobLooks is after how many looks at its exit code the guest is asked whether the job still runs.
	jobLooks = 12
	// jobSilence is how long the guest may give no answer while a job runs. A guest that runs out of memory may be silent for minutes.
	jobSilence = 15 * time.Minute
)

func (j *Job) file(extension string) string { return path.Join(j.Dir, j.Name+"."+extension) }

// script returns the shell script that runs the program, writes its output to NAME.log, and its exit code to NAME.code when it has ended.
// An interrupt reaches both the shell and the program; the shell goes on, because it has to write the code.
func (j *Job) script() string {
	search := j.Search
	if search == "" {
		search = searchPath
	}
	quoted := make([]string, len(j.Args))
	for i, arg := range j.Args {
		quoted[i] = quote(arg)
	}
	return fmt.Sprintf("trap : INT\ncd %s || exit\nexport HOME=/root LC_ALL=C.UTF-8 PATH=%s\n%s >%s 2>&1\necho $? >%[5]s.new\nmv %[5]s.new %[5]s\n",
		quote(j.Dir), quote(search), strings.Join(quoted, " "), quote(j.file("log")), quote(j.file("code")))
}

// quote returns a text as one word of a shell script.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// RunJob starts a job, copies its output to out while it runs, and returns its exit code. When ctx ends, the program gets an interrupt, and
// has jobToEnd to end; then it is killed. The error is ErrGone if the guest's emulator ends meanwhile, and ErrCut, with the exit code, if a part of
// the output is missing.
func (a *Agent) RunJob(ctx context.Context, j Job, out io.Writer) (code int, err error) {
	if err := a.CopyIn(ctx, j.file("sh"), 0o755, []byte(j.script())); err != nil {
		return -1, err
	}
	start := fmt.Sprintf("rm -f %s %s; systemd-run --quiet --collect --unit=%s -p TasksMax=infinity /bin/sh %s",
		quote(j.file("log")), quote(j.file("code")), j.Name, quote(j.file("sh")))
	// The start is not given up when ctx ends, because then nobody would know whether the job runs.
	if _, err := a.Shell(context.WithoutCancel(ctx), 2*time.Minute, start); err != nil {
		return -1, fmt.Errorf("start the job %s in the guest: %w", j.Name, err)
	}
	code, err = a.follow(ctx, &j, out)
	if err != nil {
		err = fmt.Errorf("follow the job %s in the guest: %w", j.Name, err)
	}
	return code, err
}

// follow copies the output of a job to out until the job has ended, and returns its exit code.
func (a *Agent) follow(ctx context.Context, j *Job, out io.Writer) (int, error) {
	every := j.Every
	if every == 0 {
		every = 5 * time.Second
	}
	talk := context.WithoutCancel(ctx) // the guest is asked even after ctx has ended
	interrupt := ctx.Done()
	var tooLate <-chan time.Time
	most, atOnce := cmp.Or(j.Most, 1<<30), cmp.Or(j.atOnce, 64<<20)
	answered, at, more := time.Now(), int64(0), false
	for looks := 1; ; looks++ {
		// Whether it runs is read first: a job that has ended by then has written its code, unless somebody has killed its shell.
		over := looks%jobLooks == 0 && a.jobOver(talk, j)
		// The code is read before the output, so that the output is complete if there is a code.
		code, ended, err := a.jobCode(talk, j)
		if err == nil && at < most {
			at, more, err = a.copyLog(talk, j, at, min(atOnce, most-at), out)
		}
		switch {
		case err == nil && ended && more && at < most:
			continue
		case err == nil && ended && more:
			return code, fmt.Errorf("%w: the job wrote more than %d bytes", ErrCut, most)
		case err == nil && ended:
			return code, nil
		case err == nil && over:
			return -1, errors.New("it ended without an exit code: something in the guest has killed it")
		case err == nil:
			answered = time.Now()
		case a.runs != nil && !a.runs():
			return -1, fmt.Errorf("%w: %w", ErrGone, err)
		case time.Since(answered) > jobSilence:
			return -1, fmt.Errorf("the guest has not answered for %s: %w", jobSilence, err)
		}
		select {
		case <-interrupt:
			interrupt, tooLate = nil, time.After(jobToEnd)
			_, _ = a.Shell(talk, time.Minute, "systemctl kill -s INT "+j.Name) // if it fails, the job is killed later
		case <-tooLate:
			_, err := a.Shell(talk, time.Minute, "systemctl kill -s KILL "+j.Name)
			return -1, errors.Join(fmt.Errorf("it did not end within %s after an interrupt", jobToEnd), err)
		case <-time.After(every):
		}
	}
}

// jobCode returns the exit code of a job, and whether the job has ended.
func (a *Agent) jobCode(ctx context.Context, j *Job) (code int, ended bool, err error) {
	data, err := a.CopyOut(ctx, j.file("code"), 20)
	if said := (*refusal)(nil); errors.As(err, &said) {
		return 0, false, nil // there is no such file yet
	}
	if err != nil {
		return 0, false, err
	}
	code, err = strconv.Atoi(strings.TrimSpace(string(data)))
	return code, err == nil, err
}

// jobOver reports whether the unit of a job runs no more. It returns false if the guest does not say.
func (a *Agent) jobOver(ctx context.Context, j *Job) bool {
	r, err := a.Run(ctx, time.Minute, "systemctl", "show", "--property=ActiveState", "--value", j.Name+".service")
	state := strings.TrimSpace(r.Stdout)
	return err == nil && r.Code == 0 && (state == "inactive" || state == "failed")
}

// copyLog copies at most about most bytes of the output of a job from the offset at on. It returns the offset of their end, and whether there is more.
func (a *Agent) copyLog(ctx context.Context, j *Job, at, most int64, out io.Writer) (end int64, more bool, err error) {
	data, more, err := a.read(ctx, j.file("log"), at, int(most))
	if said := (*refusal)(nil); errors.As(err, &said) {
		return at, false, nil // there is no such file yet
	}
	n, writing := out.Write(data)
	return at + int64(n), more, errors.Join(err, writing)
}
