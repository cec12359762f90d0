package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newEvents() *cobra.Command {
	var r reach
	var follow bool
	var format string
	cmd := &cobra.Command{
		Use: "events [POD]", Short: "Print what has happened on the node", Args: cobra.MaximumNArgs(1),
		Long: "Print the events of the node's pods and of the node itself, oldest first. The agent of a standalone node keeps the\n" +
			"newest; those of a node in a cluster are in its API server.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, out := cmd.Context(), cmd.OutOrStdout()
			c, err := openClient(ctx, r.socket)
			if err != nil {
				return err
			}
			var of string
			if len(args) > 0 {
				of = args[0]
				if p, err := c.find(ctx, r.namespace, of); err == nil { // one that is gone may have events too
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
					return of != "" && e.InvolvedObject.Name != of || r.namespace != "" && e.InvolvedObject.Namespace != r.namespace
				})
				if format != "" {
					if err := printObject(out, v1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: events}, format); err != nil {
						return err
					}
				} else if err := writeEvents(out, events, time.Now(), first); err != nil {
					return err
				}
				if first, after = false, next; !follow {
					return nil
				}
			}
		},
	}
	r.flags(cmd.Flags())
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on as more happens")
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml; default: a table")
	return cmd
}

// writeEvents writes a table. Its columns have fixed widths, so that rows that follow stand below those before.
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

func newExplain() *cobra.Command {
	var r reach
	var format string
	cmd := &cobra.Command{
		Use: "explain POD", Short: "Say why a pod is where it is: every decision, with its cause and reason", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, p, err := r.pod(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			e, err := c.explain(cmd.Context(), p)
			if err != nil {
				return err
			}
			if format != "" {
				return printObject(cmd.OutOrStdout(), e, format)
			}
			return writeExplanation(cmd.OutOrStdout(), e)
		},
	}
	r.flags(cmd.Flags())
	cmd.Flags().StringVarP(&format, "output", "o", "", "json or yaml; default: a table")
	return cmd
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
