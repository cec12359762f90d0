package crilog

import (
	"bytes"
	"context"
	"fmt"
	"io"
)

// block is how much of a file is read at once when looking for its tail.
const block = 64 << 10

// tailOffset returns where the last o.Tail lines of the wanted streams begin in a file of this size. A line is the container's
// output up to a newline. If the runtime has split it into pieces (tag P), it counts once, at the piece that ends it. A last line
// without a newline counts too.
func tailOffset(ctx context.Context, r io.ReaderAt, size int64, o *Options) (int64, error) {
	if *o.Tail == 0 {
		return size, nil
	}
	t := tail{opts: o, left: *o.Tail, start: size}
	// The loop reads the file block by block from its end. A line may begin in one block and end in a later block: rest then holds
	// the first bytes of the part in the later blocks. rest is short even if the line is long, because only the line's head matters.
	var rest []byte
	buf := make([]byte, block)
	for pos := size; pos > 0; {
		// Without this check, the search in a sparse file of several TiB without a line would take hours.
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		k := min(int64(block), pos)
		pos -= k
		if _, err := r.ReadAt(buf[:k], pos); err != nil && err != io.EOF {
			return 0, fmt.Errorf("read log: %w", err)
		}
		data := buf[:k]
		for i := bytes.LastIndexByte(data, '\n'); i >= 0; i = bytes.LastIndexByte(data, '\n') {
			rest = front(data[i+1:], rest)
			if t.take(rest, pos+int64(i)+1) {
				return t.start, nil
			}
			rest, data = rest[:0], data[:i]
		}
		rest = front(data, rest)
	}
	t.take(rest, 0)
	return t.start, nil
}

// front returns the first maxHead bytes of data followed by rest: the head of a line (time, stream, tags) has at most this length. It may
// reuse the memory of rest.
func front(data, rest []byte) []byte {
	if len(rest) == 0 {
		return append(rest, data[:min(len(data), maxHead)]...)
	}
	joined := append(append(make([]byte, 0, maxHead), data[:min(len(data), maxHead)]...), rest...)
	return joined[:min(len(joined), maxHead)]
}

// tail counts lines from the end of a file towards its beginning.
type tail struct {
	opts  *Options
	left  int64 // number of complete lines still wanted
	start int64 // offset in the file where the earliest wanted piece begins
	begun bool  // take has seen a wanted piece; the first one, at the end of the file, counts as the end of a line even if its tag is P
}

// take examines one line of the file, which begins at the offset begin. It returns true if the tail is complete, because the line
// ends an output line that no longer belongs to the tail.
func (t *tail) take(line []byte, begin int64) bool {
	h, _, ok := parseHead(line)
	if !ok || !t.opts.wants(h.stream) {
		return false
	}
	if !h.partial || !t.begun {
		if t.left == 0 {
			return true
		}
		t.left--
	}
	t.begun = true
	t.start = begin
	return false
}
