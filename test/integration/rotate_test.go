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
	const bursts, lines = 4, 5000 // of 60 bytes: 300 KiB of content a burst, more with what the runtime puts before it
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
	go func() {
		n, scan := 0, bufio.NewScanner(out)
		for scan.Scan() {
			want := fmt.Sprintf("%054d-%d", n%lines+1, n/lines+1)
			if n == bursts*lines {
				want = "bye"
			}
			if scan.Text() != want {
				followed <- fmt.Sprintf("line %d is %q, want %q", n+1, scan.Text(), want)
				return
			}
			n++
		}
		followed <- fmt.Sprintf("%d lines", n)
	}()
	last := ""
	for b := 1; b <= bursts; b++ {
		s.eventually(fmt.Sprintf("rotation %d", b), func() error {
			newest := newestRotated(dir)
			info, err := os.Stat(filepath.Join(dir, "0.log"))
			if err != nil || newest == last || info.Size() > 0 {
				return errorf("files are %v, %v", list(dir), err)
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
	s.same("logs", s.logs("chatty"), "bye\n")
	files := list(dir)
	if len(files) != 3 || files[0] != "0.log" || !strings.HasSuffix(files[1], ".gz") || strings.HasSuffix(files[2], ".gz") {
		t.Fatalf("log files are %v, want the log, one compressed, one not", files)
	}
	f, err := os.Open(filepath.Join(dir, files[1]))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	old, err := io.ReadAll(z)
	if got := strings.Count(string(old), "\n"); err != nil || got != lines {
		t.Errorf("%s has %d lines, %v, want %d", files[1], got, err, lines)
	}
}

func newestRotated(dir string) (newest string) {
	for _, f := range list(dir) {
		if strings.HasPrefix(f, "0.log.") && !strings.HasSuffix(f, ".gz") && !strings.HasSuffix(f, ".tmp") {
			newest = f
		}
	}
	return newest
}
