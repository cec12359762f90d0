package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/wherry-node/wherry/internal/pod"
)

// session is what exec and attach are told: which container, and what of ours it gets.
type session struct {
	reach
	container  string
	stdin, tty bool
}

// flags takes what the help says of -i and -t: a command gets them, a container was made for them.
func (x *session) flags(fs *pflag.FlagSet, stdin, tty string) {
	x.reach.flags(fs)
	fs.StringVarP(&x.container, "container", "c", "", "the container")
	fs.BoolVarP(&x.stdin, "stdin", "i", false, stdin)
	fs.BoolVarP(&x.tty, "tty", "t", false, tty)
}

// target opens the agent and finds the pod and the name of its container.
func (x *session) target(cmd *cobra.Command, arg string) (c *client, p *v1.Pod, name string, err error) {
	if c, p, err = x.pod(cmd.Context(), arg); err == nil {
		name, err = containerOf(p, x.container, cmd.ErrOrStderr())
	}
	return c, p, name, err
}

func newExec() *cobra.Command {
	var x session
	cmd := &cobra.Command{
		Use: "exec [-it] POD [-c CONTAINER] -- COMMAND [ARG...]", Short: "Run a command in a container; its exit code is ours",
		Args: cobra.MinimumNArgs(2),
		Example: "  wherry exec web -- ls /etc\n" +
			"  wherry exec -it web -c sidecar -- sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, p, name, err := x.target(cmd, args[0])
			if err != nil {
				return err
			}
			o, done, err := x.streams(cmd)
			if err != nil {
				return err
			}
			defer done()
			err = c.stream(cmd.Context(), "/exec/"+p.Namespace+"/"+p.Name+"/"+name, url.Values{"command": args[1:]}, o)
			var code exec.CodeExitError
			if errors.As(err, &code) {
				return exitStatus(code.Code)
			}
			return err
		},
	}
	cmd.Flags().SetInterspersed(true)
	x.flags(cmd.Flags(), "give the command our input", "our input is a terminal, and the command gets one")
	return cmd
}

func newAttach() *cobra.Command {
	var x session
	cmd := &cobra.Command{
		Use: "attach [-it] POD [-c CONTAINER]", Short: "Take part in what a container that runs writes and reads",
		Args: cobra.ExactArgs(1),
		Example: "  wherry attach web\n" +
			"  wherry attach -it shell    # its container has stdin: true and tty: true",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, p, name, err := x.target(cmd, args[0])
			if err != nil {
				return err
			}
			spec := pod.SpecOf(p, name)
			if x.stdin && !spec.Stdin {
				return fmt.Errorf("container %q reads no input: its spec has no stdin: true; use wherry exec -it", name)
			}
			if x.tty && !spec.TTY {
				fmt.Fprintf(cmd.ErrOrStderr(), "Unable to use a TTY - container %s did not allocate one\n", name)
				x.tty = false
			}
			o, done, err := x.streams(cmd)
			if err != nil {
				return err
			}
			defer done()
			if spec.TTY { // the runtime wants to hear it, and has one output
				o.Tty, o.Stderr = true, nil
			}
			return c.stream(cmd.Context(), "/attach/"+p.Namespace+"/"+p.Name+"/"+name, url.Values{}, o)
		},
	}
	x.flags(cmd.Flags(), "give the container our input", "our input is a terminal, and the container has one")
	return cmd
}

// streams are ours, as a command in a container is to have them; done gives the terminal back.
func (x *session) streams(cmd *cobra.Command) (o remotecommand.StreamOptions, done func(), err error) {
	done = func() {}
	o = remotecommand.StreamOptions{Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), Tty: x.tty}
	if x.stdin {
		o.Stdin = cmd.InOrStdin()
	}
	fd := terminalOf(cmd.InOrStdin())
	switch {
	case x.tty && !x.stdin:
		return o, done, errors.New("--tty needs --stdin: -it")
	case x.tty && fd < 0:
		fmt.Fprintln(cmd.ErrOrStderr(), "Unable to use a TTY - input is not a terminal")
		o.Tty = false
	}
	if o.Tty {
		o.Stderr = nil
		var sizes *sizeQueue
		if done, sizes, err = rawTerminal(cmd.Context(), fd); err != nil {
			return o, func() {}, err
		}
		o.TerminalSizeQueue = sizes
	}
	return o, done, nil
}

func isTerminal(fd int) bool { return term.IsTerminal(fd) }

// rawTerminal hands keys on as they are pressed, and tells of changes of the terminal's size. restore undoes both.
func rawTerminal(ctx context.Context, fd int) (restore func(), sizes *sizeQueue, err error) {
	state, err := term.MakeRaw(fd)
	if err != nil {
		return nil, nil, fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	q := &sizeQueue{ctx: ctx, fd: fd, changed: make(chan os.Signal, 1)}
	q.changed <- unix.SIGWINCH // the first size
	signal.Notify(q.changed, unix.SIGWINCH)
	return func() {
		signal.Stop(q.changed)
		cancel()
		_ = term.Restore(fd, state)
	}, q, nil
}

// sizeQueue is the size of a terminal, and then each new one.
type sizeQueue struct {
	ctx     context.Context
	fd      int
	changed chan os.Signal
}

// Next waits for the next size; nil: there will be none.
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
