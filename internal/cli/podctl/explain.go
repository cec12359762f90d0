package podctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/core/replay"
	"github.com/wherry-node/wherry/internal/core/why"
)

// Explain prints why a pod is in its state.
type Explain struct {
	Target
	// All makes Run also print the timeline of the pod. Without a pod, it makes Run also print the pods that are well.
	All bool
	// Watch prints the explanation again whenever it changes, until the pod is well.
	Watch bool
	// Export prints the present turn of the pod, for wherry replay, instead of the explanation.
	Export bool
	// Recorded prints the turns of the pod that an agent recorded because something went wrong. It reads the disk and needs no agent.
	// Root is the root directory of the agent; "": the usual ones.
	Recorded bool
	Root     string
	Format   string // json or yaml; "": text
}

// watchEvery is how often Watch asks the agent.
const watchEvery = time.Second

// Run prints why the pod is in its state. If pod is "", it explains all pods that are not well. If pod is "node", it explains the node's
// state. (Use pod/node for a pod that is named node.)
func (r *Explain) Run(ctx context.Context, s Streams, pod string) error {
	switch {
	case r.Recorded && (r.Watch || r.All || r.Export):
		return errors.New("--recorded excludes --watch, --all and --export")
	case r.Recorded:
		return r.recorded(s, pod)
	case r.Root != "":
		return errors.New("--root-dir needs --recorded")
	case (pod == "" || pod == "node") && (r.Watch || r.Export):
		return errors.New("--watch and --export need a pod")
	case r.Export && (r.Watch || r.All || r.Format != ""):
		return errors.New("--export excludes --watch, --all and --output")
	case pod == "":
		return r.all(ctx, s)
	case pod == "node":
		return r.node(ctx, s)
	}
	c, p, err := r.pod(ctx, pod)
	if err != nil {
		return r.elsewhere(ctx, c, pod, err)
	}
	if r.Export {
		body, err := c.turn(ctx, p)
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.Copy(s.Out, io.LimitReader(body, replay.MaxBytes))
		return err
	}
	said := ""
	for {
		e, err := c.explain(ctx, p)
		if err != nil {
			return err
		}
		if key := string(e.Answer.Cause) + e.Answer.Line; key != said {
			said = key
			if err := r.print(s.Out, e); err != nil {
				return err
			}
		}
		if !r.Watch || e.Answer.Level == why.Well {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchEvery):
		}
	}
}

// elsewhere returns what the agent says about a pod that is not on its node, for example on which node the pod is. It returns err if the
// agent says nothing.
func (r *Explain) elsewhere(ctx context.Context, c *client, arg string, err error) error {
	if c == nil {
		return err
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(r.Namespace, v1.NamespaceDefault), Name: arg}}
	if namespace, name, ok := strings.Cut(arg, "/"); ok {
		p.Namespace, p.Name = namespace, name
	}
	if len(validation.IsDNS1123Subdomain(p.Name)) > 0 || len(validation.IsDNS1123Label(p.Namespace)) > 0 {
		return err
	}
	if _, answer := c.explain(ctx, p); isNotFound(answer) {
		return answer
	}
	return err
}

func (r *Explain) print(w io.Writer, e explanation) error {
	if r.Format != "" {
		return printObject(w, e, r.Format)
	}
	if e.Answer.Cause != "" { // an older agent sends the timeline but no answer
		if err := writeAnswer(w, e, time.Now()); err != nil || !r.All {
			return err
		}
		fmt.Fprintln(w)
	}
	return writeRecord(w, e)
}

// all prints the explanations of the node's pods. Those of pods in trouble are first.
func (r *Explain) all(ctx context.Context, s Streams) error {
	c, err := openClient(ctx, r.Socket)
	if err != nil {
		return err
	}
	answers, err := c.explainAll(ctx)
	if err != nil {
		return err
	}
	if err := printNote(ctx, s.Err, c); err != nil {
		return err
	}
	var list []explanation
	asked := 0 // number of pods in the namespace that the user asked about
	for _, e := range answers {
		if r.Namespace != "" && e.Namespace != r.Namespace {
			continue
		}
		asked++
		if r.All || e.Answer.Level != why.Well {
			list = append(list, e)
		}
	}
	if r.Format != "" {
		return printObject(s.Out, list, r.Format)
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(s.Out, allWell(asked, r.Namespace))
		return err
	}
	now := time.Now()
	t := tabwriter.NewWriter(s.Out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "POD\tCAUSE\tSINCE\tNEXT\tWHY")
	for _, e := range list {
		a := &e.Answer
		next := ""
		if !a.NextAt.IsZero() {
			next = "in " + until(a.NextAt, now)
		}
		fmt.Fprintf(t, "%s/%s\t%s\t%s\t%s\t%s\n", plain.Text(e.Namespace), plain.Text(e.Name), plain.Text(string(a.Cause)), sinceText(a.Since, now), next, plain.Text(a.Line))
	}
	return t.Flush()
}

