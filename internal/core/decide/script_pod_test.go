package decide_test

import (
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// define builds the pod: "pod restartPolicy=Never grace=30", "main app postStart preStop startup".
func (s *story) define(f []string) {
	if f[0] == "pod" {
		s.pod = &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u"},
			Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways},
		}
		s.inspect()
		for _, opt := range f[1:] {
			s.podOption(opt)
		}
		return
	}
	c := v1.Container{Name: f[1], Image: "img/" + f[1]}
	s.hashes[c.Name] = specHash(c.Image)
	for _, opt := range f[2:] {
		s.containerOption(&c, opt)
	}
	switch f[0] {
	case "init":
		s.pod.Spec.InitContainers = append(s.pod.Spec.InitContainers, c)
	case "sidecar":
		always := v1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
		s.pod.Spec.InitContainers = append(s.pod.Spec.InitContainers, c)
	case "main":
		s.pod.Spec.Containers = append(s.pod.Spec.Containers, c)
	case "ephemeral":
		s.pod.Spec.EphemeralContainers = append(s.pod.Spec.EphemeralContainers, v1.EphemeralContainer{
			EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: c.Name, Image: c.Image},
		})
	}
}

func (s *story) podOption(opt string) {
	key, val, _ := strings.Cut(opt, "=")
	n, _ := strconv.ParseInt(val, 10, 64)
	switch key {
	case "restartPolicy":
		s.pod.Spec.RestartPolicy = v1.RestartPolicy(val)
	case "grace":
		s.pod.Spec.TerminationGracePeriodSeconds = &n
	case "activeDeadline":
		s.pod.Spec.ActiveDeadlineSeconds = &n
	case "static":
		s.pod.Annotations = map[string]string{pod.AnnotationSource: pod.SourceFile.String()}
	case "hostNetwork":
		s.pod.Spec.HostNetwork = true
	case "phase":
		s.pod.Status.Phase = v1.PodPhase(val)
	case "keep":
		s.pol.DeadContainersPerContainer = int(n)
	case "keepAge":
		s.pol.DeadContainerAge = time.Duration(n) * time.Second
	case "notAdmitted":
		s.mem.Admitted, s.saved.Admitted = false, false
	default:
		s.Fail("unknown pod option %q", opt)
	}
}

func (s *story) containerOption(c *v1.Container, opt string) {
	key, val, _ := strings.Cut(opt, "=")
	hook := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}
	if c.Lifecycle == nil && (key == "postStart" || key == "preStop") {
		c.Lifecycle = &v1.Lifecycle{}
	}
	switch key {
	case "postStart":
		c.Lifecycle.PostStart = hook
	case "preStop":
		c.Lifecycle.PreStop = hook
	case "startup":
		c.StartupProbe = &v1.Probe{}
		if n, err := strconv.ParseInt(val, 10, 64); err == nil {
			c.StartupProbe.TerminationGracePeriodSeconds = &n
		}
	case "liveness":
		c.LivenessProbe = &v1.Probe{}
		if n, err := strconv.ParseInt(val, 10, 64); err == nil {
			c.LivenessProbe.TerminationGracePeriodSeconds = &n
		}
	case "restartPolicy":
		p := v1.ContainerRestartPolicy(val)
		c.RestartPolicy = &p
	case "restartOn", "restartOnNot", "restartAllOn": // for example restartOn=3: val is the exit code of the rule
		n, _ := strconv.ParseInt(val, 10, 32)
		action := v1.ContainerRestartRuleActionRestart
		if key == "restartAllOn" {
			action = v1.ContainerRestartRuleActionRestartAllContainers
		}
		op := v1.ContainerRestartRuleOnExitCodesOpIn
		if key == "restartOnNot" {
			op = v1.ContainerRestartRuleOnExitCodesOpNotIn
		}
		c.RestartPolicyRules = append(c.RestartPolicyRules, v1.ContainerRestartRule{
			Action: action,
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{
				Operator: op, Values: []int32{int32(n)},
			},
		})
	case "cpu", "memory": // cpu=100m/200m: request and limit
		s.sized = true
		setResource(&c.Resources, v1.ResourceName(key), val)
	case "restartFor": // a resize of this resource restarts the container
		c.ResizePolicy = append(c.ResizePolicy, v1.ContainerResizePolicy{ResourceName: v1.ResourceName(val), RestartPolicy: v1.RestartContainer})
	default:
		s.Fail("unknown container option %q", opt)
	}
}

// setResource sets a container's request and limit of a resource: to 100m and 200m for "100m/200m", and both to 100m for "100m".
func setResource(r *v1.ResourceRequirements, name v1.ResourceName, val string) {
	request, limit, ok := strings.Cut(val, "/")
	if !ok {
		limit = request
	}
	set := func(list *v1.ResourceList, q string) {
		out := v1.ResourceList{name: resource.MustParse(q)}
		for n, q := range *list {
			if n != name {
				out[n] = q
			}
		}
		*list = out
	}
	set(&r.Requests, request)
	set(&r.Limits, limit)
}

// resize carries out the command "resize app cpu=2 memory=64/128": the spec of app has these resources, and the node has accepted them.
func (s *story) resize(f []string) {
	p := s.pod.DeepCopy()
	p.Generation++
	s.pod = p
	for _, opt := range f[2:] {
		name, val, _ := strings.Cut(opt, "=")
		setResource(&s.spec(f[1]).Resources, v1.ResourceName(name), val)
	}
	s.mem.Allocated = pod.AllocationOf(p)
	s.mem.Resize = decide.Resize{InProgress: true, Generation: p.Generation, Since: s.now}
}

func (s *story) status(f []string) {
	st := v1.ContainerStatus{Name: f[1], ContainerID: "sim://" + f[1]}
	switch f[2] {
	case "waiting":
		st.ContainerID = ""
		st.State.Waiting = &v1.ContainerStateWaiting{}
	case "running":
		st.State.Running = &v1.ContainerStateRunning{}
	case "terminated":
		n, _ := strconv.Atoi(f[3])
		st.State.Terminated = &v1.ContainerStateTerminated{ExitCode: int32(n)}
	}
	for _, opt := range f[3:] {
		key, val, _ := strings.Cut(opt, "=")
		n, _ := strconv.Atoi(val)
		switch key {
		case "restarts":
			st.RestartCount = int32(n)
		case "id":
			st.ContainerID = "sim://" + val
		case "started":
			st.Started = new(val == "true")
		case "last":
			st.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: int32(n)}
		}
	}
	list := &s.pod.Status.ContainerStatuses
	*list = append(slices.DeleteFunc(*list, func(o v1.ContainerStatus) bool { return o.Name == f[1] }), st)
}
