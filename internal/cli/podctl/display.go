package podctl

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/push"
)

// restartable reports whether an init container is a sidecar.
func restartable(p *v1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.Name == name {
			return pod.IsSidecar(c)
		}
	}
	return false
}

// serving returns the statuses of the containers that the READY column counts (main containers and sidecars), and the number
// of such containers.
func serving(p *v1.Pod) (statuses []v1.ContainerStatus, total int) {
	total = len(p.Spec.Containers)
	for _, s := range p.Status.InitContainerStatuses {
		if restartable(p, s.Name) {
			statuses = append(statuses, s)
		}
	}
	for i := range p.Spec.InitContainers {
		if restartable(p, p.Spec.InitContainers[i].Name) {
			total++
		}
	}
	return append(statuses, p.Status.ContainerStatuses...), total
}

// readyOf returns the READY column.
func readyOf(p *v1.Pod) string {
	statuses, total := serving(p)
	n := 0
	for i := range statuses {
		if statuses[i].Ready {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, total)
}

// statusOf returns the STATUS column, with the same words as kubectl.
func statusOf(p *v1.Pod) string {
	text := summaryOf(p)
	switch {
	case p.Status.Reason == removing:
		return removing
	case p.DeletionTimestamp != nil && p.Annotations[push.AnnotationStopped] != "" && !runsAny(p):
		return "Stopped"
	case p.DeletionTimestamp != nil:
		return "Terminating"
	}
	return text
}

// removing is the reason in the agent's status of a pod that no source has any more and that is not completely removed.
const removing = "Removing"

func runsAny(p *v1.Pod) bool {
	for s := range pod.BaseStatuses(&p.Status) {
		if s.State.Running != nil {
			return true
		}
	}
	return false
}

func summaryOf(p *v1.Pod) string {
	text := string(p.Status.Phase)
	if p.Status.Reason != "" {
		text = p.Status.Reason
	}
	if text == "" {
		text = string(v1.PodPending)
	}
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		if t := s.State.Terminated; t != nil && t.ExitCode == 0 || restartable(p, s.Name) && s.Started != nil && *s.Started {
			continue
		}
		return "Init:" + initText(s, i, len(p.Spec.InitContainers))
	}
	runs, completed := false, false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		s := &p.Status.ContainerStatuses[i]
		switch {
		case s.State.Waiting != nil && s.State.Waiting.Reason != "":
			text, completed = s.State.Waiting.Reason, false
		case s.State.Terminated != nil:
			text, completed = endText(s.State.Terminated), s.State.Terminated.ExitCode == 0
		case s.State.Running != nil:
			runs = true
		}
	}
	if completed && runs {
		text = "Running"
	}
	return text
}

func initText(s *v1.ContainerStatus, i, n int) string {
	switch {
	case s.State.Terminated != nil:
		return endText(s.State.Terminated)
	case s.State.Waiting != nil && s.State.Waiting.Reason != "" && s.State.Waiting.Reason != "PodInitializing":
		return s.State.Waiting.Reason
	}
	return fmt.Sprintf("%d/%d", i, n)
}

func endText(t *v1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

// restartsOf returns the RESTARTS column: the number of restarts, and the time since the last.
func restartsOf(p *v1.Pod, now time.Time) string {
	n := int32(0)
	var last time.Time
	for s := range pod.BaseStatuses(&p.Status) {
		n += s.RestartCount
		if t := s.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	if n == 0 || last.IsZero() {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d (%s ago)", n, duration.HumanDuration(now.Sub(last)))
}

func ageOf(t, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t))
}

// createdAt returns when a pod was created. A static pod has no creation time; for it, the result is when the node first saw
// the pod.
func createdAt(p *v1.Pod) time.Time {
	if !p.CreationTimestamp.IsZero() {
		return p.CreationTimestamp.Time
	}
	if p.Status.StartTime != nil {
		return p.Status.StartTime.Time
	}
	return time.Time{}
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

// portsOf returns the host's ports that lead to a pod.
func portsOf(p *v1.Pod) string {
	var out []string
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for _, port := range list[i].Ports {
				if port.HostPort == 0 {
					continue
				}
				at := strconv.Itoa(int(port.HostPort))
				if port.HostIP != "" && port.HostIP != "0.0.0.0" && port.HostIP != "::" {
					at = net.JoinHostPort(port.HostIP, at)
				}
				out = append(out, fmt.Sprintf("%s->%d/%s", at, port.ContainerPort, strings.ToLower(string(port.Protocol))))
			}
		}
	}
	return strings.Join(out, ",")
}

// writePods writes the table of wherry ps.
func writePods(w io.Writer, pods []v1.Pod, now time.Time, wide bool) error {
	t := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	header := "NAMESPACE\tNAME\tREADY\tSTATUS\tRESTARTS\tAGE\tIP"
	if wide {
		header += "\tPORTS\tSOURCE\tIMAGES"
	}
	fmt.Fprintln(t, header)
	for i := range pods {
		p := &pods[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s", plain.Text(p.Namespace), plain.Text(p.Name), readyOf(p), plain.Text(statusOf(p)), restartsOf(p, now), ageOf(createdAt(p), now), plain.Text(orNone(p.Status.PodIP)))
		if wide {
			from := p.Annotations[pod.AnnotationSource]
			if from == "" {
				from = pod.SourceAPI.String()
			}
			var images []string
			for j := range p.Spec.Containers {
				images = append(images, p.Spec.Containers[j].Image)
			}
			fmt.Fprintf(t, "\t%s\t%s\t%s", plain.Text(orNone(portsOf(p))), plain.Text(from), plain.Text(strings.Join(images, ",")))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// troubleOf returns the message of the first container that waits or has failed. Without such a container it returns the
// message of the pod's status.
func troubleOf(p *v1.Pod) string {
	for c := range pod.BaseStatuses(&p.Status) {
		s := &c.State
		switch {
		case s.Waiting != nil && s.Waiting.Message != "":
			return c.Name + ": " + s.Waiting.Message
		case s.Terminated != nil && s.Terminated.ExitCode != 0:
			text := fmt.Sprintf("%s: exit code %d", c.Name, s.Terminated.ExitCode)
			if s.Terminated.Message != "" {
				text += ": " + strings.TrimSpace(s.Terminated.Message)
			}
			return text
		}
	}
	return p.Status.Message
}

// completed reports whether a pod has run to its end. code is the exit code of the first container that failed, or 1 if only
// the pod failed, or 0.
func completed(p *v1.Pod) (done bool, code int) {
	if p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
		return false, 0
	}
	for s := range pod.BaseStatuses(&p.Status) {
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 && !restartable(p, s.Name) {
			return true, int(t.ExitCode)
		}
	}
	if p.Status.Phase == v1.PodFailed {
		return true, 1
	}
	return true, 0
}

// isReady reports whether a pod is ready.
func isReady(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