// allWell returns the text for the case that all n pods of the node, or of a namespace on it, are well.
func allWell(n int, namespace string) string {
	of := "the node"
	if namespace != "" {
		of = fmt.Sprintf("namespace %q on the node", namespace)
	}
	switch n {
	case 0:
		return "There are no pods of " + of + "."
	case 1:
		return "The one pod of " + of + " is well."
	}
	return fmt.Sprintf("All %d pods of %s are well.", n, of)
}

// maxFacts is how many facts, and how many pieces of advice, an answer shows at most, so that the answer has at most 12
// lines.
const maxFacts = 4

// writeAnswer prints why a pod is in its state. The first line says what is wrong. At most eleven more lines say since when, what comes
// next, what the evidence is, and what the user can do. A node that has started without its API server adds up to five lines.
func writeAnswer(w io.Writer, e explanation, now time.Time) error {
	a := &e.Answer
	fmt.Fprintf(w, "%s/%s: %s\n", plain.Text(e.Namespace), plain.Text(e.Name), plain.Text(a.Line))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "  cause\t%s\n", plain.Text(string(a.Cause)))
	if !a.Since.IsZero() {
		fmt.Fprintf(t, "  since\t%s ago (%s)\n", duration.HumanDuration(now.Sub(a.Since)), a.Since.Local().Format("15:04:05"))
	}
	switch {
	case !a.NextAt.IsZero():
		fmt.Fprintf(t, "  next\tin %s: %s\n", until(a.NextAt, now), plain.Text(a.Next))
	case a.Next != "":
		fmt.Fprintf(t, "  next\t%s\n", plain.Text(a.Next))
	}
	if e.LastKnown != nil {
		fmt.Fprintf(t, "  offline\tthe API server has not answered since this agent started: the pod is as last known at %s\n", e.LastKnown.Local().Format(time.RFC3339))
	}
	for _, text := range e.Expired[:min(len(e.Expired), maxFacts)] {
		fmt.Fprintf(t, "  expired\t%s\n", plain.Text(text))
	}
	for _, f := range a.Facts[:min(len(a.Facts), maxFacts)] {
		what, text, _ := strings.Cut(f, ": ")
		fmt.Fprintf(t, "  %s\t%s\n", plain.Text(what), plain.Text(text))
	}
	for _, d := range a.Do[:min(len(a.Do), maxFacts)] {
		fmt.Fprintf(t, "  do\t%s\n", plain.Text(d))
	}
	return t.Flush()
}

// until returns the time from now until at, as text. If at is in the past, it returns the text for 0.
func until(at, now time.Time) string {
	return duration.HumanDuration(max(0, at.Sub(now)))
}

// sinceText returns the time from at until now, as text; "" if at is zero.
func sinceText(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return duration.HumanDuration(now.Sub(at))
}

// writeRecord prints every decision of the node about a pod.
func writeRecord(w io.Writer, e explanation) error {
	if e.Dropped > 0 {
		before := ""
		if len(e.Records) > 0 {
			before = ", from before " + e.Records[0].At.Format("2006-01-02 15:04:05") + ","
		}
		fmt.Fprintf(w, "(%d older records%s are not kept)\n", e.Dropped, before)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "TIME\tKIND\tWHAT\tTOOK\tWHY")
	for _, r := range e.Records {
		why := r.Why
		if r.Cause != "" {
			why += " (" + r.Cause + ")"
		}
		if r.Error != "" {
			why = strings.TrimPrefix(why+": "+r.Error, ": ")
		}
		took := ""
		if r.Took > 0 {
			took = r.Took.Round(time.Millisecond).String()
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.At.Format("15:04:05.000"), r.Kind, plain.Text(r.What), took, plain.Text(strings.TrimSpace(why)))
	}
	return t.Flush()
}
