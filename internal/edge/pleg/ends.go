package pleg

import (
	"time"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// logEnds writes one line for each container that has ended since the pod's last inspection. An agent's first inspection of a pod
// gets no lines, because the containers may have ended long before.
func (g *Generator) logEnds(old, cur *pod.Observed) {
	dead := make(map[string]bool, len(old.Containers))
	for i := range old.Containers {
		dead[old.Containers[i].ID] = old.Containers[i].State == pod.StateExited
	}
	for i := range cur.Containers {
		c := &cur.Containers[i]
		if c.State != pod.StateExited || dead[c.ID] {
			continue
		}
		args := []any{"pod", cur.Ref, "container", c.Name, "exitCode", c.ExitCode}
		if c.Said != nil && c.Said.Reason != "" {
			args = append(args, "reason", pod.TextMax(c.Said.Reason, whyKept))
		}
		if !c.StartedAt.IsZero() && c.FinishedAt.After(c.StartedAt) {
			args = append(args, "ranFor", c.FinishedAt.Sub(c.StartedAt).Round(time.Millisecond))
		}
		g.cfg.Log.Info("container ended", append(args, "id", c.ID)...)
	}
}
