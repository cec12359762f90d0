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

// mostAnswer is the largest size of one answer of the guest, in bytes. It is limited because the guest may be hostile.
const mostAnswer = 32 << 20

// channel is a connection on which requests and answers are JSON, one per line: to the guest agent, or to QEMU itself (QMP). The
// caller makes sure that there is only one request at a time.
type channel struct {
	conn net.Conn
	in   *bufio.Reader
}

// dial connects to the socket of a virtual port or of QMP.
func dial(ctx context.Context, path string) (*channel, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	return &channel{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

// request is a request in both protocols.
type request struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
}

// answer is a message of the other side in both protocols. Event is only in QMP, for messages that are not answers.
type answer struct {
	Return json.RawMessage `json:"return"`
	Error  *refusal        `json:"error"`
	Event  string          `json:"event"`
	QMP    json.RawMessage `json:"QMP"` // the greeting of QMP
}

// refusal is the error if the other side answers that it cannot execute a request. The channel can still be used afterwards.
type refusal struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

func (r *refusal) Error() string { return r.Desc }

// call sends a request, and decodes the answer's value into out if that is not nil. After an error that is not a refusal the
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

// read reads one message.
func (c *channel) read() (answer, error) {
	var a answer
	line, err := readLine(c.in, mostAnswer)
	if err != nil {
		return a, err
	}
	// The guest agent begins an answer to guest-sync-delimited with this byte, which is in no JSON.
	if err := json.Unmarshal(bytes.TrimLeft(line, "\xff"), &a); err != nil {
		return a, fmt.Errorf("read an answer: %w", err)
	}
	return a, nil
}

// until makes IO on the channel fail when ctx ends. After a call of the returned function, the end of ctx has no effect.
func (c *channel) until(ctx context.Context) func() {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

func (c *channel) close() error { return c.conn.Close() }

// readLine reads a line, which may have no more than most bytes.
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
