package podctl

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"
)

// lineWriter lets several goroutines write lines to one writer without mixing them.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func newLineWriter(w io.Writer) *lineWriter { return &lineWriter{w: w} }

// longestLine bounds the bytes of a line that copy keeps in memory: a container may write without ever ending its line.
const longestLine = 64 << 10

// copy writes each line of r, with a prefix before it. With a prefix, the last line gets a newline if it has none, and a
// line longer than longestLine is written as several lines. With the prefix "", the bytes stay as they are.
func (l *lineWriter) copy(prefix string, r io.Reader) error {
	in := bufio.NewReaderSize(r, longestLine)
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			if werr := l.write(prefix, line); werr != nil {
				return werr
			}
		}
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// write writes one line, or a part of a long one.
func (l *lineWriter) write(prefix string, line []byte) error {
	text := prefix + string(line)
	if prefix != "" && line[len(line)-1] != '\n' {
		text += "\n"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := io.WriteString(l.w, text)
	return err
}

func (l *lineWriter) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, format+"\n", args...)
}
