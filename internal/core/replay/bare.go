package replay

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// leftOut stands in an exported turn for a text that could contain a secret, where decisions depend on whether there is a text at all.
const leftOut = "(left out)"

// keptAnnotations is the prefix of the annotations that an exported turn keeps. Decisions depend on them: they name the source of the pod.
const keptAnnotations = "kubernetes.io/config."

// bare returns a copy of a pod without the fields that may contain secrets.
func bare(p *v1.Pod) *v1.Pod {
	if p == nil {
		return nil
	}
	in := p.DeepCopy()
	out := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Namespace, Name: in.Name, UID: in.UID, Generation: in.Generation, ResourceVersion: in.ResourceVersion,
			CreationTimestamp: in.CreationTimestamp, DeletionTimestamp: in.DeletionTimestamp, DeletionGracePeriodSeconds: in.DeletionGracePeriodSeconds,
		},
		Spec: in.Spec, Status: in.Status,
	}
	for k, v := range in.Annotations {
		if strings.HasPrefix(k, keptAnnotations) {
			if out.Annotations == nil {
				out.Annotations = map[string]string{}
			}
			out.Annotations[k] = v
		}
	}
	s := &out.Spec
	s.ImagePullSecrets, s.HostAliases, s.Affinity, s.Tolerations, s.NodeSelector = nil, nil, nil, nil, nil
	for i := range s.Volumes {
		v := &s.Volumes[i]
		*v = v1.Volume{Name: v.Name, VolumeSource: v1.VolumeSource{Image: v.Image}}
	}
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			bareContainer(&list[i])
		}
	}
	for i := range s.EphemeralContainers {
		c := v1.Container(s.EphemeralContainers[i].EphemeralContainerCommon)
		bareContainer(&c)
		s.EphemeralContainers[i].EphemeralContainerCommon = v1.EphemeralContainerCommon(c)
	}
	bareStatus(&out.Status)
	return out
}

// bareContainer removes the fields of a container that may contain secrets.
func bareContainer(c *v1.Container) {
	c.Command, c.Args, c.EnvFrom = nil, nil, nil
	for i := range c.Env {
		c.Env[i] = v1.EnvVar{Name: c.Env[i].Name}
	}
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			bareAction(p.Exec, p.HTTPGet)
		}
	}
	if l := c.Lifecycle; l != nil {
		for _, h := range []*v1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil {
				bareAction(h.Exec, h.HTTPGet)
			}
		}
	}
}

// bareAction removes the command or the headers of a probe or hook.
func bareAction(exec *v1.ExecAction, get *v1.HTTPGetAction) {
	if exec != nil {
		exec.Command = []string{leftOut}
	}
	if get != nil {
		get.HTTPHeaders, get.Path = nil, ""
	}
}

// bareStatus removes all messages from a pod's status, because some are written by containers and may contain secrets.
func bareStatus(s *v1.PodStatus) {
	s.Message = ""
	for i := range s.Conditions {
		s.Conditions[i].Message = ""
	}
	for one := range pod.Statuses(s) {
		for _, state := range []*v1.ContainerState{&one.State, &one.LastTerminationState} {
			if state.Waiting != nil {
				state.Waiting.Message = ""
			}
			if state.Terminated != nil {
				state.Terminated.Message = ""
			}
		}
	}
}

// silent returns a copy of an inspection without the termination messages of containers, which may contain secrets.
func silent(o *pod.Observed) *pod.Observed {
	if o == nil {
		return &pod.Observed{}
	}
	out := &pod.Observed{Ref: o.Ref, Began: o.Began}
	out.Sandboxes = append([]pod.Sandbox(nil), o.Sandboxes...)
	for i := range o.Containers {
		c := o.Containers[i]
		if c.Said != nil {
			c.Said = pod.SaidOf(c.Said.Reason, "")
		}
		out.Containers = append(out.Containers, c)
	}
	return out
}
