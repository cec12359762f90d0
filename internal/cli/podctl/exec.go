package podctl

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Session connects the user's terminal to a container: Exec runs a command in it, Attach joins its main process.
type Session struct {
	Target
	Container string
	// Stdin: the process in the container gets the input of this command. TTY: the process gets a terminal too; the input of
	// this command must be a terminal.
	Stdin, TTY bool
}

// target connects to the agent and finds the pod and the name of its container.
func (x *Session) target(ctx context.Context, s Streams, arg string) (c *client, p *v1.Pod, name string, err error) {
	if c, p, err = x.pod(ctx, arg); err == nil {
		name, err = containerOf(p, x.Container, s.Err)
	}
	return c, p, name, err
}

// Exec runs a command and waits for its end. It returns the exit code as an ExitStatus.
func (x *Session) Exec(ctx context.Context, s Streams, pod string, command []string) error {
	c, p, name, err := x.target(ctx, s, pod)
	if err != nil {
		return err
	}
	o, done, err := x.streams(ctx, s)
	if err != nil {
		return err
	}
	defer done()
	err = c.stream(ctx, "/exec/"+p.Namespace+"/"+p.Name+"/"+name, url.Values{"command": command}, o)
	var code exec.CodeExitError
	if errors.As(err, &code) {
		return ExitStatus(code.Code)
	}
	return err
}

// Attach connects to the input and output of a running container.
func (x *Session) Attach(ctx context.Context, s Streams, arg string) error {
	c, p, name, err := x.target(ctx, s, arg)
	if err != nil {
		return err
	}
	spec := pod.SpecOf(p, name)
	if x.Stdin && !spec.Stdin {
		return fmt.Errorf("container %q reads no input: its spec has no stdin: true; use wherry exec -it", name)
	}
	if x.TTY && !spec.TTY {
		fmt.Fprintf(s.Err, "Unable to use a TTY - container %s did not allocate one\n", name)
		x.TTY = false
	}
	o, done, err := x.streams(ctx, s)
	if err != nil {
		return err
	}
	defer done()
	if spec.TTY { // a process with a terminal has only one output stream, and the request must ask for only one
		o.Tty, o.Stderr = true, nil
	}
	return c.stream(ctx, "/attach/"+p.Namespace+"/"+p.Name+"/"+name, url.Values{}, o)
}

// streams returns the input and outputs of this command, in the form that a stream to a container needs. done restores the
// terminal.
func (x *Session) streams(ctx context.Context, s Streams) (o remotecommand.StreamOptions, done func(), err error) {
	done = func() {}
	o = remotecommand.StreamOptions{Stdout: s.Out, Stderr: s.Err, Tty: x.TTY}
	if x.Stdin {
		o.Stdin = s.In
	}
	fd := terminalOf(s.In)
	switch {
	case x.TTY && !x.Stdin:
		return o, done, errors.New("--tty needs --stdin: -it")
	case x.TTY && fd < 0:
		fmt.Fprintln(s.Err, "Unable to use a TTY - input is not a terminal")
		o.Tty = false
	}
	if o.Tty {
		o.Stderr = nil
		var sizes *sizeQueue
		if done, sizes, err = rawTerminal(ctx, fd); err != nil {
			return o, func() {}, err
		}
		o.TerminalSizeQueue = sizes
	}
	return o, done, nil
}

func isTerminal(fd int) bool { return term.IsTerminal(fd) }

// rawTerminal makes the terminal pass on each key at once. sizes returns the size of the terminal and its changes. restore
// resets the terminal and ends sizes.
func rawTerminal(ctx context.Context, fd int) (restore func(), sizes *sizeQueue, err error) {
	state, err := term.MakeRaw(fd)
	if err != nil {
		return nil, nil, fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	q := &sizeQueue{ctx: ctx, fd: fd, changed: make(chan os.Signal, 1)}
	q.changed <- unix.SIGWINCH // makes Next return the present size first
	signal.Notify(q.changed, unix.SIGWINCH)
	return func() {
		signal.Stop(q.changed)
		cancel()
		_ = term.Restore(fd, state)
	}, q, nil
}

// sizeQueue returns the size of a terminal, and then each new size.
type sizeQueue struct {
	ctx     context.Context
	fd      int
	changed chan os.Signal
}

// Next waits for the next size; nil: there is none.
func (q *sizeQueue) Next() *remotecommand.TerminalSize {
	select {
	case <-q.ctx.Done():
		return nil
	case <-q.changed:
	}
	w, h, err := term.GetSize(q.fd)
	if err != nil {
		return nil
	}
	return &remotecommand.TerminalSize{Width: uint16(w), Height: uint16(h)}
}
