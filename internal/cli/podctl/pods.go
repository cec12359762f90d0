package podctl

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

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/core/why"
)

// Streams are the input and outputs of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Target selects the agent and the namespace of pods.
type Target struct {
	Socket    string // "": WHERRY_SOCKET, then the default sockets
	Namespace string // "": any namespace, if only one has the name
}

// pod connects to the agent and finds a pod.
func (r *Target) pod(ctx context.Context, arg string) (*client, *v1.Pod, error) {
	c, err := openClient(ctx, r.Socket)
	if err != nil {
		return nil, nil, err
	}
	p, err := c.find(ctx, r.Namespace, arg)
	return c, p, err
}

// Ps lists the pods of the node.
type Ps struct {
	Target
	Format string // wide, json, yaml or name; "": a table
}

// Run lists the named pods, or all pods if names is empty.
func (r *Ps) Run(ctx context.Context, s Streams, names []string) error {
	if !slices.Contains([]string{"", "wide", "json", "yaml", "name"}, r.Format) {
		return fmt.Errorf("--output: %q is not one of wide, json, yaml, name", r.Format)
	}
	c, err := openClient(ctx, r.Socket)
	if err != nil {
		return err
	}
	pods, err := c.pods(ctx)
	if err != nil {
		return err
	}
	shown := slices.DeleteFunc(slices.Clone(pods), func(p v1.Pod) bool { return r.Namespace != "" && p.Namespace != r.Namespace })
	if len(names) > 0 {
		shown = nil
		for _, name := range names {
			p, err := findPod(pods, r.Namespace, name)
			if err != nil {
				return err
			}
			shown = append(shown, *p)
		}
	}
	if err := printNote(ctx, s.Err, c); err != nil {
		return err
	}
	if err := printPods(s.Out, s.Err, shown, r.Format); err != nil || r.Format != "" && r.Format != "wide" {
		return err
	}
	return printPulls(ctx, s.Err, c, shown)
}

// printPulls prints a line to errOut for each image pull on which one of the pods may wait.
func printPulls(ctx context.Context, errOut io.Writer, c *client, pods []v1.Pod) error {
	pulls, err := c.pulls(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	for i := range pulls {
		if p := &pulls[i]; slices.ContainsFunc(pods, func(pod v1.Pod) bool { return uses(&pod, p.Image) }) {
			fmt.Fprintln(errOut, pullText(p, now))
		}
	}
	return nil
}

// uses reports whether a container or an image volume of a pod uses an image, as the spec names it.
func uses(p *v1.Pod, image string) bool {
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		if slices.ContainsFunc(list, func(c v1.Container) bool { return c.Image == image }) {
			return true
		}
	}
	return slices.ContainsFunc(p.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool { return c.Image == image }) ||
		slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool { return v.Image != nil && v.Image.Reference == image })
}

// pullText returns the line about an image pull.
func pullText(p *why.Pull, now time.Time) string {
	image, since := plain.Text(p.Image), duration.HumanDuration(now.Sub(p.Began))
	switch arrived := p.Arrived(now); {
	case p.Queued:
		return fmt.Sprintf("Image %s waits since %s until one of %d other pulls has ended.", image, since, p.Running)
	case p.Stalled != "":
		return fmt.Sprintf("Pulling image %s since %s has stalled: %s.", image, since, plain.Text(p.Stalled))
	case arrived != "":
		return fmt.Sprintf("Pulling image %s since %s: %s.", image, since, arrived)
	default:
		return fmt.Sprintf("Pulling image %s since %s.", image, since)
	}
}

// printNote prints a line to errOut if the agent has started without its API server and knows the API's pods only from its record.
func printNote(ctx context.Context, errOut io.Writer, c *client) error {
	l, err := c.lastKnown(ctx)
	if note := l.note(); err == nil && note != "" {
		fmt.Fprintln(errOut, note)
	}
	return err
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
			fmt.Fprintf(out, "pod/%s\n", plain.Text(pods[i].Name))
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
	if format == "yaml" { // the encoding as YAML has escaped control characters in strings
		_, err = fmt.Fprintln(out, plain.Lines(strings.TrimRight(string(text), "\n")))
		return err
	}
	_, err = fmt.Fprintln(out, plain.JSON(strings.TrimRight(string(text), "\n")))
	return err
}

