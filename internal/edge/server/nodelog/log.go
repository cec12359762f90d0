package nodelog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"time"
)

const (
	// Within is how long one answer may take.
	Within = 30 * time.Second
	// atOnce is how many queries are answered at the same time.
	atOnce = 4
)

// ErrBusy means that too many queries are being answered already.
var ErrBusy = errors.New("too many log queries at a time: try again later")

// Log reads the logs of the node's services. Its methods may be called concurrently.
type Log struct {
	journalctl string // "": this machine has no journal
	files      fs.FS
	slots      chan struct{}
}

// New returns a Log. files is the log directory, which must be safe to read (hostfs.UntrustedFS). journalctl is the path of the
// command that reads the journal; it is empty if there is no journal.
func New(journalctl string, files fs.FS) *Log {
	return &Log{journalctl: journalctl, files: files, slots: make(chan struct{}, atOnce)}
}

// Enter takes a slot for one query, or returns ErrBusy if all slots are taken. leave gives the slot back.
func (l *Log) Enter() (leave func(), err error) {
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	default:
		return nil, ErrBusy
	}
}

// Copy writes the logs of the query's services to w, for at most Within. Errors are written too, because the answer has already
// begun.
func (l *Log) Copy(ctx context.Context, q *Query, w io.Writer) {
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	var native, others []string
	units := l.units(ctx, q.Services)
	for _, s := range q.Services {
		if units[s] {
			native = append(native, s)
		} else {
			others = append(others, s)
		}
	}
	if len(native) > 0 {
		l.copyJournal(ctx, q, native, w)
	}
	switch {
	case len(others) == 0:
	case q.hasOptions():
		fmt.Fprintf(w, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", others)
	default:
		for _, s := range others {
			l.copyFile(ctx, s, w)
		}
	}
	if ctx.Err() != nil {
		fmt.Fprintf(w, "\nthe answer is cut short after %s\n", Within)
	}
}

// units returns the services of which the journal has messages.
func (l *Log) units(ctx context.Context, services []string) map[string]bool {
	found := map[string]bool{}
	if l.journalctl == "" {
		return found
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills the command if its output is not read completely
	cmd := exec.CommandContext(ctx, l.journalctl, "--field", "_SYSTEMD_UNIT")
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return found
	}
	for lines := bufio.NewScanner(io.LimitReader(out, maxUnits)); lines.Scan(); {
		for _, s := range services {
			if unit := lines.Text(); unit == s || unit == s+".service" {
				found[s] = true
			}
		}
		if len(found) == len(services) {
			break
		}
	}
	cancel()
	_ = cmd.Wait() // ignore the error: the journal may be missing, and then the list is empty
	return found
}

// maxUnits is how many bytes of the list of units are read. A unit beyond this limit counts as a service without messages in the
// journal, so its log is searched for in the files.
const maxUnits = 8 << 20

// copyJournal writes the messages of services. Errors of journalctl are part of its output.
func (l *Log) copyJournal(ctx context.Context, q *Query, services []string, w io.Writer) {
	cmd := exec.CommandContext(ctx, l.journalctl, q.arguments(services)...)
	cmd.Stdout, cmd.Stderr = w, w
	cmd.WaitDelay = time.Second // if a client does not read, Wait returns one second after the end of ctx
	var exited *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exited) && ctx.Err() == nil {
		fmt.Fprint(w, "\nerror: journal output not available\n")
	}
}

// copyFile writes the log file of a service: the first of SERVICE, SERVICE.log and SERVICE/SERVICE.log that exists.
func (l *Log) copyFile(ctx context.Context, service string, w io.Writer) {
	for _, name := range []string{service, service + ".log", service + "/" + service + ".log"} {
		err := l.copyNamed(ctx, name, w)
		switch {
		case err == nil:
			return
		case !errors.Is(err, fs.ErrNotExist):
			fmt.Fprintf(w, "\nerror getting log for %s: %v\n", service, err)
			return
		}
	}
	fmt.Fprintf(w, "\nlog not found for %s\n", service)
}

func (l *Log) copyNamed(ctx context.Context, name string, w io.Writer) error {
	f, err := l.files.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if info, err := f.Stat(); err != nil || info.IsDir() {
		return errors.Join(err, fs.ErrNotExist) // name is a directory, which may contain the log file
	}
	_, err = io.Copy(w, cut{ctx, f})
	if ctx.Err() != nil {
		return nil // Copy reports the end of ctx
	}
	return err
}

// cut is a reader whose Read returns an error once its context has ended.
type cut struct {
	ctx  context.Context
	from io.Reader
}

func (c cut) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.from.Read(p)
}
