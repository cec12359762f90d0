package perform

import (
	"context"
	"crypto/rand"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
)

func checkLine(t *testing.T, out []byte) {
	t.Helper()
	line := firstLine(out)
	if len(line) > pod.TextBytes || !utf8.ValidString(line) || strings.ContainsAny(line, "\n\x00\x1b\x7f") {
		t.Errorf("of %d bytes the first line has %d: %.80q", len(out), len(line), line)
	}
}

func FuzzFirstLineOfAHook(f *testing.F) {
	for _, s := range []string{"", "\n\n", "one\ntwo", "\x1b[31mred\nrest", "\xff\xfe", strings.Repeat("\xff", 3*pod.TextBytes), strings.Repeat("ä", pod.TextBytes)} {
		f.Add([]byte(s))
	}
	f.Fuzz(checkLine)
}

// loud is a runtime whose commands fail with a large output.
type loud struct {
	runtimeapi.RuntimeServiceClient
	stderr []byte
}

func (l *loud) ExecSync(context.Context, *runtimeapi.ExecSyncRequest, ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	return &runtimeapi.ExecSyncResponse{Stderr: l.stderr, ExitCode: 1}, nil
}

// messages is a Recorder that keeps the messages of events.
type messages struct{ messages []string }

func (*messages) NodeEvent(string, string, string) {}

func (r *messages) Event(_ *v1.Pod, _, _, _, message string) {
	r.messages = append(r.messages, message)
}

// The command of a hook may write a very large output. The outcome and the event contain only its first line, with a bounded length.
//
// The test is not parallel, because it counts the allocations of the process.
func TestHugeOutputOfAHookIsOneLine(t *testing.T) {
	const size = 16 << 20
	random := make([]byte, size)
	if _, err := rand.Read(random); err != nil {
		t.Fatal(err)
	}
	for name, stderr := range map[string][]byte{
		"binary": random, "one line": []byte(strings.Repeat("x", size)), "controls": []byte(strings.Repeat("\x1b[2J", size/4)), "blank": []byte(strings.Repeat("\n", size)),
	} {
		checkLine(t, stderr)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		firstLine(stderr)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: the first line of %d bytes costs %d", name, size, n)
		}
		events := &messages{}
		x := New(Config{CRI: cri.New(cri.Config{Runtime: &loud{stderr: stderr}}), Recorder: events})
		p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}}}}}}
		o := x.Do(t.Context(), pod.Job{Pod: p, Observed: &pod.Observed{}, Action: pod.Action{Op: pod.OpPreStop, Container: "main", ID: "c", Grace: time.Second}})
		const words = 200 // bytes that our own text adds around the line
		if o.Err == nil || len(o.Err.Error()) > pod.TextBytes+words || len(o.Message) > pod.TextBytes+words || len(events.messages) == 0 || slices.ContainsFunc(events.messages, func(m string) bool { return len(m) > pod.TextBytes+words }) {
			t.Errorf("%s: the outcome has an error of %.80v, a message of %d bytes and %d events", name, o.Err, len(o.Message), len(events.messages))
		}
	}
}
