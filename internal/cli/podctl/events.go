package podctl

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/cli/plain"
)

// Events prints the events of the node.
type Events struct {
	Target
	Follow bool
	Format string // json or yaml; "": a table
}

// Run prints the events of one pod, whose name is of, or of all pods if of is "".
func (r *Events) Run(ctx context.Context, s Streams, of string) error {
	c, err := openClient(ctx, r.Socket)
	if err != nil {
		return err
	}
	if of != "" {
		if p, err := c.find(ctx, r.Namespace, of); err == nil { // a removed pod may have events too, so an error is no reason to stop
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
		switch {
		case !first && len(events) == 0: // the agent answers from time to time although nothing has happened
		case r.Format != "":
			if err := printObject(s.Out, v1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: events}, r.Format); err != nil {
				return err
			}
		default:
			if err := writeEvents(s.Out, events, time.Now(), first); err != nil {
				return err
			}
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
		if _, err := fmt.Fprintf(w, row, seen, plain.Text(e.Type), plain.Text(e.Reason), plain.Text(object), plain.Text(strings.TrimSpace(e.Message))); err != nil {
			return err
		}
	}
	return nil
}
