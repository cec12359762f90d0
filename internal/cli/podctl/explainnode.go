package podctl

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/core/why"
)

// node prints the state of the node: what is wrong with it, its conditions and taints, and how much of its resources the
// pods request.
func (r *Explain) node(ctx context.Context, s Streams) error {
	c, err := openClient(ctx, r.Socket)
	if err != nil {
		return err
	}
	var n v1.Node
	if err := c.ask(ctx, http.MethodGet, "/node", nil, nil, &n); err != nil {
		return err
	}
	changes, err := c.nodeChanges(ctx)
	if err != nil {
		return err
	}
	if r.Format != "" {
		return printObject(s.Out, explainedNode{n, changes}, r.Format)
	}
	if !r.All {
		changes = slices.DeleteFunc(changes, func(ch why.Change) bool { return !bad(&v1.NodeCondition{Type: ch.Condition, Status: ch.Status}) })
	}
	pods, err := c.pods(ctx)
	if err != nil {
		return err
	}
	answers, err := c.explainAll(ctx)
	if err != nil {
		return err
	}
	return writeNode(s.Out, &explainedNode{n, changes}, pods, answers, time.Now())
}

// explainedNode is a Node, and what would change its conditions.
type explainedNode struct {
	v1.Node `json:",inline"`
	Changes []why.Change `json:"changes,omitempty"`
}

// bad reports whether a condition of a node shows a problem.
func bad(c *v1.NodeCondition) bool {
	if c.Type == v1.NodeReady {
		return c.Status != v1.ConditionTrue
	}
	return c.Status != v1.ConditionFalse
}

func writeNode(w io.Writer, n *explainedNode, pods []v1.Pod, answers []explanation, now time.Time) error {
	var wrong []string
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; bad(c) {
			wrong = append(wrong, fmt.Sprintf("%s is %s (%s)", c.Type, c.Status, c.Reason))
		}
	}
	line := "nothing is wrong with the node"
	switch {
	case len(n.Status.Conditions) == 0:
		line = "the node has not reported its conditions yet"
	case len(wrong) > 0:
		line = strings.Join(wrong, ", ")
	}
	fmt.Fprintf(w, "node %s: %s\n", plain.Text(n.Name), plain.Text(line))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for i := range n.Status.Conditions {
		c := &n.Status.Conditions[i]
		fmt.Fprintf(t, "  %s\t%s\tsince %s\t%s\n", plain.Text(string(c.Type)), plain.Text(string(c.Status)), sinceText(c.LastTransitionTime.Time, now), plain.Text(strings.TrimSpace(c.Message)))
		writeChange(t, n.Changes, c.Type, now)
	}
	for _, taint := range n.Spec.Taints {
		fmt.Fprintf(t, "  taint\t%s\t\t%s\n", plain.Text(taint.ToString()), taintText(taint.Effect))
	}
	if n.Spec.Unschedulable {
		fmt.Fprintf(t, "  unschedulable\ttrue\t\tsomebody has cordoned it: kubectl uncordon %s\n", plain.Text(n.Name))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	writeRequested(w, &n.Node, pods)
	count := map[why.Level]int{}
	for i := range answers {
		count[answers[i].Answer.Level]++
	}
	_, err := fmt.Fprintf(w, "  pods: %d well, %d on their way, %d in trouble (wherry explain lists them)\n", count[why.Well], count[why.Progress], count[why.Trouble])
	return err
}

// taintText says what a taint does to pods.
func taintText(effect v1.TaintEffect) string {
	switch effect {
	case v1.TaintEffectNoSchedule:
		return "the scheduler places no pods here that do not tolerate it"
	case v1.TaintEffectPreferNoSchedule:
		return "the scheduler prefers other nodes for pods that do not tolerate it"
	case v1.TaintEffectNoExecute:
		return "pods that do not tolerate it are refused, and ended"
	}
	return "this effect is not known here"
}

// writeChange prints what would change a condition, if the agent has said so.
func writeChange(t io.Writer, changes []why.Change, condition v1.NodeConditionType, now time.Time) {
	for i := range changes {
		ch := &changes[i]
		if ch.Condition != condition {
			continue
		}
		at := ""
		if !ch.At.IsZero() {
			at = "in " + until(ch.At, now)
		}
		fmt.Fprintf(t, "  \tnext\t%s\t%s\n", at, plain.Text(ch.Line))
		for _, do := range ch.Do {
			fmt.Fprintf(t, "  \tdo\t\t%s\n", plain.Text(do))
		}
	}
}

// writeRequested prints how much of the node its pods request.
func writeRequested(w io.Writer, n *v1.Node, pods []v1.Pod) {
	sum, running := v1.ResourceList{}, int64(0)
	for i := range pods {
		if p := &pods[i]; p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			running++
			for name, q := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}) {
				total := sum[name]
				total.Add(q)
				sum[name] = total
			}
		}
	}
	sum[v1.ResourcePods] = *resource.NewQuantity(running, resource.DecimalSI)
	var parts []string
	for name, of := range n.Status.Allocatable {
		if used, ok := sum[name]; ok {
			parts = append(parts, fmt.Sprintf("%s %s of %s", name, used.String(), of.String()))
		}
	}
	slices.Sort(parts)
	if len(parts) > 0 {
		fmt.Fprintf(w, "  requested: %s\n", plain.Text(strings.Join(parts, ", ")))
	}
}
