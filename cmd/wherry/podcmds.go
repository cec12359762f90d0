package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/internal/source"
)

// newPodCommands are those that speak with an agent over its socket.
func newPodCommands() []*cobra.Command {
	return []*cobra.Command{newRun(), newPs(), newLogs(), newExec(), newStop(), newRm(), newEvents(), newExplain()}
}

// reach is how a command finds its agent and its pods.
type reach struct{ socket, namespace string }

func (r *reach) flags(fs *pflag.FlagSet) {
	fs.StringVar(&r.socket, "socket", "", "the agent's control socket; default: WHERRY_SOCKET, then the usual places")
	fs.StringVarP(&r.namespace, "namespace", "n", "", "namespace of the pod; default: any in which there is one of the name")
}

// pod opens the agent and finds a pod.
func (r *reach) pod(ctx context.Context, arg string) (*client, *v1.Pod, error) {
	c, err := openClient(ctx, r.socket)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.find(ctx, r.namespace, arg)
	return c, p, err
}

func newPs() *cobra.Command {
	var r reach
	var format string
	cmd := &cobra.Command{
		Use: "ps [POD...]", Aliases: []string{"pods", "ls"},
		Short: "List the pods of the node",
		Example: "  wherry ps\n" +
			"  wherry ps -o wide\n" +
			"  wherry ps web -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "wide", "json", "yaml", "name"}, format) {
				return fmt.Errorf("--output: %q is not one of wide, json, yaml, name", format)
			}
			c, err := openClient(cmd.Context(), r.socket)
			if err != nil {
				return err
			}
			pods, err := c.pods(cmd.Context())
			if err != nil {
				return err
			}
			shown := slices.DeleteFunc(slices.Clone(pods), func(p v1.Pod) bool { return r.namespace != "" && p.Namespace != r.namespace })
			if len(args) > 0 {
				shown = nil
				for _, arg := range args {
					p, err := findPod(pods, r.namespace, arg)
					if err != nil {
						return err
					}
					shown = append(shown, *p)
				}
			}
			return printPods(cmd.OutOrStdout(), cmd.ErrOrStderr(), shown, format)
		},
	}
	r.flags(cmd.Flags())
	cmd.Flags().StringVarP(&format, "output", "o", "", "wide, json, yaml or name; default: a table")
	return cmd
}

func printPods(out, errOut io.Writer, pods []v1.Pod, format string) error {
	switch format {
	case "json", "yaml":
		list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: pods}
		if list.Items == nil {
			list.Items = []v1.Pod{}
		}
		return printObject(out, list, format)
	case "name":
		for i := range pods {
			fmt.Fprintf(out, "pod/%s\n", pods[i].Name)
		}
		return nil
	}
	if len(pods) == 0 {
		fmt.Fprintln(errOut, "No pods.")
		return nil
	}
	return writePods(out, pods, time.Now(), format == "wide")
}

func printObject(out io.Writer, obj any, format string) error {
	text, err := json.MarshalIndent(obj, "", "    ")
	if err == nil && format == "yaml" {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, strings.TrimRight(string(text), "\n"))
	return err
}

// containerOf chooses the container that a command without -c means: the pod's only one, the one that its annotation
// names, or the first, which is said.
func containerOf(p *v1.Pod, asked string, errOut io.Writer) (string, error) {
	var names []string
	for _, list := range [][]v1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			names = append(names, list[i].Name)
		}
	}
	for i := range p.Spec.EphemeralContainers {
		names = append(names, p.Spec.EphemeralContainers[i].Name)
	}
	if asked == "" {
		asked = p.Annotations["kubectl.kubernetes.io/default-container"]
	}
	switch {
	case asked != "" && slices.Contains(names, asked):
		return asked, nil
	case asked != "":
		return "", fmt.Errorf("container %q is not in pod %s; it has %s", asked, p.Name, strings.Join(names, ", "))
	case len(p.Spec.Containers) > 1:
		fmt.Fprintf(errOut, "Defaulted container %q out of: %s\n", names[0], strings.Join(names, ", "))
	}
	return names[0], nil
}

// logFlags are PodLogOptions.
type logFlags struct {
	container                    string
	follow, previous, timestamps bool
	all                          bool
	tail                         int64
	since                        time.Duration
	sinceTime                    string
}

func (l *logFlags) query() (url.Values, error) {
	q := url.Values{}
	for name, on := range map[string]bool{"follow": l.follow, "previous": l.previous, "timestamps": l.timestamps} {
		if on {
			q.Set(name, "true")
		}
	}
	if l.tail >= 0 {
		q.Set("tailLines", strconv.FormatInt(l.tail, 10))
	}
	switch {
	case l.since > 0 && l.sinceTime != "":
		return nil, errors.New("--since and --since-time: give one of them")
	case l.since > 0:
		q.Set("sinceSeconds", strconv.FormatInt(max(1, int64(l.since.Seconds())), 10))
	case l.since < 0:
		return nil, errors.New("--since: it must not be negative")
	case l.sinceTime != "":
		q.Set("sinceTime", l.sinceTime)
	}
	return q, nil
}

