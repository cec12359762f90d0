package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/wherry-node/wherry/internal/pod"
)

func newExec() *cobra.Command {
	var r reach
	var container string
	var stdin, tty bool
	cmd := &cobra.Command{
		Use: "exec [-it] POD [-c CONTAINER] -- COMMAND [ARG...]", Short: "Run a command in a container; its exit code is ours",
		Args: cobra.MinimumNArgs(2),
		Example: "  wherry exec web -- ls /etc\n" +
			"  wherry exec -it web -c sidecar -- sh",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, p, err := r.pod(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			name, err := containerOf(p, container, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			o, done, err := streams(cmd, stdin, tty)
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
	fs := cmd.Flags()
	fs.SetInterspersed(true)
	r.flags(fs)
	fs.StringVarP(&container, "container", "c", "", "the container")
	fs.BoolVarP(&stdin, "stdin", "i", false, "give the command our input")
	fs.BoolVarP(&tty, "tty", "t", false, "our input is a terminal, and the command gets one")
	return cmd
}

func newAttach() *cobra.Command {
	var r reach
	var container string
	var stdin, tty bool
	cmd := &cobra.Command{
		Use: "attach [-it] POD [-c CONTAINER]", Short: "Take part in what a container that runs writes and reads",
		Args: cobra.ExactArgs(1),
		Example: "  wherry attach web\n" +
			"  wherry attach -it shell    # its container has stdin: true and tty: true",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, p, err := r.pod(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			name, err := containerOf(p, container, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			spec := pod.SpecOf(p, name)
			if stdin && !spec.Stdin {
				return fmt.Errorf("container %q reads no input: its spec has no stdin: true; use wherry exec -it", name)
			}
			if tty && !spec.TTY {
				fmt.Fprintf(cmd.ErrOrStderr(), "Unable to use a TTY - container %s did not allocate one\n", name)
				tty = false
			}
			o, done, err := streams(cmd, stdin, tty)
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
	fs := cmd.Flags()
	r.flags(fs)
	fs.StringVarP(&container, "container", "c", "", "the container")
	fs.BoolVarP(&stdin, "stdin", "i", false, "give the container our input")
	fs.BoolVarP(&tty, "tty", "t", false, "our input is a terminal, and the container has one")
	return cmd
}

// streams are ours, as a command in a container is to have them; done gives the terminal back.
func streams(cmd *cobra.Command, stdin, tty bool) (o remotecommand.StreamOptions, done func(), err error) {
	done = func() {}
	o = remotecommand.StreamOptions{Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr(), Tty: tty}
	if stdin {
		o.Stdin = cmd.InOrStdin()
	}
	fd := terminalOf(cmd.InOrStdin())
	switch {
	case tty && !stdin:
		return o, done, errors.New("--tty needs --stdin: -it")
	case tty && fd < 0:
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
