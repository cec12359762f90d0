package crilog_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/internal/edge/server/crilog"
)

const sample = `2026-01-02T03:04:05.000000001Z stdout F one
2026-01-02T03:04:06.000000001Z stderr F two
2026-01-02T03:04:07.000000001Z stdout P thr
2026-01-02T03:04:07.000000002Z stdout F ee
2026-01-02T03:04:08.1+00:00 stderr F 
2026-01-02T03:04:09.000000001Z stdout F:future four
`

func TestRead(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200_000)
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		name, log, want, err string
		opts                 crilog.Options
	}{
		{name: "all", log: sample, want: "one\ntwo\nthree\n\nfour\n"},
		{name: "no last newline", log: strings.TrimSuffix(sample, "\n"), want: "one\ntwo\nthree\n\nfour"},
		{name: "stdout alone", log: sample, opts: crilog.Options{Stream: crilog.Stdout}, want: "one\nthree\nfour\n"},
		{name: "stderr alone", log: sample, opts: crilog.Options{Stream: crilog.Stderr}, want: "two\n\n"},
		{name: "tail 0", log: sample, opts: crilog.Options{Tail: n(0)}, want: ""},
		{name: "tail 1", log: sample, opts: crilog.Options{Tail: n(1)}, want: "four\n"},
		{name: "tail counts a split line once", log: sample, opts: crilog.Options{Tail: n(3)}, want: "three\n\nfour\n"},
		{name: "tail of one stream", log: sample, opts: crilog.Options{Tail: n(2), Stream: crilog.Stdout}, want: "three\nfour\n"},
		{name: "tail more than there is", log: sample, opts: crilog.Options{Tail: n(99)}, want: "one\ntwo\nthree\n\nfour\n"},
		{name: "tail of an unfinished line", log: sample + "2026-01-02T03:04:09Z stdout P fi", opts: crilog.Options{Tail: n(2)}, want: "four\nfi"},
		{name: "since", log: sample, opts: crilog.Options{Since: at("2026-01-02T03:04:07Z")}, want: "three\n\nfour\n"},
		{name: "timestamps once a line", log: sample, opts: crilog.Options{Timestamps: true, Tail: n(3)}, want: "2026-01-02T03:04:07.000000001Z three\n2026-01-02T03:04:08.100000000Z \n2026-01-02T03:04:09.000000001Z four\n"},
		{name: "limit in a line", log: sample, opts: crilog.Options{Limit: n(6)}, want: "one\ntw"},
		{name: "limit at a line's end", log: sample, opts: crilog.Options{Limit: n(4)}, want: "one\n"},
		{name: "limit does not count the other stream", log: sample, opts: crilog.Options{Limit: n(6), Stream: crilog.Stderr}, want: "two\n\n"},
		{name: "a line longer than every buffer", log: sample + "2026-01-02T03:04:10Z stdout F " + long + "\n", opts: crilog.Options{Tail: n(2)}, want: "four\n" + long + "\n"},
		{name: "a long split line", log: "2026-01-02T03:04:10Z stdout P " + long + "\n2026-01-02T03:04:10Z stdout F end\n", opts: crilog.Options{Timestamps: true}, want: "2026-01-02T03:04:10.000000000Z " + long + "end\n"},
		{name: "lines that are none are skipped", log: "garbage\n\x00\x00\x00\n" + sample + "half a li\n", want: "one\ntwo\nthree\n\nfour\n"},
		{name: "another format", log: `{"log":"a","stream":"stdout","time":"2026-01-02T03:04:05Z"}` + "\n", err: "none of its 1 lines is in the CRI log format"},
		{name: "empty", log: "", want: ""},
		{name: "an empty line without its space", log: "2026-01-02T03:04:05Z stdout F\n", want: "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			err := crilog.Read(t.Context(), write(t, c.log), c.opts, &out)
			if (err != nil) != (c.err != "") || (err != nil && !strings.Contains(err.Error(), c.err)) {
				t.Fatalf("error %v, want %q", err, c.err)
			}
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

// In a file of many blocks, a tail of any length is the same as the end of the whole output.
func TestTailOfManyBlocks(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	var lines []string
	for i := range 20_000 {
		stamp := time.Unix(int64(i), 0).UTC().Format(time.RFC3339Nano)
		text := fmt.Sprintf("line %d %s\n", i, strings.Repeat("y", i%50))
		if i%7 == 0 {
			fmt.Fprintf(&b, "%s stdout P begins-\n", stamp)
			lines = append(lines, "begins-"+text)
		} else {
			lines = append(lines, text)
		}
		fmt.Fprintf(&b, "%s stdout F %s", stamp, text)
	}
	path := write(t, b.String())
	for _, k := range []int{1, 2, 7, 1000, 1999, 9999, 19999, 20000} {
		var out strings.Builder
		if err := crilog.Read(t.Context(), path, crilog.Options{Tail: n(int64(k))}, &out); err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(lines[len(lines)-k:], ""); want != out.String() {
			t.Errorf("tail %d: got %d bytes, want %d", k, out.Len(), len(want))
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	err := crilog.Read(t.Context(), filepath.Join(t.TempDir(), "0.log"), crilog.Options{}, &strings.Builder{})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want fs.ErrNotExist", err)
	}
}

// follower follows a file in a synctest bubble, whose clock is fake.
type follower struct {
	out     atomic.Pointer[string]
	running atomic.Bool
	done    chan error
}

func (f *follower) Write(b []byte) (int, error) {
	s := *f.out.Load() + string(b)
	f.out.Store(&s)
	return len(b), nil
}

func follow(ctx context.Context, path string, o crilog.Options) *follower {
	f := &follower{done: make(chan error, 1)}
	f.out.Store(new(string))
	f.running.Store(true)
	o.Running = f.running.Load
	go func() { f.done <- crilog.Read(ctx, path, o, f) }()
	return f
}

func (f *follower) expect(t *testing.T, want string) {
	t.Helper()
	time.Sleep(time.Second)
	if diff := cmp.Diff(want, *f.out.Load()); diff != "" {
		t.Fatalf("followed so far (-want +got):\n%s", diff)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	synctest.Test(t, func(t *testing.T) {
		f := follow(t.Context(), path, crilog.Options{})
		f.expect(t, "") // the runtime has not created the file yet
		add(t, path, line("one\n"))
		f.expect(t, "one\n")
		add(t, path, "2026-01-02T03:04:05Z stdout F tw") // the line is only half written
		f.expect(t, "one\n")
		add(t, path, "o\n")
		f.expect(t, "one\ntwo\n")

		// The log is rotated: the file is renamed, the runtime still writes to it, and then a new file is created.
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		add(t, path+".old", line("three\n"))
		f.expect(t, "one\ntwo\nthree\n")
		add(t, path+".old", line("last of the old\n"))
		add(t, path, line("first of the new\n"))
		f.expect(t, "one\ntwo\nthree\nlast of the old\nfirst of the new\n")

		// The log is rotated by copying and truncating it.
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		f.expect(t, "one\ntwo\nthree\nlast of the old\nfirst of the new\n")
		add(t, path, line("t\n"))
		f.expect(t, "one\ntwo\nthree\nlast of the old\nfirst of the new\nt\n")

		// The container ends. Lines written before its end are still read.
		add(t, path, line("bye\n")+strings.TrimSuffix(line("no newline"), "\n"))
		f.running.Store(false)
		if err := <-f.done; err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(*f.out.Load(), "t\nbye\nno newline") {
			t.Errorf("the end is missing: %q", *f.out.Load())
		}
	})
}

// At a rotation a runtime creates the new file before it writes the last lines to the old one. The reader returns these lines
// first, also if the container has ended by then. A process that never closes the old file does not block the reader for ever.
func TestFollowOverRotation(t *testing.T) {
	t.Parallel()
	path := write(t, line("one\n"))
	synctest.Test(t, func(t *testing.T) {
		rotate := func(name string) *os.File {
			old, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path, path+name); err != nil {
				t.Fatal(err)
			}
			return old
		}
		f := follow(t.Context(), path, crilog.Options{})
		f.expect(t, "one\n")
		old := rotate(".1")
		add(t, path, line("four\n"))
		f.expect(t, "one\n")
		add(t, path+".1", line("two\n")+"2026-01-02T03:04:05Z stdout P three-\n")
		f.expect(t, "one\ntwo\nthree-")
		_ = old.Close()
		f.expect(t, "one\ntwo\nthree-four\n") // the first part of the line is in the old file, the rest in the new one

		old = rotate(".2")
		add(t, path, line("six\n"))
		f.running.Store(false)
		time.Sleep(2 * time.Second)
		add(t, path+".2", line("five\n"))
		_ = old.Close()
		if err := <-f.done; err != nil {
			t.Fatal(err)
		}
		f.expect(t, "one\ntwo\nthree-four\nfive\nsix\n")

		f = follow(t.Context(), path, crilog.Options{})
		f.expect(t, "six\n")
		defer rotate(".3").Close()
		add(t, path, line("seven\n"))
		f.expect(t, "six\n")
		time.Sleep(10 * time.Second)
		f.expect(t, "six\nseven\n")
		f.running.Store(false)
		<-f.done
	})
}

func TestFollowEnds(t *testing.T) {
	t.Parallel()
	path := write(t, line("one\n")+line("two\n"))
	synctest.Test(t, func(t *testing.T) {
		f := follow(t.Context(), path, crilog.Options{Limit: n(5), Tail: n(1)})
		f.expect(t, "two\n")
		add(t, path, line("three\n"))
		if err := <-f.done; err != nil {
			t.Fatal(err)
		}
		f.expect(t, "two\nt") // the limit also applies while following

		ctx, cancel := context.WithCancel(t.Context())
		f = follow(ctx, path, crilog.Options{Tail: n(0)})
		f.expect(t, "")
		cancel()
		if err := <-f.done; !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
	})
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(sample), int64(2))
	f.Add([]byte("2026-01-02T03:04:05Z stdout P a\n2026-01-02T03:04:05Z stderr F b"), int64(1))
	f.Fuzz(func(t *testing.T, log []byte, tail int64) {
		path := write(t, string(log))
		var all, end strings.Builder
		errAll := crilog.Read(t.Context(), path, crilog.Options{}, &all)
		if tail < 0 || errAll != nil {
			return
		}
		if err := crilog.Read(t.Context(), path, crilog.Options{Tail: &tail}, &end); err == nil && !strings.HasSuffix(all.String(), end.String()) {
			t.Errorf("tail %d is not the end of all: %q, %q", tail, end.String(), all.String())
		}
	})
}

func n(v int64) *int64 { return &v }

func line(text string) string { return "2026-01-02T03:04:05Z stdout F " + text }

func write(t *testing.T, log string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	add(t, path, log)
	return path
}

func add(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
