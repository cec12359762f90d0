package fleetctl

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/internal/cli/plain"
)

const (
	// stuckAfter is how long no pod must have started or ended until stuck asks why. A scheduler with thousands of pods starts some in that time.
	stuckAfter = 10 * time.Second
	// stuckAsk bounds the request in which it asks.
	stuckAsk = 5 * time.Second
	// mostWhy bounds what the scheduler says about a pod, in bytes.
	mostWhy = 300
)

// stuck tells why pods do not start, if none has started or ended for some time: no node takes them. The zero value is ready.
type stuck struct {
	seen  [3]int // pods Running, Succeeded and Failed
	since time.Time
	asked time.Time
	text  string
}

// tell returns a text about the pods that have no node, to be added to the progress; "": pods start, or all have nodes. It calls ask at most once in
// stuckAfter.
func (k *stuck) tell(ctx context.Context, p *fleet.Pods, now time.Time, ask func(context.Context) (fleet.Unplaced, error)) string {
	if seen := [3]int{p.Running, p.Succeeded, p.Failed}; k.since.IsZero() || seen != k.seen {
		*k = stuck{seen: seen, since: now}
	}
	if now.Sub(k.since) < stuckAfter || !k.asked.IsZero() && now.Sub(k.asked) < stuckAfter {
		return k.text
	}
	k.asked = now
	ctx, cancel := context.WithTimeout(ctx, stuckAsk)
	defer cancel()
	u, err := ask(ctx)
	switch {
	case err != nil, u.Pods == 0: // without an answer, the progress goes on as it is
		k.text = ""
	case u.Says == "":
		k.text = fmt.Sprintf("; %d pods have no node, and the scheduler has not said why", u.Pods)
	default:
		why := plain.Text(u.Says)
		if len(why) > mostWhy {
			why = strings.ToValidUTF8(why[:mostWhy], "") + "..."
		}
		k.text = fmt.Sprintf("; %d pods have no node, such as %s: %s", u.Pods, plain.Text(u.Pod), why)
	}
	return k.text
}

// create creates the pods or the workloads of the snapshot, and prints the progress. It returns what it has created, for the user.
func (w *watcher) create(ctx context.Context) (created string, err error) {
	what, create := "objects of the workloads", func() error { return w.fleet.CreateWorkloads(ctx, w.workloads, w.run.Scale) }
	if len(w.workloads) == 0 {
		what, create = "pods", func() error { return w.fleet.CreatePods(ctx, w.run.Namespace, w.run.Pods) }
	}
	ended := make(chan error, 1)
	go func() { ended <- create() }()
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case err := <-ended: // also after the end of ctx
			if len(w.workloads) == 0 {
				return fmt.Sprintf("%d pods", w.run.Pods), err
			}
			return fmt.Sprintf("%d workloads", len(w.workloads)), err
		case <-tick.C:
			if done, all := w.fleet.Creation(); all > 0 {
				w.said.line("%d of %d %s created; %d pods Running", done, all, what, w.fleet.Status().Pods.Running)
			}
		}
	}
}
