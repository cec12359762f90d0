package agenttest

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Describe returns the state of the API and of the runtime as text, for the message of a failed test.
func (w *World) Describe() string {
	var b strings.Builder
	pods := w.Kube.Pods()
	for _, p := range pods {
		fmt.Fprintf(&b, "API: pod %s %s %s", p.Name, p.UID, p.Status.Phase)
		if p.DeletionTimestamp != nil {
			fmt.Fprintf(&b, " deleted at %s grace %d", p.DeletionTimestamp.Format(time.TimeOnly), *p.DeletionGracePeriodSeconds)
		}
		for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
			for i := range list {
				fmt.Fprintf(&b, "\n       %s ready=%v restarts=%d id=%.20s %s", list[i].Name, list[i].Ready, list[i].RestartCount, list[i].ContainerID, stateOf(&list[i]))
			}
		}
		b.WriteByte('\n')
	}
	return b.String() + w.Witness.String()
}

func stateOf(s *v1.ContainerStatus) string {
	switch {
	case s.State.Running != nil:
		return "running"
	case s.State.Terminated != nil:
		return fmt.Sprintf("terminated %d %s", s.State.Terminated.ExitCode, s.State.Terminated.Reason)
	case s.State.Waiting != nil:
		return "waiting " + s.State.Waiting.Reason
	}
	return "-"
}

// tail keeps the last lines of the agents' log.
type tail struct {
	mu    sync.Mutex
	lines []string
	all   io.WriteCloser // file that gets all lines; nil: the variable logFile is not set
}

const tailLines = 150

// logFile is the name of an environment variable. It has the path of a file for the complete log of all agents, which helps to analyse a
// failure.
const logFile = "WHERRY_SIM_LOG"

// Write stores one line of the log.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all != nil {
		_, _ = t.all.Write(b) // an error does not matter, because the file is only for analysis
	}
	if len(t.lines) == tailLines {
		t.lines = slices.Delete(t.lines, 0, tailLines/3)
	}
	t.lines = append(t.lines, string(b))
	return len(b), nil
}

// String returns the stored lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "")
}
