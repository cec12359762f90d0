package agent

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/why"
	"github.com/wherry-node/wherry/internal/edge/server/crilog"
)

// These limit the last output of a container that is part of an explanation: its lines, its bytes, and the time to read it.
const (
	outputLines  = 3
	outputBytes  = 2 << 10
	outputWithin = time.Second
)

// mostNear is the maximum number of pods with similar names that nearest returns.
const mostNear = 3

// lastOutput returns the last lines in the log of a container instance of a pod; none if the log cannot be read.
func (a *Agent) lastOutput(ctx context.Context, uid types.UID, id string) []string {
	o, _ := a.pleg.Get(uid)
	path := ""
	for i := range o.Containers {
		if o.Containers[i].ID == id {
			path = o.Containers[i].LogPath
		}
	}
	if path == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, outputWithin)
	defer cancel()
	var text bytes.Buffer
	lines, limit := int64(outputLines), int64(outputBytes)
	if err := crilog.Read(ctx, path, crilog.Options{Tail: &lines, Limit: &limit}, &text); err != nil {
		return nil // the log is gone or is not a log; the answer then contains no output
	}
	return strings.Split(strings.TrimRight(text.String(), "\n"), "\n")
}

// oomKilled reports whether a container of the pod was killed because it exceeded a memory limit (reason OOMKilled).
func oomKilled(s *v1.PodStatus) bool {
	for st := range pod.BaseStatuses(s) {
		for _, end := range []*v1.ContainerStateTerminated{st.State.Terminated, st.LastTerminationState.Terminated} {
			if end != nil && end.Reason == "OOMKilled" {
				return true
			}
		}
	}
	return false
}

// notHere says that a pod is not on this node: on which node it is, if the API server says so, or which pods have similar names.
func (a *Agent) notHere(ctx context.Context, view *podView, namespace, name string) string {
	text := fmt.Sprintf("pod %s/%s is not on this node", namespace, name)
	if a.deps.Client != nil {
		ctx, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		p, err := a.clients.api.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err != nil: // the API server may let a node read its own pods only
		case p.Spec.NodeName != "" && p.Spec.NodeName != a.cfg.NodeName:
			return fmt.Sprintf("%s; it is on node %s: wherry why -n %s %s asks that node", text, p.Spec.NodeName, namespace, name)
		case p.Spec.NodeName == "":
			return text + "; no node has been chosen for it: kubectl describe pod -n " + namespace + " " + name
		}
	}
	near := nearest(view.List(), name)
	if len(near) == 0 {
		return text + ", which has no pods"
	}
	return text + "; the pods of this node with the most similar names: " + strings.Join(near, ", ")
}

// nearest returns the pods whose names are the most similar to name (POD or NAMESPACE/POD), as NAMESPACE/POD, the most similar one first.
func nearest(pods []*v1.Pod, name string) []string {
	names := make([]string, len(pods))
	for i, p := range pods {
		names[i] = p.Namespace + "/" + p.Name
	}
	near := why.Nearest(names, name[strings.IndexByte(name, '/')+1:])
	return near[:min(len(near), mostNear)]
}
