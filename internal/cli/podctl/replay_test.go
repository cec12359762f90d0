package podctl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The decision of an exported turn is the same when it is decided again. A file with another decision is an error until
// --update has written the new one.
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
	if err := (&Replay{}).Run(Streams{Out: &out}, file); err == nil || !strings.Contains(err.Error(), "not a turn that was exported") {
		t.Errorf("a manifest: %v", err)
	}
}
