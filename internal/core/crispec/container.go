package crispec

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// AnnotationKubeletHash is the annotation by which upstream's kubelet recognizes that a container still matches its
// spec. Our containers have it too, so that a node may change between the two agents without a restart of any
// container.
const AnnotationKubeletHash = "io.kubernetes.container.hash"

// ContainerInput is the input of Container.
type ContainerInput struct {
	Pod       *v1.Pod
	Container *v1.Container // for an ephemeral container, its converted EphemeralContainerCommon
	Attempt   uint32
	// ImageRef is the image for the runtime: the reference that a pull or the image status returned.
	ImageRef string
	// Image is the image's status, which names its user. Nil means root.
	Image *runtimeapi.Image
	// Env is the resolved environment (function Env); command and args are expanded with it.
	Env     []EnvVar
	Mounts  []*runtimeapi.Mount
	Devices []*runtimeapi.Device
	CDI     []*runtimeapi.CDIDevice
	// Annotations are the annotations that device plugins give the container. The agent's own annotations take precedence.
	Annotations map[string]string
	// LogPath is relative to the sandbox's log directory. If it is empty, LogName(container, attempt) is used.
	LogPath string
	// TargetID is the container whose process namespace an ephemeral container joins.
	TargetID string
	// RuntimeHandler appears in the image spec, for runtimes that keep images per handler.
	RuntimeHandler string
	Userns         *runtimeapi.UserNamespace
	ExtraGroups    []int64
	Policy         Policy
}

// Container makes the configuration of one attempt of a container. Errors are *Error with ReasonContainerConfig.
// The mounts of the input become part of the message; with a user namespace their ID mappings are set.
func Container(in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	c := in.Container
	security, err := in.security()
	if err != nil {
		return nil, err
	}
	signal, err := stopSignal(c)
	if err != nil {
		return nil, err
	}
	annotations, err := in.annotations()
	if err != nil {
		return nil, err
	}
	lookup := lookupIn(in.Env)
	command, err := ExpandAll(c.Command, lookup)
	if err != nil {
		return nil, containerErr("command of container %s: %w", c.Name, err)
	}
	args, err := ExpandAll(c.Args, lookup)
	if err != nil {
		return nil, containerErr("args of container %s: %w", c.Name, err)
	}
	logPath := in.LogPath
	if logPath == "" {
		logPath = LogName(c.Name, in.Attempt)
	}
	if u := security.NamespaceOptions.UsernsOptions; u.GetMode() == runtimeapi.NamespaceMode_POD {
		for _, m := range in.Mounts {
			m.UidMappings, m.GidMappings = u.Uids, u.Gids
		}
	}
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: in.Attempt},
		Image: &runtimeapi.ImageSpec{
			Image: in.ImageRef, UserSpecifiedImage: c.Image, RuntimeHandler: in.RuntimeHandler,
		},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Envs:        keyValues(in.Env),
		Mounts:      in.Mounts,
		Devices:     in.Devices,
		CDIDevices:  in.CDI,
		Labels:      containerLabels(in.Pod, c),
		Annotations: annotations,
		LogPath:     logPath,
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		StopSignal:  signal,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: ContainerResources(in.Pod, c, &in.Policy), SecurityContext: security,
		},
	}, nil
}

func keyValues(env []EnvVar) []*runtimeapi.KeyValue {
	var out []*runtimeapi.KeyValue
	for _, e := range env {
		out = append(out, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	return out
}

func containerLabels(p *v1.Pod, c *v1.Container) map[string]string {
	return map[string]string{
		pod.LabelPodName: p.Name, pod.LabelPodNamespace: p.Namespace, pod.LabelPodUID: string(p.UID),
		pod.LabelContainerName: c.Name,
	}
}

func (in *ContainerInput) annotations() (map[string]string, error) {
	c := in.Container
	out := make(map[string]string, len(in.Annotations)+8)
	maps.Copy(out, in.Annotations)
	maps.DeleteFunc(out, func(key, _ string) bool { // only the agent may set names that it reads back
		return strings.HasPrefix(key, "io.kubernetes.") || strings.HasPrefix(key, "wherry.dev/")
	})
	out[pod.AnnotationSpecHash] = SpecHash(in.Pod, c)
	out[AnnotationKubeletHash] = KubeletHash(c)
	out[pod.AnnotationRestartCount] = strconv.FormatUint(uint64(in.Attempt), 10)
	out[pod.AnnotationTerminationMessagePath] = c.TerminationMessagePath
	out[pod.AnnotationTerminationMessagePolicy] = string(c.TerminationMessagePolicy)
	if g := in.Pod.Spec.TerminationGracePeriodSeconds; g != nil {
		out[pod.AnnotationPodGracePeriod] = strconv.FormatInt(*g, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		raw, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, containerErr("encode lifecycle.preStop of container %s: %w", c.Name, err)
		}
		out[pod.AnnotationPreStop] = string(raw)
	}
	if len(c.Ports) > 0 {
		raw, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, containerErr("encode ports of container %s: %w", c.Name, err)
		}
		out[pod.AnnotationPorts] = string(raw)
	}
	return out, nil
}

// stopSignal returns the CRI number of lifecycle.stopSignal. The API writes SIGRTMIN+1 for CRI's SIGRTMINPLUS1.
func stopSignal(c *v1.Container) (runtimeapi.Signal, error) {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_RUNTIME_DEFAULT, nil
	}
	name := string(*c.Lifecycle.StopSignal)
	n, ok := runtimeapi.Signal_value[strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)]
	if !ok {
		return 0, containerErr("lifecycle.stopSignal %q of container %s is not a signal", name, c.Name)
	}
	return runtimeapi.Signal(n), nil
}
