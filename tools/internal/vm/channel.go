package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
)

// mostAnswer is the largest size of an answer, in bytes. There is a limit because the guest may be hostile.
const mostAnswer = 32 << 20

// channel is a connection on which requests and answers are lines of JSON: to the guest agent, or to QEMU itself (QMP). The caller sends
// only one request at a time.
type channel struct {
	conn net.Conn
	in   *bufio.Reader
}

// dial connects to the Unix socket of a virtual serial port or of QMP.
func dial(ctx context.Context, path string) (*channel, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return &channel{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

// request is a request to the guest agent or to QMP, which use the same format.
type request struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
}

// answer is a message from the guest agent or from QMP. Event is set in messages of QMP that are not answers.
type answer struct {
	Return json.RawMessage `json:"return"`
	Error  *refusal        `json:"error"`
	Event  string          `json:"event"`
	QMP    json.RawMessage `json:"QMP"` // QMP's greeting
}

// refusal is the error of a request that the guest agent or QMP refused to execute. The channel can still be used.
type refusal struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

func (r *refusal) Error() string { return r.Desc }

// call sends a request and decodes the value of the answer into out, unless out is nil. After any error whose type is not refusal, the
// channel cannot be used any more.
func (c *channel) call(ctx context.Context, execute string, arguments, out any) error {
	defer c.until(ctx)()
	line, err := json.Marshal(request{execute, arguments})
	if err != nil {
		return err
	}
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		return c.failure(ctx, execute, err)
	}
	for {
		a, err := c.read()
		if err != nil {
			return c.failure(ctx, execute, err)
		}
		switch {
		case a.Event != "" || a.QMP != nil:
			continue
		case a.Error != nil:
			return fmt.Errorf("%s: %w", execute, a.Error)
		case out == nil:
			return nil
		}
		if err := json.Unmarshal(a.Return, out); err != nil {
			return fmt.Errorf("%s: read the answer: %w", execute, err)
		}
		return nil
	}
}

func (c *channel) failure(ctx context.Context, execute string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s: no answer: %w", execute, err)
}

// read reads one message from the channel.
func (c *channel) read() (answer, error) {
	var a answer
	line, err := readLine(c.in, mostAnswer)
	if err != nil {
		return a, err
	}
	// The guest agent begins its answer to guest-sync-delimited with the byte 0xff, which JSON never contains.
	if err := json.Unmarshal(bytes.TrimLeft(line, "\xff"), &a); err != nil {
		return a, fmt.Errorf("read an answer: %w", err)
	}
	return a, nil
}

// until makes reads and writes on the channel fail when ctx ends, until the returned function is called.
func (c *channel) until(ctx context.Context) func() {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

func (c *channel) close() error { return c.conn.Close() }

// readLine reads a line. It returns an error if the line is longer than most, in bytes.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if line = append(line, part...); len(line) > most {
			return nil, fmt.Errorf("a line is longer than %d bytes", most)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