// containerOf returns the container that a command is about: the one of -c; or the pod's only one; or the one that the pod's
// annotation names; or the first, with a note on errOut.
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
	if named := p.Annotations["kubectl.kubernetes.io/default-container"]; asked == "" && slices.Contains(names, named) {
		asked = named // the name of no container has no effect, as for kubectl
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

// Logs prints the logs of containers.
type Logs struct {
	Target
	Container                    string
	Follow, Previous, Timestamps bool
	All                          bool  // show the logs of all containers; each line begins with the container's name
	Tail                         int64 // number of last lines; negative: all
	Since                        time.Duration
	SinceTime                    string
}

func (l *Logs) query() (url.Values, error) {
	q := url.Values{}
	for name, on := range map[string]bool{"follow": l.Follow, "previous": l.Previous, "timestamps": l.Timestamps} {
		if on {
			q.Set(name, "true")
		}
	}
	if l.Tail >= 0 {
		q.Set("tailLines", strconv.FormatInt(l.Tail, 10))
	}
	switch {
	case l.Since > 0 && l.SinceTime != "":
		return nil, errors.New("use either --since or --since-time")
	case l.Since > 0:
		q.Set("sinceSeconds", strconv.FormatInt(max(1, int64(l.Since.Seconds())), 10))
	case l.Since < 0:
		return nil, errors.New("--since: it must not be negative")
	case l.SinceTime != "":
		q.Set("sinceTime", l.SinceTime)
	}
	return q, nil
}

// Run prints the log of a pod.
func (l *Logs) Run(ctx context.Context, s Streams, pod string) error {
	q, err := l.query()
	if err != nil {
		return err
	}
	c, p, err := l.pod(ctx, pod)
	if err != nil {
		return err
	}
	if l.All {
		return allLogs(ctx, s.Out, c, p, q)
	}
	name, err := containerOf(p, l.Container, s.Err)
	if err != nil {
		return err
	}
	body, err := c.logs(ctx, p, name, q)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err = io.Copy(plain.Terminal(s.Out), body); ctx.Err() != nil {
		return ctx.Err()
	}
	return brokenOff(err)
}

// brokenOff says in plain words that a log has ended before its end.
func brokenOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the log has broken off, because the agent stops or cannot be reached: the container may run on")
	}
	return err
}

// allLogs prints the logs of all containers of a pod. If it follows them, it prints the lines of all containers as they come.
func allLogs(ctx context.Context, to io.Writer, c *client, p *v1.Pod, q url.Values) error {
	out := newLineWriter(plain.Terminal(to))
	var names []string
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			names = append(names, list[i].Name)
		}
	}
	errs := make(chan error, len(names))
	for _, name := range names {
		read := func() error {
			body, err := c.logs(ctx, p, name, q)
			if err != nil {
				return err
			}
			defer body.Close()
			return brokenOff(out.copy("["+name+"] ", body))
		}
		if q.Has("follow") {
			go func() { errs <- read() }()
		} else {
			errs <- read()
		}
	}
	var all []error
	for range names {
		if err := <-errs; err != nil && ctx.Err() == nil {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// pollEvery is how often a command checks what it waits for.
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

// ExitStatus is an error that only sets the exit status of the process. No error message is printed for it.
type ExitStatus int

// Error returns the status as text.
func (e ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// terminalOf returns the file descriptor if f is a terminal, or -1.
func terminalOf(f any) int {
	file, ok := f.(*os.File)
	if !ok || !isTerminal(int(file.Fd())) {
		return -1
	}
	return int(file.Fd())
}

// SayError prints why a command failed. The text may come from the agent, the runtime or a container.
func SayError(w io.Writer, err error) { fmt.Fprintln(w, "Error:", plain.Lines(err.Error())) }
