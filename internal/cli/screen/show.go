package screen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

const (
	// takeOver shows the alternate screen, without a cursor and without wrapping of long lines.
	takeOver = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
	// giveBack undoes takeOver.
	giveBack = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
)

// usual is the size of a terminal that does not tell its own.
var usual = Size{80, 24}

// failure is why a screen cannot be shown any longer. It is the cause of the end of the work's context.
type failure struct{ error }

// errGone means that nobody can press a key any more.
var errGone = errors.New("the terminal is gone")

// Event is a key, or a change of the terminal's size.
type Event struct {
	Key Key // "": the screen has to be drawn again
}

// Screen is a terminal that Show has taken over. Its methods may be called concurrently.
type Screen struct {
	// Events has the keys and the changes of the size. Keys that nobody receives are lost.
	Events <-chan Event

	mode   Mode
	in     *os.File // nil: it is no terminal, so there are no keys
	out    *os.File
	events chan Event

	suspending sync.Mutex // held while the process is suspended: a key and a signal may ask for it at once

	mu    sync.Mutex
	saved *term.State // the terminal's own mode; nil: in is no terminal, or the screen is given back
	shown string      // what was drawn last
}

// Terminal returns the file behind w if it is a terminal, and otherwise nil.
func Terminal(w any) *os.File {
	if f, ok := w.(*os.File); ok && f != nil && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// Show takes the terminal out over, calls work, and gives the terminal back. Keys come from in if that is a terminal. The context of work ends
// with ctx, and after a signal that would end the program; the second such signal has its default effect. Show returns the error of work, or what
// went wrong with the terminal.
func Show(ctx context.Context, mode Mode, in io.Reader, out *os.File, work func(context.Context, *Screen) error) (err error) {
	events := make(chan Event, 16)
	s := &Screen{Events: events, events: events, mode: mode, in: Terminal(in), out: out}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	// Signals are caught before the terminal changes, because it must be given back. Those that end the program have a channel and a goroutine of their
	// own: what the others ask for may wait for a terminal that takes no more text.
	got, last := make(chan os.Signal, 8), make(chan os.Signal, 1)
	signal.Notify(got, unix.SIGWINCH, unix.SIGTSTP)
	defer signal.Stop(got)
	signal.Notify(last, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(last)
	if err := s.take(); err != nil {
		return err
	}
	defer func() {
		back := s.back()
		var failed failure
		switch {
		case err != nil:
		case errors.As(context.Cause(ctx), &failed):
			err = failed.error
		default:
			err = back
		}
	}()
	var group sync.WaitGroup
	defer group.Wait()
	defer end(nil) // before the wait
	group.Go(func() { s.act(ctx, got, end) })
	group.Go(func() {
		select {
		case <-ctx.Done(): // perhaps by the same signal, for which the caller looks too
		case <-last:
		}
		signal.Stop(last) // the next one ends the program, even if the terminal takes no more text
		end(nil)
	})
	if s.in != nil {
		wake, closeWake, err := wakePipe(ctx)
		if err != nil {
			return err
		}
		defer closeWake()
		defer group.Wait()
		defer end(nil)
		group.Go(func() { s.keys(ctx, wake, end) })
	}
	return work(ctx, s)
}

// take makes the terminal show the alternate screen and pass on each key at once.
func (s *Screen) take() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.in != nil {
		saved, err := term.MakeRaw(int(s.in.Fd()))
		if err != nil {
			return fmt.Errorf("set the terminal to raw mode: %w", err)
		}
		s.saved = saved
	}
	s.shown = ""
	if _, err := io.WriteString(s.out, takeOver); err != nil {
		s.restore()
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// back undoes take.
func (s *Screen) back() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := io.WriteString(s.out, giveBack)
	s.restore()
	return err
}

// restore gives the terminal its own mode. The caller holds the lock.
func (s *Screen) restore() {
	if s.saved != nil {
		_ = term.Restore(int(s.in.Fd()), s.saved) // an error means that the terminal is gone
		s.saved = nil
	}
}

// Size returns the size of the terminal.
func (s *Screen) Size() Size {
	w, h, err := term.GetSize(int(s.out.Fd()))
	if err != nil || w < 1 || h < 1 {
		return usual
	}
	return Size{w, h}
}

// Draw shows the lines, as far as they fit.
func (s *Screen) Draw(lines []Line, size Size) error {
	text := s.mode.Encode(lines, size)
	s.mu.Lock()
	defer s.mu.Unlock()
	if text == s.shown {
		return nil
	}
	s.shown = text
	if _, err := io.WriteString(s.out, text); err != nil {
		return fmt.Errorf("write to the terminal: %w", err)
	}
	return nil
}

// again makes the next Draw write to the terminal, and asks for it.
func (s *Screen) again() {
	s.mu.Lock()
	s.shown = ""
	s.mu.Unlock()
	s.send(Event{})
}

func (s *Screen) send(e Event) {
	select {
	case s.events <- e:
	default: // nobody receives: the work is about to end, or keys come faster than it draws
	}
}

// suspend gives the terminal back and stops the process. When somebody continues the process, it takes the terminal over again.
func (s *Screen) suspend(ctx context.Context, end context.CancelCauseFunc) {
	if !s.suspending.TryLock() {
		return
	}
	defer s.suspending.Unlock()
	if err := s.back(); err != nil {
		end(failure{err})
		return
	}
	goesOn := make(chan os.Signal, 1)
	signal.Notify(goesOn, unix.SIGCONT)
	defer signal.Stop(goesOn)
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP) // cannot fail: it is this process
	select {
	case <-goesOn: // Kill may return before this thread stops
	case <-ctx.Done(): // process 1 of a container does not stop
		return
	}
	if err := s.take(); err != nil {
		end(failure{err})
		return
	}
	s.again()
}

// isOrphan reports whether no shell of the terminal could continue this process: it leads the session, or is in the group of the process that
// does, as after `ssh -t HOST wherry` and in a container.
func isOrphan() bool {
	session, err := unix.Getsid(0)
	return err == nil && session == unix.Getpgrp()
}

// act acts on the signals that got receives, until ctx ends.
func (s *Screen) act(ctx context.Context, got chan os.Signal, end context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case sig := <-got:
			switch sig {
			case unix.SIGWINCH:
				s.again()
			case unix.SIGTSTP:
				s.suspend(ctx, end)
			}
		}
	}
}

