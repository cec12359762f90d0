package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// newPodCommands are those that speak with an agent over its socket.
func newPodCommands() []*cobra.Command {
	return []*cobra.Command{newRun(), newPs(), newLogs(), newExec(), newAttach(), newStop(), newRm(), newEvents(), newExplain()}
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
			fmt.Fprintf(out, "pod/%s\n", plain(pods[i].Name))
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
	if format == "yaml" { // its strings have no control character left
		_, err = fmt.Fprintln(out, plainLines(strings.TrimRight(string(text), "\n")))
		return err
	}
	_, err = fmt.Fprintln(out, plainJSON(strings.TrimRight(string(text), "\n")))
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
			if _, err = io.Copy(plainTerminal(cmd.OutOrStdout()), body); cmd.Context().Err() != nil {
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
	out := newLineWriter(plainTerminal(cmd.OutOrStdout()))
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
