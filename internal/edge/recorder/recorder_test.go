package recorder

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/replay"
)

// turnOf returns a turn of a pod at the given second.
func turnOf(name string, second int) *replay.Turn {
	policy := decide.DefaultPolicy()
	in := decide.Input{Observed: &pod.Observed{}, Memory: &decide.Memory{}, Policy: &policy, Now: time.Unix(int64(second), 0)}
	t := replay.Of(pod.Ref{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}, &in)
	plan := decide.Decide(&in)
	t.Decided(&plan)
	return t
}

// record passes turns to a new recorder, and waits until all are written.
func record(t *testing.T, cfg Config, turns ...*replay.Turn) string {
	t.Helper()
	var log bytes.Buffer
	cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	r := New(cfg)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range turns { // in parts that fit into the queue
		r.Record(turns[i])
		if i%maxQueue == maxQueue-1 {
			if err := r.Run(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return log.String()
}

// The recorder keeps the last turns of each pod, and Read returns them. A new recorder removes the oldest files of an earlier
// recorder if there are too many.
func TestRecorded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	cfg := Config{Dir: filepath.Join(root, DirName), MaxBytes: 1 << 20}
	var turns []*replay.Turn
	for i := range 3 * maxPodTurns {
		turns = append(turns, turnOf("bad", i+1))
	}
	if log := record(t, cfg, append(turns, turnOf("other", 5))...); log != "" {
		t.Errorf("it says %s", log)
	}
	record(t, cfg, turnOf("bad", 1000))
	got, err := Read(root, "ns", "bad")
	if err != nil || len(got) != maxPodTurns {
		t.Fatalf("%d turns, %v", len(got), err)
	}
	first, last := got[0], got[len(got)-1]
	if first.At.Unix() != 3*maxPodTurns-maxPodTurns+2 || last.At.Unix() != 1000 || last.Err != nil || last.Turn.Name != "bad" {
		t.Errorf("from %v to %v: %v", first.At, last.At, last.Err)
	}
	if all, err := Read(root, "", ""); err != nil || len(all) != maxPodTurns+1 {
		t.Errorf("%d turns of all pods, %v", len(all), err)
	}
	if none, err := Read(root, "ns", "ba"); err != nil || len(none) != 0 {
		t.Errorf("a pod whose name begins in the same way has %d turns, %v", len(none), err)
	}
}

// The turns of a pod are found by its whole name, also if the name is longer than that of a directory, and by its namespace.
func TestRecordedTurnsOfLongNames(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	long := strings.Repeat("a-long-name-", 15)
	record(t, Config{Dir: filepath.Join(root, DirName), MaxBytes: 1 << 20}, turnOf(long+"1", 1), turnOf(long+"2", 2), turnOf("short", 3))
	for _, c := range []struct {
		namespace, name string
		want            []string
	}{
		{"ns", long + "2", []string{long + "2"}}, {"ns", long, nil}, {"ns", "short", []string{"short"}},
		{"ns", "", []string{long + "1", long + "2", "short"}}, {"n", "", nil}, {"other", "short", nil},
	} {
		got, err := Read(root, c.namespace, c.name)
		var names []string
		for _, r := range got {
			names = append(names, r.Turn.Name)
		}
		if err != nil || !slices.Equal(names, c.want) {
			t.Errorf("%s/%.20s: %q %v, want %q", c.namespace, c.name, names, err, c.want)
		}
	}
}

// All files together have at most MaxBytes. The oldest are removed first. A new agent with a smaller MaxBytes removes files too.
func TestBytesAreBounded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	one, err := turnOf("pod-00", 1).Encode()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Dir: filepath.Join(root, DirName), MaxBytes: int64(len(one) * 10)}
	var turns []*replay.Turn
	for i := range 50 {
		turns = append(turns, turnOf(fmt.Sprintf("pod-%02d", i), i+1))
	}
	record(t, cfg, turns...)
	size := func() (n int64, dirs int) {
		files, err := list(cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			n += f.bytes
		}
		pods, err := os.ReadDir(cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return n, len(pods)
	}
	if n, dirs := size(); n > cfg.MaxBytes || n < cfg.MaxBytes*8/10 || dirs > 10 {
		t.Errorf("%d bytes of %d in %d directories", n, cfg.MaxBytes, dirs)
	}
	cfg.MaxBytes /= 2
	record(t, cfg)
	if n, _ := size(); n > cfg.MaxBytes {
		t.Errorf("%d bytes of %d after the start of a new agent", n, cfg.MaxBytes)
	}
	if all, err := Read(root, "", ""); err != nil || all[len(all)-1].Turn.Name != "pod-49" {
		t.Errorf("the newest is not kept: %v", err)
	}
}

// A failing disk is logged once. Turns that do not fit into the queue are counted, and Record does not block.
func TestDiskThatFails(t *testing.T) {
	t.Parallel()
	blocked := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	r := New(Config{Dir: filepath.Join(blocked, DirName), MaxBytes: 1 << 20, Log: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range maxQueue + 5 {
		r.Record(turnOf("bad", i))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = r.Run(ctx)
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "turns=5") {
		t.Errorf("%d errors:\n%s", n, log.String())
	}
}

// The recorder leaves files of other programs in its directory alone. For a file that is not a turn, Read returns an error in
// Recorded.
func TestStrangeFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	cfg := Config{Dir: filepath.Join(root, DirName), MaxBytes: 1 << 20}
	record(t, cfg, turnOf("bad", 1))
	dir := filepath.Join(cfg.Dir, "ns_bad_uid-bad")
	for name, text := range map[string]string{"20260101T000000.000000000Z.json": "{", "notes.txt": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(root, "ns", "bad")
	if err != nil || len(got) != 2 || got[0].Err != nil || got[1].Err == nil {
		t.Errorf("%+v, %v", got, err)
	}
	hostile := turnOf("bad", 2)
	hostile.UID = "../../../etc/" + strings.Repeat("x", 500)
	record(t, cfg, hostile)
	if all, err := Read(root, "ns", "bad"); err != nil || len(all) != 3 {
		t.Errorf("a hostile UID: %d, %v", len(all), err)
	}
	if _, err := os.Stat(filepath.Join(root, "..", "etc")); err == nil {
		t.Error("a hostile UID leads out of the directory")
	}
}
