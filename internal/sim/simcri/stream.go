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
	if tty {
		errOut = out
	}
	began := time.Now()
	if cut, err := s.write(ctx, c.prog, began, cursor{}, out, errOut, ended); err != nil {
		return err
	} else if cut {
		return exitError(killed.code)
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
		if cut, err := pauseUntil(ctx, max(0, c.prog.took-time.Since(began)), ended); err != nil {
			return err
		} else if cut { // the kernel kills the processes of a container that ends
			return exitError(killed.code)
		}
	}
	return exitError(c.prog.code)
}

// Attach connects to the first process of a container, and sends what it writes from then on. If the container has an input (stdin) and its
// process is not cat, the process is an interactive shell: exit ends it, and with it the container. A process without any output of its own
// echoes its input, until that ends.
func (s streamer) Attach(ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool, _ terminalSizes) error {
	s.r.mu.Lock()
	c, err := s.r.runningContainer(id)
	var shell bool
	var writes *program
	var began time.Time
	if err == nil {
		shell = c.stdin && (c.prog == nil || c.prog.unknown)
		writes, began = c.writes, time.Unix(0, c.started)
	}
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
	if writes != nil && len(writes.steps) > 0 {
		return s.follow(ctx, writes, began, in, sink(out), sink(errOut), tty, ended)
	}
	if in != nil && out != nil {
		copyUntil(ctx, out, in, ended)
		return nil
	}
	_, err = pauseUntil(ctx, -1, ended)
	return err
}

// follow sends what the first process of a container writes, from now on until it ends. Its input goes nowhere.
func (s streamer) follow(ctx context.Context, p *program, began time.Time, in io.Reader, out, errOut io.Writer, tty bool, ended <-chan struct{}) error {
	if in != nil {
		go func() { _, _ = io.Copy(io.Discard, in) }() // ends when the stream server closes the connection
	}
	if tty {
		errOut = out
	}
	cut, err := s.write(ctx, p, began, p.after(time.Since(began)), out, errOut, ended)
	if err == nil && !cut {
		_, err = pauseUntil(ctx, -1, ended)
	}
	return err
}

// write sends the output of a process that began at began, each step at its time, from next on. It returns when the process has nothing more to
// write, when the channel ended is closed because the container ends (cut is true then), or with an error, when ctx ends or the reader has gone.
func (s streamer) write(ctx context.Context, p *program, began time.Time, next cursor, out, errOut io.Writer, ended <-chan struct{}) (cut bool, err error) {
	for at, more := p.due(next); more; at, more = p.due(next) {
		if wait := at - time.Since(began); wait > 0 && !cut {
			if cut, err = pauseUntil(ctx, wait, ended); err != nil {
				return cut, err
			}
		}
		if ctx.Err() != nil {
			return cut, ctx.Err()
		}
		if cut && at > time.Since(began) { // what it has written before its end is sent, too
			return true, nil
		}
		st := &p.steps[next.step]
		to := out
		if st.stderr {
			to = errOut
		}
		if _, err := to.Write(atTime(st.out, s.r.cfg.Clock.Shows(time.Now()))); err != nil {
			return cut, err // the reader has closed the stream
		}
		next = p.following(next)
	}
	return cut, nil
}

// sink returns out, or what discards all if the client has asked for no such stream.
func sink(out io.Writer) io.Writer {
	if out == nil {
		return io.Discard
	}
	return out
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
