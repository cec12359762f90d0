package vm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// Agent talks to the qemu-guest-agent in a guest. Its methods may be called concurrently; requests are sent one at a time. After a request
// without an answer, the next request opens a new connection, so that a reset of the guest does no harm.
type Agent struct {
	socket string
	runs   func() bool // reports whether the guest's emulator runs; nil: not known

	mu   sync.Mutex
	ch   *channel
	sync int64
}

// answerBound is how long the guest agent may take for one answer. It is short, because no request makes the guest agent wait.
const answerBound = 30 * time.Second

// NewAgent returns an Agent that uses the socket of QEMU's virtual serial port. It does not connect.
func NewAgent(socket string) *Agent { return &Agent{socket: socket} }

// call sends one request to the guest agent and decodes the answer into out. It connects first if there is no connection.
func (a *Agent) call(ctx context.Context, execute string, arguments, out any) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	ctx, cancel := Patient(ctx, answerBound, "ask the guest agent to "+execute)
	defer cancel()
	if err := a.connect(ctx); err != nil {
		return err
	}
	err := a.ch.call(ctx, execute, arguments, out)
	if said := (*refusal)(nil); err != nil && !errors.As(err, &said) {
		a.drop()
	}
	return err
}

// connect opens a connection if there is none, and synchronises it: answers to requests of an earlier connection may still arrive, so
// connect sends a new number and skips all data until the guest agent returns that number.
func (a *Agent) connect(ctx context.Context) error {
	if a.ch != nil {
		return nil
	}
	ch, err := dial(ctx, a.socket)
	if err != nil {
		return fmt.Errorf("connect to the guest agent: %w", err)
	}
	a.sync = max(a.sync+1, time.Now().UnixMilli())
	if err := ch.inStep(ctx, a.sync); err != nil {
		return errors.Join(fmt.Errorf("get in step with the guest agent: %w", err), ch.close())
	}
	a.ch = ch
	return nil
}

func (c *channel) inStep(ctx context.Context, id int64) error {
	defer c.until(ctx)()
	// The byte 0xff resets the guest agent's parser, in case an earlier connection has left an incomplete request.
	if _, err := fmt.Fprintf(c.conn, "\xff{\"execute\":\"guest-sync-delimited\",\"arguments\":{\"id\":%d}}\n", id); err != nil {
		return c.failure(ctx, "guest-sync-delimited", err)
	}
	for {
		line, err := readLine(c.in, mostAnswer)
		if err != nil {
			return c.failure(ctx, "guest-sync-delimited", err)
		}
		if at := bytes.LastIndexByte(line, 0xff); at >= 0 {
			line = line[at+1:]
		}
		var got answer
		var echo int64
		if json.Unmarshal(line, &got) == nil && json.Unmarshal(got.Return, &echo) == nil && echo == id {
			return nil
		}
	}
}

func (a *Agent) drop() {
	if a.ch != nil {
		_ = a.ch.close()
		a.ch = nil
	}
}

// Close closes the connection. The next request opens a new one.
func (a *Agent) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drop()
}

// Ping waits until the guest agent answers, and returns an error after the time bound.
func (a *Agent) Ping(ctx context.Context, bound time.Duration) error {
	ctx, cancel := Patient(ctx, bound, "ask the guest for a sign of life")
	defer cancel()
	return a.call(ctx, "guest-ping", nil, nil)
}

// Result is how a command ended.
type Result struct {
	Code           int // exit code; -1: a signal ended the command
	Stdout, Stderr string
}

type execStatus struct {
	Exited   bool   `json:"exited"`
	Code     *int   `json:"exitcode"`
	Signal   int    `json:"signal"`
	Out      []byte `json:"out-data"` // standard output; base64 in JSON
	Err      []byte `json:"err-data"`
	OutShort bool   `json:"out-truncated"`
	ErrShort bool   `json:"err-truncated"`
}

