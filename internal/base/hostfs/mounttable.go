package hostfs

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// mountPoints lists the mount points of the machine that want selects, in the order in which they were mounted.
//
// Package mountinfo parses every field of every line, and the lines of containers are long (overlay file systems). Each start and end of a pod
// reads the table several times, so on a node with many pods this was a fifth of the processor time of a deletion.
func mountPoints(want func(at []byte) bool) ([]string, error) {
	// The file belongs to a thread, which must live as long as the file is read.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return selectMounts(f, want)
}

// longestMount is the length in bytes of the longest line that selectMounts accepts. The kernel limits the options of a mount, which are most of
// a line, to a page.
const longestMount = 1 << 20

// selectMounts reads a table in the format of /proc/PID/mountinfo, whose fifth field is the mount point (proc_pid_mountinfo(5)).
func selectMounts(table io.Reader, want func(at []byte) bool) (points []string, err error) {
	lines := bufio.NewScanner(table)
	lines.Buffer(make([]byte, 16<<10), longestMount)
	for lines.Scan() {
		rest := lines.Bytes()
		for range 4 {
			_, rest, _ = bytes.Cut(rest, []byte{' '})
		}
		at, _, ok := bytes.Cut(rest, []byte{' '})
		if !ok {
			return nil, fmt.Errorf("read mount table: the line %.100q has fewer than six fields", lines.Bytes())
		}
		if bytes.IndexByte(at, '\\') >= 0 {
			at = unescaped(at)
		}
		if want(at) {
			points = append(points, string(at))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	return points, nil
}

// unescaped returns a field of the mount table with the characters for which the kernel writes a backslash and three octal digits: space, tab,
// newline and backslash.
func unescaped(field []byte) []byte {
	out := make([]byte, 0, len(field))
	for i := 0; i < len(field); i++ {
		if field[i] == '\\' && i+3 < len(field) && octal(field[i+1]) && octal(field[i+2]) && octal(field[i+3]) {
			out = append(out, (field[i+1]-'0')<<6|(field[i+2]-'0')<<3|(field[i+3]-'0'))
			i += 3
			continue
		}
		out = append(out, field[i])
	}
	return out
}

func octal(c byte) bool { return '0' <= c && c <= '7' }

// below reports whether a path is dir or below dir.
func below(path []byte, dir string) bool {
	dir = strings.TrimSuffix(dir, "/")
	return len(path) >= len(dir) && string(path[:len(dir)]) == dir && (len(path) == len(dir) || path[len(dir)] == '/')
}
