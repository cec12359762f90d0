package integration

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The log of a container that writes much is rotated, its number of files is bounded, and whoever follows it sees every
// line once and in order.
func TestLogRotation(t *testing.T) {
	// Of 60 bytes: 300 KiB of content a burst, more with what the runtime puts before it. So each burst is rotated at
	// least once, perhaps in its middle, and what is left then is rotated with the next one.
	const bursts, lines = 4, 5000
	line := func(n int) string {
		if n == bursts*lines {
			return "bye"
		}
		return fmt.Sprintf("%054d-%d", n%lines+1, n/lines+1)
	}
	s := newSpace(t)
	s.pod("chatty", fmt.Sprintf(`
restartPolicy: Never
containers:
- name: main
  image: $busybox
  command: [sh, -c, 'b=1; while [ $b -le %d ]; do awk -v b=$b "BEGIN { for (i = 1; i <= %d; i++) printf \"%%054d-%%d\\n\", i, b }"; while [ ! -e /go$b ]; do sleep 0.2; done; b=$((b+1)); done; echo bye']`, bursts, lines))
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
	followed := make(chan string, 1)
	go func() { followed <- compare(out, line) }()
	last := ""
	for b := 1; b <= bursts; b++ {
		s.eventually(fmt.Sprintf("rotation %d", b), func() error {
			newest := newestRotated(dir)
			if newest == last {
				return errorf("files are %v", list(dir))
			}
			last = newest
			return nil
		})
		s.sh("chatty", fmt.Sprintf("touch /go%d", b))
	}
	s.ended("chatty", "Succeeded")
	if err := follow.Wait(); err != nil {
		t.Errorf("logs -f: %v", err)
	}
	s.same("logs -f over rotations", <-followed, fmt.Sprintf("%d lines", bursts*lines+1))
	var files []string
	s.eventually("the end of the compression", func() error {
		files = list(dir)
		if len(files) != 3 || files[0] != "0.log" || !strings.HasSuffix(files[1], ".gz") || strings.HasSuffix(files[2], ".gz") {
			return errorf("log files are %v, want the log, one compressed, one not", files)
		}
		return nil
	})
	kept := contents(t, filepath.Join(dir, files[1]))
	kept = append(kept, contents(t, filepath.Join(dir, files[2]))...)
	newest := contents(t, filepath.Join(dir, files[0]))
	s.same("logs", s.logs("chatty"), strings.Join(append(newest, ""), "\n"))
	kept = append(kept, newest...)
	if len(kept) < lines {
		t.Errorf("%v have %d lines, want those of a burst at least", files, len(kept))
	}
	for i, got := range kept {
		if want := line(bursts*lines + 1 - len(kept) + i); got != want {
			t.Fatalf("line %d of the %d in %v is %q, want %q", i+1, len(kept), files, got, want)
		}
	}
}

// compare reads lines until one is not the expected or until the end, and says which.
func compare(from io.Reader, line func(n int) string) string {
	n, scan := 0, bufio.NewScanner(from)
	for ; scan.Scan(); n++ {
		if scan.Text() != line(n) {
			return fmt.Sprintf("line %d is %q, want %q", n+1, scan.Text(), line(n))
		}
	}
	return fmt.Sprintf("%d lines", n)
}

// contents returns the lines of a log file in the runtime's format, compressed or not, without what the runtime puts
// before each.
func contents(t *testing.T, file string) (lines []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var from io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		if from, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	scan := bufio.NewScanner(from)
	for scan.Scan() {
		words := strings.SplitN(scan.Text(), " ", 4) // time, stream, tag, content
		if len(words) != 4 {
			t.Fatalf("%s has the line %q", file, scan.Text())
		}
		lines = append(lines, words[3])
	}
	if err := scan.Err(); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return lines
}

func newestRotated(dir string) (newest string) {
	for _, f := range list(dir) {
		if strings.HasPrefix(f, "0.log.") && !strings.HasSuffix(f, ".gz") && !strings.HasSuffix(f, ".tmp") {
			newest = f
		}
	}
	return newest
}
