package podctl

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/replay"
	"github.com/wherry-node/wherry/internal/edge/recorder"
)

// Replay of an exported turn prints the same decision as the file has. For a file with another decision it returns an error, until --update
// has written the new decision into the file.
func TestReplay(t *testing.T) {
	t.Parallel()
	at := Target{Socket: startNode(t)}
	dir := t.TempDir()
	file := filepath.Join(dir, "pods.yaml")
	if err := os.WriteFile(file, []byte(manifests3), 0o600); err != nil {
		t.Fatal(err)
	}
	run := Run{Files: []string{file}, Detach: true, Wait: true, Timeout: time.Minute, Grace: -1, Quiet: true}
	run.Agent.Socket = at.Socket
	_ = run.Run(t.Context(), Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}) // ignore the job's exit code
	for _, pod := range []string{"web", "job"} {
		var turn, out bytes.Buffer
		if err := (&Explain{Target: at, Export: true}).Run(t.Context(), Streams{Out: &turn}, pod); err != nil {
			t.Fatal(err)
		}
		if err := (&Replay{}).Run(Streams{In: &turn, Out: &out}, "-"); err != nil || !strings.Contains(out.String(), "default/"+pod) || !strings.Contains(out.String(), "decides the same") {
			t.Errorf("%s: %v\n%s", pod, err, out.String())
		}
	}

	var turn, out bytes.Buffer
	if err := (&Explain{Target: at, Export: true}).Run(t.Context(), Streams{Out: &turn}, "web"); err != nil {
		t.Fatal(err)
	}
	if err := (&Replay{Step: true}).Run(Streams{In: bytes.NewReader(turn.Bytes()), Out: &out}, "-"); err != nil ||
		!strings.Contains(out.String(), " 1. does the pod end?\n      saw      no deletion;") || !strings.Contains(out.String(), "decided  the pod goes on") || !strings.Contains(out.String(), "container main\n      saw      attempt 0 running since -") {
		t.Errorf("the steps: %v\n%s", err, out.String())
	}
	out.Reset()
	if err := (&Replay{Script: true}).Run(Streams{In: bytes.NewReader(turn.Bytes()), Out: &out}, "-"); err != nil ||
		!strings.Contains(out.String(), "\nturn-of pod {") || !strings.HasSuffix(out.String(), "\nturn\n    = active: everything is as the spec says\n") {
		t.Errorf("the script: %v\n%s", err, out.String())
	}
	if err := (&Replay{Script: true, Step: true}).Run(Streams{In: &bytes.Buffer{}, Out: &out}, "-"); err == nil {
		t.Error("--script and --step together are no error")
	}
	out.Reset()
	other := filepath.Join(dir, "web.json")
	text := strings.Replace(turn.String(), `"= active: `, `"= gone: \u001b[2J`, 1)
	if err := os.WriteFile(other, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	err := (&Replay{}).Run(Streams{Out: &out}, other)
	if !errors.Is(err, errDiffers) || !strings.Contains(out.String(), "- = gone") || !strings.Contains(out.String(), "+ = active") || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%v\n%q", err, out.String())
	}
	if err := (&Replay{Update: true}).Run(Streams{Out: &out}, other); err != nil {
		t.Fatal(err)
	}
	if err := (&Replay{}).Run(Streams{Out: &out}, other); err != nil {
		t.Error(err)
	}
	newer := strings.Replace(turn.String(), `"schema": 1`, `"schema": 2, "weather": "fair"`, 1)
	if err := (&Replay{}).Run(Streams{In: strings.NewReader(newer), Out: &out}, "-"); err == nil || !strings.Contains(err.Error(), "schema 2") || !strings.Contains(err.Error(), "does not know: weather;") {
		t.Errorf("a turn of another schema: %v", err)
	}
	if err := (&Replay{}).Run(Streams{Out: &out}, file); err == nil || !strings.Contains(err.Error(), "not a turn that was exported") {
		t.Errorf("a manifest: %v", err)
	}
}

// The recorded turns are read from the disk, without an agent.
func TestRecorded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	policy := decide.DefaultPolicy()
	in := decide.Input{Observed: &pod.Observed{}, Memory: &decide.Memory{}, Policy: &policy, Now: time.Unix(1000, 0)}
	turn := replay.Of(pod.Ref{Namespace: "shop", Name: "web", UID: "u1"}, &in)
	plan := decide.Decide(&in)
	turn.Decided(&plan)
	turn.Wrong = "container app ended with \x1b[2J exit code 3"
	r := recorder.New(recorder.Config{Dir: filepath.Join(root, recorder.DirName), MaxBytes: 1 << 20, Log: slog.New(slog.DiscardHandler)})
	r.Record(turn)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		explain   Explain
		pod, want string
	}{
		{Explain{Root: root}, "shop/web", "ended with"},
		{Explain{Root: root}, "", "shop/web"},
		{Explain{Root: root, Target: Target{Namespace: "shop"}, Format: "json"}, "web", `"namespace": "shop"`},
		{Explain{Root: root}, "web", "Nothing that went wrong with pod default/web is recorded"},
		{Explain{Root: root, Target: Target{Namespace: "shop"}}, "", "shop/web"},
		{Explain{Root: root, Target: Target{Namespace: "other"}}, "", "Nothing that went wrong with any pod of namespace other is recorded"},
		{Explain{Root: filepath.Join(root, "none")}, "", "Nothing that went wrong with any pod is recorded"},
	} {
		c.explain.Recorded = true
		var out bytes.Buffer
		if err := c.explain.Run(t.Context(), Streams{Out: &out}, c.pod); err != nil || !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "\x1b") {
			t.Errorf("%q: %v, want %q:\n%s", c.pod, err, c.want, out.String())
		}
	}
	for _, wrong := range []Explain{{Recorded: true, Watch: true}, {Root: root}} {
		if err := wrong.Run(t.Context(), Streams{Out: &bytes.Buffer{}}, "web"); err == nil {
			t.Errorf("%+v is no error", wrong)
		}
	}
}

// Recorded turns are looked for where the agent of this user's wherry run has written them. Only root may read those of a service.
func TestUsualRoots(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/home/a/data")
	if got := usualRoots(1000); !slices.Equal(got, []string{"/home/a/data/wherry"}) {
		t.Errorf("of a user: %v", got)
	}
	if got := usualRoots(0); !slices.Equal(got, []string{"/var/lib/kubelet", "/var/lib/wherry"}) {
		t.Errorf("of root: %v", got)
	}
}
