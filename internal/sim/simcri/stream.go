package simcri

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// streamer implements the interface of the streaming library.
type streamer struct{ r *Runtime }

// terminalSizes carries the new sizes of a terminal window. A simulated terminal ignores them.
type terminalSizes = <-chan remotecommand.TerminalSize

// shell is an interactive shell: it runs each line of its input in the simple shell, until the input ends, the line is exit, or the container
// ends. It returns its exit code, and whether it ended by exit.
func (s streamer) shell(ctx context.Context, id string, in io.Reader, out io.Writer, tty bool) (code int32, left bool, err error) {
	ended, stop := s.r.ended(id)
	defer stop()
	done := make(chan struct{})
	var read struct {
		code int32
		left bool
		err  error
	}
	go func() { // ends when the stream server closes the connection
		defer close(done)
		read.code, read.left, read.err = s.readLines(id, in, out, tty)
	}()
	select {
	case <-done:
		return read.code, read.left, read.err
	case <-ctx.Done():
		return 0, false, ctx.Err()
	case <-ended:
		return killed.code, false, nil
	}
}

// readLines does the work of shell.
func (s streamer) readLines(id string, in io.Reader, out io.Writer, tty bool) (code int32, left bool, err error) {
	prompt := func() {
		if tty {
			_, _ = io.WriteString(out, "sim# ")
		}
	}
	prompt()
	lines := bufio.NewScanner(in)
	lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
			return i + 1, data[:i], nil
		}
		if atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if tty {
			_, _ = io.WriteString(out, line+"\r\n")
		}
		if line == "" {
			prompt()
			continue
		}
		c, err := s.r.command(id, []string{"sh", "-c", line})
		if err != nil {
			return 0, false, err
		}
		if word, _, _ := strings.Cut(line, " "); word == "exit" {
			if c.prog != nil {
				c.code = c.prog.code
			}
			return c.code, true, nil
		}
		text := slices.Concat(c.stdout, c.stderr)
		if c.prog != nil {
			for _, st := range c.prog.steps {
				text = append(text, atTime(st.out, s.r.cfg.Clock.Shows(time.Now()))...)
			}
			if c.prog.unknown {
				text = append(text, "(simulated container: this command does nothing)\n"...)
			}
		}
		if tty {
			text = bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n"))
		}
		_, _ = out.Write(text)
		prompt()
	}
	return 0, false, lines.Err()
}

// PortForward connects a stream to the HTTP server of the pod.
func (s streamer) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	s.r.mu.Lock()
	sb := find(s.r.sandboxes, id)
	s.r.mu.Unlock()
	if sb == nil {
		return errNotFound("sandbox", id)
	}
	if err := s.r.answer(sb, port, stream); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return nil
}

// Exec runs a command and sends its output at the scripted times.
func (s streamer) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, _ terminalSizes) error {
	if errOut == nil {
		errOut = nopCloser{io.Discard}
	}
	if out == nil {
		out = nopCloser{io.Discard}
	}
	c, err := s.r.command(id, cmd)
	if err != nil {
		return err
	}
	if do := s.r.copies(id, cmd); do != nil && !c.answered {
		return exitError(do(ctx, in, out, errOut))
	}
	if c.answered {
		_, _ = out.Write(c.stdout)
		_, _ = errOut.Write(c.stderr)
		return exitError(c.code)
	}
	if in != nil && len(cmd) == 1 && c.prog.unknown { // a shell or another unknown command, without arguments
		code, _, err := s.shell(ctx, id, in, out, tty)
		if err != nil {
			return err
		}
		return exitError(code)
	}
	ended, stop := s.r.ended(id)
	defer stop()
	began := time.Now()
	until := func(at time.Duration) error {
		if wait := at - time.Since(began); wait > 0 {
			cut, err := pauseUntil(ctx, wait, ended)
			if cut { // the kernel kills the processes of a container that ends
				return exitError(killed.code)
			}
			return err
		}
		return ctx.Err()
	}
	for i, lap := 0, 0; i < len(c.prog.steps); {
		st := c.prog.steps[i]
		if err := until(st.at + time.Duration(lap)*c.prog.period); err != nil {
			return err
		}
		to := io.Writer(out)
		if st.stderr && !tty {
			to = errOut
		}
		if _, err := to.Write(atTime(st.out, s.r.cfg.Clock.Shows(time.Now()))); err != nil {
			return err // the reader has closed the stream
		}
		if i++; i == len(c.prog.steps) && c.prog.period > 0 && c.prog.loopFrom < i {
			i, lap = c.prog.loopFrom, lap+1
		}
	}
	switch {
	case c.prog.readsStdin && in != nil:
		if copyUntil(ctx, out, in, ended) {
			return exitError(killed.code)
		}
	case c.prog.forever:
		if cut, err := pauseUntil(ctx, -1, ended); !cut {
			return err
		}
		return exitError(killed.code)
	default:
		if err := until(c.prog.took); err != nil {
			return err
		}
	}
	return exitError(c.prog.code)
}

// Attach connects to the first process of a container. If the container has an input (stdin) and its process is not cat, the process is an
// interactive shell: exit ends it, and with it the container. Otherwise the process echoes its input, because it has no interactive output of
// its own.
func (s streamer) Attach(ctx context.Context, id string, in io.Reader, out, _ io.WriteCloser, tty bool, _ terminalSizes) error {
	s.r.mu.Lock()
	c, err := s.r.runningContainer(id)
	shell := err == nil && c.stdin && (c.prog == nil || c.prog.unknown)
	s.r.mu.Unlock()
	if err != nil {
		return err
	}
	if shell && in != nil && out != nil {
		code, left, err := s.shell(ctx, id, in, out, tty)
		if left {
			s.r.Exit(id, code, "", "")
		}
		return err
	}
	ended, stop := s.r.ended(id)
	defer stop()
	if in != nil && out != nil {
		copyUntil(ctx, out, in, ended)
		return nil
	}
	select {
	case <-ended:
	case <-ctx.Done():
	}
	return nil
}

// copyUntil copies until the input ends, ctx ends or the channel ended is closed. It returns true only if the channel was closed. The
// goroutine that copies ends when the stream server closes the connection.
func copyUntil(ctx context.Context, out io.Writer, in io.Reader, ended <-chan struct{}) (cut bool) {
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(out, in)
	}()
	select {
	case <-copied:
		return false
	case <-ctx.Done():
		return false
	case <-ended:
		return true
	}
}

func exitError(code int32) error {
	if code == 0 {
		return nil
	}
	return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: int(code)}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