// wakePipe returns a descriptor that can be read when ctx has ended.
func wakePipe(ctx context.Context) (wake int, closeAll func(), err error) {
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return 0, nil, fmt.Errorf("make a pipe: %w", err)
	}
	told := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(told)
		_, _ = unix.Write(ends[1], []byte{0}) // an empty pipe takes a byte
	})
	return ends[0], func() {
		if !stop() {
			<-told
		}
		_ = unix.Close(ends[0])
		_ = unix.Close(ends[1])
	}, nil
}

// keys passes on the keys that the user presses, until wake can be read or the terminal is gone.
func (s *Screen) keys(ctx context.Context, wake int, end context.CancelCauseFunc) {
	fd := int(s.in.Fd())
	var rest string
	buffer := make([]byte, 256)
	for {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}} //nolint:gosec // descriptors are small
		if _, err := unix.Poll(fds, -1); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			end(failure{fmt.Errorf("wait for a key: %w", err)})
			return
		}
		if fds[1].Revents != 0 {
			return
		}
		n, err := unix.Read(fd, buffer)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case err != nil || n == 0:
			end(failure{errGone})
			return
		}
		var keys []Key
		keys, rest = decode(rest + string(buffer[:n]))
		for _, key := range keys {
			switch key {
			case KeySuspend:
				if !isOrphan() { // the kernel, too, ignores Ctrl-Z then
					s.suspend(ctx, end)
				}
			case KeyRedraw:
				s.again()
			default:
				s.send(Event{key})
			}
		}
	}
}
