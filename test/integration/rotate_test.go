package integration

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The agent rotates the log of a container that writes without pause, and limits the number of its files. A client that follows the log
// meanwhile gets every line once and in order.
func TestLogRotation(t *testing.T) {
	const rotations, burst = 4, 500
	line := func(n int) string { return fmt.Sprintf("%054d-%d", n%burst+1, n/burst+1) }
	s := newSpace(t)
	s.pod("chatty", fmt.Sprintf(`
restartPolicy: Never
containers:
- name: main
  image: $busybox
  command: [sh, -c, 'echo hello; until [ -e /go ]; do sleep 0.1; done; b=1; while [ ! -e /stop ]; do awk -v b=$b "BEGIN { for (i = 1; i <= %d; i++) printf \"%%054d-%%d\\n\", i, b }"; b=$((b+1)); sleep 0.1; done; echo bye']`, burst))
	p := s.ready("chatty")
	dir := filepath.Join(s.env.node.dir, "logs", s.name+"_chatty_"+string(p.UID), "main")

	follow := s.command("logs", "-f", "chatty")
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	scan := bufio.NewScanner(out)
	if !scan.Scan() || scan.Text() != "hello" {
		t.Fatalf("logs -f begins with %q: %v", scan.Text(), scan.Err())
	}
	followed := make(chan followedLog, 1)
	go func() { followed <- compare(scan, line) }()
	s.sh("chatty", "touch /go") // the container begins to write only now, because lines that are rotated away before the client follows would be lost
	last := ""
	for r := 1; r <= rotations; r++ {
		s.eventually(fmt.Sprintf("rotation %d", r), func() error {
			newest := newestRotated(dir)
			if newest == "" || newest == last {
				return errorf("files are %v", list(dir))
			}
			last = newest
			return nil
		})
	}
	s.sh("chatty", "touch /stop")
	s.ended("chatty", "Succeeded")
	whole := <-followed
	if err := follow.Wait(); err != nil || whole.wrong != "" || whole.lines%burst != 0 {
		t.Errorf("logs -f over rotations ended with %v after %d lines: %s", err, whole.lines, whole.wrong)
	}
	// If the container ends during a rotation, the agent undoes the rotation, so that two files are left.
	var files, kept []string
	s.eventually("the log's files to be in order", func() (err error) {
		files = list(dir)
		if n := len(files); n < 2 || n > 3 || files[0] != "0.log" || !strings.HasSuffix(files[1], ".gz") || n == 3 && strings.HasSuffix(files[2], ".gz") {
			return errorf("log files are %v, want the log, one compressed, at most one that is not", files)
		}
		if kept, err = contents(dir, append(slices.Clone(files[1:]), files[0])...); err != nil {
			return err
		}
		newest, err := contents(dir, "0.log")
		if err != nil {
			return err
		}
		out, errOut, err := s.try("logs", "chatty")
		if err != nil || out != strings.Join(append(newest, ""), "\n") || !slices.Equal(files, list(dir)) {
			return errorf("logs are %q, files now %v: %v %s", out, list(dir), err, errOut)
		}
		return nil
	})
	if len(kept) < 10*burst || kept[len(kept)-1] != "bye" {
		t.Fatalf("%v have %d lines up to %q, want two files' at least, up to bye", files, len(kept), kept[len(kept)-1])
	}
	for i, got := range kept[:len(kept)-1] {
		want := line(whole.lines + 1 - len(kept) + i)
		if got != want && (i > 0 || !strings.HasSuffix(want, got)) { // the first file may begin in the middle of a line
			t.Fatalf("line %d of the %d in %v is %q, want %q", i+1, len(kept), files, got, want)
		}
	}
}

// followedLog is the result of reading a log that a client has followed to its end. lines is the number of correct lines before the line
// "bye", and wrong describes the first wrong line; "": there is none.
type followedLog struct {
	lines int
	wrong string
}

// compare checks that the lines of a log are line(0), line(1) and so on, and then "bye". It reads to the end even after a wrong line,
// because otherwise the writer would block.
func compare(scan *bufio.Scanner, line func(n int) string) (seen followedLog) {
	ended := false
	for scan.Scan() {
		got := scan.Text()
		switch {
		case seen.wrong != "":
		case ended:
			seen.wrong = fmt.Sprintf("%q comes after bye", got)
		case got == "bye":
			ended = true
		case got != line(seen.lines):
			seen.wrong = fmt.Sprintf("line %d is %q, want %q", seen.lines+1, got, line(seen.lines))
		default:
			seen.lines++
		}
	}
	if !ended && seen.wrong == "" {
		seen.wrong = fmt.Sprintf("there is no bye: %v", scan.Err())
	}
	return seen
}

// contents reads a container's log files, which are in the CRI format and may be compressed. It returns the lines without the prefix of the
// format (time, stream and tag). It joins the parts of lines that the runtime has split, even if the parts are in two files.
func contents(dir string, files ...string) (lines []string, err error) {
	cut := false
	for _, file := range files {
		f, err := os.Open(filepath.Join(dir, file))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		var from io.Reader = f
		if strings.HasSuffix(file, ".gz") {
			if from, err = gzip.NewReader(f); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
		}
		scan := bufio.NewScanner(from)
		for scan.Scan() {
			words := strings.SplitN(scan.Text(), " ", 4) // time, stream, tag and content
			if len(words) != 4 {
				return nil, errorf("%s has the line %q", file, scan.Text())
			}
			if cut {
				lines[len(lines)-1] += words[3]
			} else {
				lines = append(lines, words[3])
			}
			cut = words[2] == "P"
		}
		if err := scan.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return lines, nil
}

func newestRotated(dir string) (newest string) {
	for _, f := range list(dir) {
		if strings.HasPrefix(f, "0.log.") && !strings.HasSuffix(f, ".gz") && !strings.HasSuffix(f, ".tmp") {
			newest = f
		}
	}
	return newest
}
