package podctl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/core/why"
)

func TestPullText(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	for want, p := range map[string]why.Pull{
		"Pulling image a since 34s.":                                                 {},
		"Image a waits since 34s until one of 3 other pulls has ended.":              {Queued: true, Running: 3, Reported: true},
		"Pulling image a since 34s: 1.5 MiB of 3.0 MiB, the last data 2s ago.":       {Reported: true, Received: 3 << 19, Total: 3 << 20, Running: 1, Moved: now.Add(-2 * time.Second)},
		"Pulling image a since 34s has stalled: no data has arrived for 2m\\x1b[0m.": {Reported: true, Stalled: "no data has arrived for 2m\x1b[0m"},
	} {
		p.Image, p.Began = "a", now.Add(-34*time.Second)
		if got := pullText(&p, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestUses(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Image: "init"}}, Containers: []v1.Container{{Image: "main"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Image: "debug"}}},
		Volumes:             []v1.Volume{{}, {VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data"}}}},
	}}
	for _, image := range []string{"init", "main", "debug", "data"} {
		if !uses(p, image) {
			t.Errorf("the pod uses %s", image)
		}
	}
	if uses(p, "other") || uses(p, "") {
		t.Error("the pod uses no other image")
	}
}

// While an image is pulled, wherry ps says so below the table. Programs that read the output as JSON see the list alone.
func TestPsSaysWhatIsPulled(t *testing.T) {
	t.Parallel()
	at := Target{Socket: startNodeWith(t, simulated.Config{Latency: map[string]simulated.Latency{"PullImage": {Mean: time.Hour}}})}
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte(strings.SplitAfter(manifests3, "---")[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	run := Run{Files: []string{file}, Detach: true, Grace: -1}
	run.Agent.Socket = at.Socket
	if err := run.Run(t.Context(), Streams{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}); err != nil {
		t.Fatal(err)
	}
	said := func(format string) string {
		var out, errOut bytes.Buffer
		if err := (&Ps{Target: at, Format: format}).Run(t.Context(), Streams{Out: &out, Err: &errOut}, nil); err != nil {
			t.Fatal(err)
		}
		return errOut.String()
	}
	const want = "Pulling image registry.example/web:1 since "
	for i := 0; !strings.Contains(said(""), want); i++ {
		if i == 400 {
			t.Fatalf("wherry ps says %q, want %q", said(""), want)
		}
		if err := sleep(t.Context(), 25*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	if text := said("json"); text != "" {
		t.Errorf("with -o json it says %q", text)
	}
}
