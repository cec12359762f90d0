package proxyctl

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/criproxy"
)

// A record keeps the newest lines and stays within its limit. Lines that were there before it began stay, too.
func TestRecordIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "calls")
	const limit = minRecord << 20
	lines := 0
	for range 2 {
		r, err := openRecord(path, minRecord, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for range 3000 { // less than the queue, so that no line is lost
			r.add(criproxy.Call{Method: "Version", Fault: fmt.Sprint("number ", lines, " ", strings.Repeat("x", 200))})
			lines++
		}
		r.close()
		r.add(criproxy.Call{}) // after the end it has no effect
		if n := r.lost.Load(); n != 0 {
			t.Errorf("%d lines are lost", n)
		}
	}
	var all string
	size := int64(0)
	for _, name := range []string{path + olderSuffix, path} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
		size += int64(len(text))
	}
	if size > limit || size < limit/2 {
		t.Errorf("the record has %d bytes, its limit is %d", size, limit)
	}
	kept := strings.Count(all, "\n")
	at := 0
	for number := lines - kept; number < lines; number++ {
		i := strings.Index(all[at:], fmt.Sprint("number ", number, " "))
		if i < 0 {
			t.Fatalf("the record has %d lines, and not line %d of %d in its order", kept, number, lines)
		}
		at += i
	}
}

// A record on a disk that fails loses lines, counts them, and says so once.
func TestRecordOnABrokenDisk(t *testing.T) {
	t.Parallel()
	var log text
	r, err := openRecord(filepath.Join(t.TempDir(), "calls"), minRecord, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.file.Close() // no line has been added, so no other goroutine uses the file
	for range 3 {
		r.add(criproxy.Call{Method: "Version"})
	}
	r.close()
	if n := r.lost.Load(); n != 3 || strings.Count(log.String(), "the record of calls has gaps") != 1 {
		t.Errorf("%d lines are lost; the log:\n%s", n, &log)
	}
}

// A record whose full file cannot become the older file loses lines, and does not grow.
func TestRecordCannotRotate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "calls")
	if err := os.Mkdir(path+olderSuffix, 0o700); err != nil {
		t.Fatal(err)
	}
	r, err := openRecord(path, minRecord, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		r.add(criproxy.Call{Method: "Version", Fault: strings.Repeat("x", 300)})
	}
	r.close()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.lost.Load(); n == 0 || st.Size() > minRecord<<20/2 {
		t.Errorf("%d lines are lost, and the file has %d bytes", n, st.Size())
	}
}
