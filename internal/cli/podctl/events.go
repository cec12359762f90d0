package podctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Events prints the events of the node.
type Events struct {
	Target
	Follow bool
	Format string // json or yaml; "": a table
}

// Run prints the events of a pod; "": of all pods.
func (r *Events) Run(ctx context.Context, s Streams, of string) error {
	c, err := openClient(ctx, r.Socket)
	if err != nil {
		return err
	}
	if of != "" {
		if p, err := c.find(ctx, r.Namespace, of); err == nil { // a pod that is gone may have events too
			of = p.Name
		}
	}
	first, after := true, ""
	for {
		events, next, err := c.events(ctx, after, 30*time.Second)
		if err != nil {
			return err
		}
		events = slices.DeleteFunc(events, func(e v1.Event) bool {
			return of != "" && e.InvolvedObject.Name != of || r.Namespace != "" && e.InvolvedObject.Namespace != r.Namespace
		})
		if r.Format != "" {
			if err := printObject(s.Out, v1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: events}, r.Format); err != nil {
				return err
			}
		} else if err := writeEvents(s.Out, events, time.Now(), first); err != nil {
			return err
		}
		if first, after = false, next; !r.Follow {
			return nil
		}
	}
}

// writeEvents writes a table. Its columns have fixed widths, so that later rows are aligned with earlier ones.
func writeEvents(w io.Writer, events []v1.Event, now time.Time, header bool) error {
	const row = "%-10s %-8s %-22s %-32s %s\n"
	if header {
		if _, err := fmt.Fprintf(w, row, "LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"); err != nil {
			return err
		}
	}
	for i := range events {
		e := &events[i]
		seen := ageOf(e.LastTimestamp.Time, now)
		if e.Count > 1 {
			seen += fmt.Sprintf(" (x%d)", e.Count)
		}
		object := strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
		if _, container, ok := strings.Cut(strings.TrimSuffix(e.InvolvedObject.FieldPath, "}"), "{"); ok {
			object += " [" + container + "]"
		}
		if _, err := fmt.Fprintf(w, row, seen, plain(e.Type), plain(e.Reason), plain(object), plain(strings.TrimSpace(e.Message))); err != nil {
			return err
		}
	}
	return nil
}

// Explain prints the decisions about a pod with their reasons.
type Explain struct {
	Target
	Format string // json or yaml; "": a table
}

// Run prints the decisions about a pod.
func (r *Explain) Run(ctx context.Context, s Streams, pod string) error {
	c, p, err := r.pod(ctx, pod)
	if err != nil {
		return err
	}
	e, err := c.explain(ctx, p)
	if err != nil {
		return err
	}
	if r.Format != "" {
		return printObject(s.Out, e, r.Format)
	}
	return writeExplanation(s.Out, e)
}

func writeExplanation(w io.Writer, e explanation) error {
	if e.Inspection != "" {
		fmt.Fprintf(w, "what runs of it is not known: %q\n", e.Inspection)
	}
	if e.Dropped > 0 {
		fmt.Fprintf(w, "(%d older records are not kept)\n", e.Dropped)
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.At.Format("15:04:05.000"), r.Kind, plain(r.What), took, plain(strings.TrimSpace(why)))
	}
	return t.Flush()
}
