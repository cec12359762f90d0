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

// copy writes each line of r with a prefix. If there is a prefix, an incomplete last line gets a newline.
func (l *lineWriter) copy(prefix string, r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			if prefix != "" && line[len(line)-1] != '\n' {
				line += "\n"
			}
			l.mu.Lock()
			_, werr := io.WriteString(l.w, prefix+line)
			l.mu.Unlock()
			if werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (l *lineWriter) printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, format+"\n", args...)
}