func newLogs() *cobra.Command {
	var r reach
	l := logFlags{tail: -1}
	cmd := &cobra.Command{
		Use: "logs POD [-c CONTAINER]", Short: "Print what a container has written", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := l.query()
			if err != nil {
				return err
			}
			c, p, err := r.pod(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if l.all {
				return allLogs(cmd, c, p, q)
			}
			name, err := containerOf(p, l.container, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			body, err := c.logs(cmd.Context(), p, name, q)
			if err != nil {
				return err
			}
			defer body.Close()
			if _, err = io.Copy(cmd.OutOrStdout(), body); cmd.Context().Err() != nil {
				return cmd.Context().Err()
			}
			return err
		},
	}
	fs := cmd.Flags()
	r.flags(fs)
	fs.StringVarP(&l.container, "container", "c", "", "the container")
	fs.BoolVarP(&l.follow, "follow", "f", false, "go on printing until the container ends")
	fs.BoolVarP(&l.previous, "previous", "p", false, "of the instance before the last restart")
	fs.BoolVar(&l.timestamps, "timestamps", false, "begin each line with its time")
	fs.BoolVar(&l.all, "all-containers", false, "of all containers, each line with its container's name")
	fs.Int64Var(&l.tail, "tail", -1, "only the last lines; -1: all")
	fs.DurationVar(&l.since, "since", 0, "only lines younger than this (5s, 2m, 3h)")
	fs.StringVar(&l.sinceTime, "since-time", "", "only lines after this time (RFC 3339)")
	return cmd
}

// allLogs prints the logs of all containers of a pod beside each other.
func allLogs(cmd *cobra.Command, c *client, p *v1.Pod, q url.Values) error {
	out := newLineWriter(cmd.OutOrStdout())
	var names []string
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			names = append(names, list[i].Name)
		}
	}
	errs := make(chan error, len(names))
	for _, name := range names {
		read := func() error {
			body, err := c.logs(cmd.Context(), p, name, q)
			if err != nil {
				return err
			}
			defer body.Close()
			return out.copy("["+name+"] ", body)
		}
		if q.Has("follow") {
			go func() { errs <- read() }()
		} else {
			errs <- read()
		}
	}
	var all []error
	for range names {
		if err := <-errs; err != nil && cmd.Context().Err() == nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// graceFlag is --grace: -1 is the pod's own.
func graceFlag(fs *pflag.FlagSet, to *int64) {
	fs.Int64VarP(to, "grace", "t", -1, "seconds that containers get to end; -1: what the pod's manifest says")
}

func graceArg(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}

// settled waits until done says so of each pod, and prints its name then.
func settled(ctx context.Context, c *client, out io.Writer, pods []*v1.Pod, done func(p *v1.Pod, err error) (bool, error)) error {
	for _, p := range pods {
		for {
			now, err := c.pod(ctx, p.Namespace, p.Name)
			ok, err := done(now, err)
			if err != nil {
				return err
			}
			if ok {
				break
			}
			if err := sleep(ctx, pollEvery); err != nil {
				return err
			}
		}
		fmt.Fprintln(out, p.Name)
	}
	return nil
}

// pollEvery is how often a command looks again at what it waits for.
const pollEvery = 200 * time.Millisecond

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// gone is what rm waits for: nothing is left.
func gone(_ *v1.Pod, err error) (bool, error) {
	if isNotFound(err) {
		return true, nil
	}
	return false, err
}

// ended is what stop waits for: nothing runs.
func ended(p *v1.Pod, err error) (bool, error) {
	if err != nil {
		return gone(p, err)
	}
	return !runsAny(p) && p.DeletionTimestamp != nil, nil
}

func (r *reach) several(ctx context.Context, args []string) (*client, []*v1.Pod, error) {
	c, err := openClient(ctx, r.socket)
	if err != nil {
		return nil, nil, err
	}
	all, err := c.pods(ctx)
	if err != nil {
		return nil, nil, err
	}
	var pods []*v1.Pod
	var errs []error
	for _, arg := range args {
		p, err := findPod(all, r.namespace, arg)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		pods = append(pods, p)
	}
	return c, pods, errors.Join(errs...) // all or none
}

func newStop() *cobra.Command {
	var r reach
	var grace int64
	var noWait bool
	cmd := &cobra.Command{
		Use: "stop POD...", Short: "End pods and keep them, for their logs", Args: cobra.MinimumNArgs(1),
		Long: "End pods: their containers get their hooks, the signal to end and the grace period. A stopped pod stays in the list\n" +
			"and its logs can be read, until \"wherry rm\" removes it or \"wherry run\" runs it anew. It stays stopped when the\n" +
			"agent is started again.",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, pods, err := r.several(cmd.Context(), args)
			if err != nil {
				return err
			}
			for _, p := range pods {
				if err := c.end(cmd.Context(), p, graceArg(grace), false); err != nil {
					return err
				}
			}
			if noWait {
				return nil
			}
			return settled(cmd.Context(), c, cmd.OutOrStdout(), pods, ended)
		},
	}
	r.flags(cmd.Flags())
	graceFlag(cmd.Flags(), &grace)
	cmd.Flags().BoolVar(&noWait, "no-wait", false, "do not wait for the end")
	return cmd
}

