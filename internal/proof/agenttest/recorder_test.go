package agenttest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/edge/recorder"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// When the agent is killed, the turns in which something of a pod went wrong are on disk. They can be decided again, with the same
// result. Nothing is recorded about a pod without trouble, and nothing at all if recording is not configured.
func TestTurnsThatWentWrongAreRecorded(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	record := int64(1 << 20)
	Run(t, Config{Agent: func(c *agent.Config) { c.RootDir, c.RecordBytes = root, record }}, func(w *World) {
		time.Sleep(time.Second) // a pod that is created before the agent knows its Node and the Services may fail to start at first
		w.Create(Pod("well"))
		w.Create(Pod("crash", Annotate(simcri.AnnotationExitCode, "3"), Annotate(simcri.AnnotationRunFor, "1s")))
		w.Create(Pod("unset", withConfigMap("nowhere")))
		w.WaitReady("well")
		time.Sleep(2 * time.Minute)
		w.CrashAgent(false)
		all, err := recorder.Read(root, "", "")
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, r := range all {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			said = append(said, r.Turn.Name+": "+r.Turn.Wrong)
			if !slices.Equal(r.Turn.Again(), r.Turn.Plan) {
				t.Errorf("%s is decided otherwise", r.Path)
			}
			if r.Turn.Agent == "" || !r.At.Equal(r.Turn.Input.Now) {
				t.Errorf("%s: agent %q, at %v, the turn is of %v", r.Path, r.Turn.Agent, r.At, r.Turn.Input.Now)
			}
		}
		text := strings.Join(said, "\n")
		if strings.Contains(text, "well: ") || strings.Count(text, "crash: container main ended with exit code 3") != 5 || !strings.Contains(text, "unset: set-up failed (FailedMount)") {
			t.Errorf("recorded:\n%s", text)
		}
		record = 0
		w.StartAgent()
		time.Sleep(10 * time.Minute)
		if again, err := recorder.Read(root, "", ""); err != nil || len(again) != len(all) {
			t.Errorf("%d turns are recorded, and %d by an agent that records nothing: %v", len(all), len(again)-len(all), err)
		}
	})
}