// Run runs a program in the guest as root and waits until it ends. It returns an error after the time bound, or if the output was
// truncated. An exit code other than 0 is no error.
func (a *Agent) Run(ctx context.Context, bound time.Duration, args ...string) (Result, error) {
	what := strings.Join(args, " ")
	ctx, cancel := Patient(ctx, bound, "run in the guest: "+what)
	defer cancel()
	var started struct {
		PID int64 `json:"pid"`
	}
	if err := a.call(ctx, "guest-exec", map[string]any{
		"path": args[0], "arg": args[1:], "capture-output": true, "env": []string{"PATH=" + searchPath, "HOME=/root", "LC_ALL=C.UTF-8"},
	}, &started); err != nil {
		return Result{}, fmt.Errorf("run %s: %w", what, err)
	}
	for wait := 50 * time.Millisecond; ; wait = min(wait*3/2, time.Second) {
		var s execStatus
		if err := a.call(ctx, "guest-exec-status", map[string]any{"pid": started.PID}, &s); err != nil {
			return Result{}, fmt.Errorf("run %s: %w", what, err)
		}
		if s.Exited {
			return s.result(what)
		}
		select {
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (s *execStatus) result(what string) (Result, error) {
	r := Result{Code: -1, Stdout: string(s.Out), Stderr: string(s.Err)}
	if s.Code != nil {
		r.Code = *s.Code
	}
	if s.OutShort || s.ErrShort {
		return r, fmt.Errorf("run %s: the guest agent kept only a part of the output", what)
	}
	return r, nil
}

// Shell runs a script in the guest with sh -e and returns its output. If the exit code is not 0, Shell returns an error that contains the
// output.
func (a *Agent) Shell(ctx context.Context, bound time.Duration, script string) (string, error) {
	r, err := a.Run(ctx, bound, "/bin/sh", "-ec", script)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("run in the guest: %s: exit code %d: %s", script, r.Code, strings.TrimSpace(r.Stderr+r.Stdout))
	}
	return r.Stdout, err
}

// chunk is how many bytes of a file one request transfers.
const chunk = 256 << 10

// CopyIn writes a file in the guest. It writes a temporary file and renames it, so that the file is never incomplete.
func (a *Agent) CopyIn(ctx context.Context, path string, mode os.FileMode, data []byte) (err error) {
	beside := path + ".copying"
	var handle int64
	if err := a.call(ctx, "guest-file-open", map[string]any{"path": beside, "mode": "w"}, &handle); err != nil {
		return fmt.Errorf("write %s in the guest: %w", path, err)
	}
	for at := 0; at < len(data) && err == nil; at += chunk {
		part := data[at:min(at+chunk, len(data))]
		var written struct {
			Count int `json:"count"`
		}
		err = a.call(ctx, "guest-file-write", map[string]any{"handle": handle, "buf-b64": part}, &written)
		if err == nil && written.Count != len(part) {
			err = fmt.Errorf("%d of %d bytes were written", written.Count, len(part))
		}
	}
	if err := errors.Join(err, a.call(ctx, "guest-file-close", map[string]any{"handle": handle}, nil)); err != nil {
		return fmt.Errorf("write %s in the guest: %w", path, err)
	}
	_, err = a.Shell(ctx, time.Minute, fmt.Sprintf("chmod %o '%s'; mv -f '%[2]s' '%s'", mode.Perm(), beside, path))
	return err
}

// CopyOut reads a file of the guest. It returns an error if the file is larger than most, in bytes.
func (a *Agent) CopyOut(ctx context.Context, path string, most int) ([]byte, error) {
	data, more, err := a.read(ctx, path, 0, most)
	if err == nil && more {
		err = fmt.Errorf("read %s of the guest: it is larger than %d bytes", path, most)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}

// read reads a file of the guest from an offset on, at most about most bytes. more reports whether the file has more than that.
func (a *Agent) read(ctx context.Context, path string, at int64, most int) (data []byte, more bool, err error) {
	var handle int64
	if err := a.call(ctx, "guest-file-open", map[string]any{"path": path, "mode": "r"}, &handle); err != nil {
		return nil, false, fmt.Errorf("read %s of the guest: %w", path, err)
	}
	defer func() {
		if closing := a.call(ctx, "guest-file-close", map[string]any{"handle": handle}, nil); err == nil && closing != nil {
			err = fmt.Errorf("read %s of the guest: %w", path, closing)
		}
	}()
	if at > 0 {
		if err := a.call(ctx, "guest-file-seek", map[string]any{"handle": handle, "offset": at, "whence": 0}, nil); err != nil {
			return nil, false, fmt.Errorf("read %s of the guest: %w", path, err)
		}
	}
	for {
		var part struct {
			Data []byte `json:"buf-b64"`
			EOF  bool   `json:"eof"`
		}
		if err := a.call(ctx, "guest-file-read", map[string]any{"handle": handle, "count": chunk}, &part); err != nil {
			return nil, false, fmt.Errorf("read %s of the guest: %w", path, err)
		}
		if data = append(data, part.Data...); len(data) > most {
			return data, true, nil
		}
		if part.EOF || len(part.Data) == 0 {
			return data, false, nil
		}
	}
}