func newRm() *cobra.Command {
	var r reach
	var grace int64
	var noWait, force, all bool
	cmd := &cobra.Command{
		Use: "rm POD...", Short: "Remove pods without trace", Aliases: []string{"delete"},
		Long: "Remove pods that have ended or been stopped: containers, logs, volumes, and the ConfigMaps and Secrets that came with\n" +
			"them and with no other pod. A pod that runs is removed with --force only: it is ended first, with its grace period.\n" +
			"configmap/NAME and secret/NAME remove what was pushed by itself.",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if all == (len(args) > 0) {
				return errors.New("name the pods to remove, or give --all")
			}
			args, objects := splitObjects(args)
			if all {
				c, err := openClient(ctx, r.socket)
				if err != nil {
					return err
				}
				pods, err := c.pods(ctx)
				if err != nil {
					return err
				}
				for i := range pods {
					if pods[i].Annotations["kubernetes.io/config.source"] == "push" && (r.namespace == "" || r.namespace == pods[i].Namespace) {
						args = append(args, pods[i].Namespace+"/"+pods[i].Name)
					}
				}
			}
			c, pods, err := r.several(ctx, args)
			if err != nil {
				return err
			}
			for _, o := range objects {
				if err := removeObject(ctx, c, r.namespace, o); err != nil {
					return err
				}
				fmt.Fprintln(cmd.OutOrStdout(), o)
			}
			for _, p := range pods {
				if runsAny(p) && !force {
					return fmt.Errorf("pod %s runs: stop it first (wherry stop %s), or remove it with --force", p.Name, p.Name)
				}
			}
			for _, p := range pods {
				if err := c.end(ctx, p, graceArg(grace), true); err != nil {
					return err
				}
			}
			if noWait {
				return nil
			}
			return settled(ctx, c, cmd.OutOrStdout(), pods, gone)
		},
	}
	r.flags(cmd.Flags())
	graceFlag(cmd.Flags(), &grace)
	fs := cmd.Flags()
	fs.BoolVar(&force, "force", false, "also pods that run")
	fs.BoolVarP(&all, "all", "a", false, "all pods that were pushed")
	fs.BoolVar(&noWait, "no-wait", false, "do not wait for the end")
	return cmd
}

// splitObjects takes the names of ConfigMaps and Secrets out of names of pods.
func splitObjects(args []string) (pods, objects []string) {
	for _, a := range args {
		kind, _, ok := strings.Cut(a, "/")
		if ok && (kind == "configmap" || kind == "secret") {
			objects = append(objects, a)
			continue
		}
		pods = append(pods, a)
	}
	return pods, objects
}

// removeObject removes configmap/NAME or configmap/NAMESPACE/NAME.
func removeObject(ctx context.Context, c *client, namespace, arg string) error {
	kind, name, _ := strings.Cut(arg, "/")
	if ns, n, ok := strings.Cut(name, "/"); ok {
		namespace, name = ns, n
	}
	if namespace == "" {
		namespace = v1.NamespaceDefault
	}
	return c.ask(ctx, http.MethodDelete, "/"+kind+"s/"+namespace+"/"+name, nil, nil, &source.PushAnswer{})
}

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
		if _, err := fmt.Fprintf(w, row, seen, e.Type, e.Reason, object, strings.TrimSpace(e.Message)); err != nil {
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.At.Format("15:04:05.000"), r.Kind, r.What, took, strings.TrimSpace(why))
	}
	return t.Flush()
}

// exitStatus ends the process with a status of its own. Nothing is printed.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// terminal is the terminal that a file is, or -1.
func terminalOf(f any) int {
	file, ok := f.(*os.File)
	if !ok || !isTerminal(int(file.Fd())) {
		return -1
	}
	return int(file.Fd())
}
