package configs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	critest "k8s.io/cri-api/pkg/apis/testing"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/pkg/volume"
	volumetypes "k8s.io/kubernetes/pkg/volume/util/types"
)

// Requests contains what a runtime receives for a pod: the configurations of the sandbox and of all containers. Handler is the runtime
// handler of the sandbox.
type Requests struct {
	Sandbox *runtimeapi.PodSandboxConfig
	Handler string
	// Containers has the configurations by the names of the containers.
	Containers map[string]*runtimeapi.ContainerConfig
	// Failed has the errors by the names of the containers that were not created. The key "" is for the sandbox.
	Failed map[string]string
}

func newRequests() *Requests {
	return &Requests{Containers: map[string]*runtimeapi.ContainerConfig{}, Failed: map[string]string{}}
}

// errKept is the error of every StartContainer call, because no container really runs. The method goOn sets the states of the containers
// instead.
var errKept = errors.New("kept, not started")

// listener is the fake runtime to which upstream's kubelet sends its requests. It records them.
type listener struct {
	*critest.FakeRuntimeService
	requests *Requests
}

func newListener() *listener { return &listener{critest.NewFakeRuntimeService(), newRequests()} }

func (l *listener) forget() {
	l.requests = newRequests()
	l.Called = nil
	l.SetFakeSandboxes(nil)
	l.SetFakeContainers(nil)
}

// RunPodSandbox records the configuration and creates a fake sandbox.
func (l *listener) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	l.requests.Sandbox, l.requests.Handler = config, handler
	id, err := l.FakeRuntimeService.RunPodSandbox(ctx, config, handler)
	if err == nil {
		l.Sandboxes[id].Network.Ip = podIP
		if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
			l.Sandboxes[id].Network.Ip = ""
		}
		l.Sandboxes[id].Network.AdditionalIps = nil
	}
	return id, err
}

// CreateContainer records the configuration and creates a fake container.
func (l *listener) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, sandboxConfig *runtimeapi.PodSandboxConfig) (string, error) {
	l.requests.Containers[config.Metadata.Name] = config
	return l.FakeRuntimeService.CreateContainer(ctx, sandbox, config, sandboxConfig)
}

// StartContainer starts nothing and returns errKept.
func (l *listener) StartContainer(context.Context, string) error { return errKept }

// pictures is the fake image service of upstream's kubelet. Every image is present in it.
type pictures struct{ *critest.FakeImageService }

func (pictures) ImageStatus(_ context.Context, s *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: imageOf(s.Image)}, nil
}

func (pictures) PullImage(_ context.Context, s *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	return imageOf(s.Image).Id, nil
}

// volumes replaces the kubelet's volume manager. It uses upstream's volume plugins to find the path of each volume, and creates empty
// directories there instead of mounts.
type volumes struct {
	volumemanager.VolumeManager
	plugins *volume.VolumePluginMgr
	mounted kubecontainer.VolumeMap
}

// GetMountedVolumesForPod returns the volumes for which mount was called last.
func (v *volumes) GetMountedVolumesForPod(volumetypes.UniquePodName) kubecontainer.VolumeMap {
	return v.mounted
}

func (v *volumes) mount(p *v1.Pod) error {
	v.mounted = kubecontainer.VolumeMap{}
	for i := range p.Spec.Volumes {
		vol := &p.Spec.Volumes[i]
		spec := volume.NewSpecFromVolume(vol)
		plugin, err := v.plugins.FindPluginBySpec(spec)
		if err != nil {
			return fmt.Errorf("volume %s: %w", vol.Name, err)
		}
		m, err := plugin.NewMounter(spec, p)
		if err != nil {
			return fmt.Errorf("volume %s: %w", vol.Name, err)
		}
		if vol.HostPath == nil && vol.Image == nil {
			if err := os.MkdirAll(m.GetPath(), 0o755); err != nil {
				return err
			}
			if err := fill(vol, m.GetPath()); err != nil {
				return err
			}
		}
		v.mounted[vol.Name] = kubecontainer.VolumeInfo{Mounter: m, InnerVolumeSpecName: vol.Name, ReadOnly: spec.ReadOnly}
	}
	return nil
}

// Requests lets upstream's code create the pod's sandbox and all of its containers, and returns the requests.
func (u *Upstream) Requests(ctx context.Context, p *v1.Pod) (*Requests, error) {
	defer u.runtime.forget()
	u.mounter.MountPoints = nil
	u.mounter.ResetLog()
	dir := filepath.Join(u.world.Dir, "upstream", "root", "pods", string(p.UID))
	for _, d := range []string{"volumes", "plugins", "containers"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	defer os.RemoveAll(dir)
	if err := u.volumes.mount(p); err != nil {
		return nil, err
	}
	backOff := flowcontrol.NewBackOff(time.Nanosecond, time.Nanosecond)
	for made := -1; made < u.made(); { // SyncPod is called until it creates no more containers, because some containers wait for others
		made = u.made()
		known, err := u.known(ctx, p)
		if err != nil {
			return nil, err
		}
		status, err := u.manager.GetPodStatus(ctx, known)
		if err != nil {
			return nil, err
		}
		if p.Spec.HostNetwork {
			status.IPs = []string{hostIP} // a kubelet that runs sets the IP before it calls SyncPod
		}
		result := u.manager.SyncPod(ctx, p, status, nil, backOff, false)
		if result.SyncError != nil {
			u.runtime.requests.Failed[""] = result.SyncError.Error()
		}
		for _, r := range result.SyncResults {
			if name, ok := r.Target.(string); ok && r.Error != nil && r.Message != errKept.Error() {
				u.runtime.requests.Failed[name] = r.Error.Error() + ": " + r.Message
			}
		}
		if err := u.goOn(ctx, p); err != nil {
			return nil, err
		}
	}
	if err := u.sizes.RemovePod(p.UID); err != nil {
		return nil, err
	}
	for name := range u.runtime.requests.Containers {
		delete(u.runtime.requests.Failed, name) // a later call of SyncPod created the container
	}
	return u.runtime.requests, nil
}

func (u *Upstream) made() int { return len(u.runtime.FakeRuntimeService.Containers) }

// known returns the pod as the fake runtime has it, without containers if it has none. A real kubelet would take it from its pod cache.
func (u *Upstream) known(ctx context.Context, p *v1.Pod) (*kubecontainer.Pod, error) {
	pods, err := u.manager.GetPods(ctx, true)
	if err != nil {
		return nil, err
	}
	if len(pods) > 0 {
		return pods[0], nil
	}
	return &kubecontainer.Pod{ID: p.UID, Name: p.Name, Namespace: p.Namespace}, nil
}

// goOn sets the states of the fake containers, so that the next SyncPod continues: init containers have exited, even if they could not be
// created, and all other containers run.
func (u *Upstream) goOn(ctx context.Context, p *v1.Pod) error {
	for i := range p.Spec.InitContainers {
		name := p.Spec.InitContainers[i].Name
		if u.runtime.requests.Failed[name] != "" && u.runtime.requests.Containers[name] == nil {
			if err := u.pretend(ctx, p, name); err != nil {
				return err
			}
		}
	}
	ends := map[string]bool{}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		ends[c.Name] = c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways
	}
	now := time.Now().UnixNano()
	for id, c := range u.runtime.FakeRuntimeService.Containers {
		c.State, c.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, now
		if ends[c.Metadata.Name] {
			c.State, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, now
		}
		u.started.Set(kubecontainer.ContainerID{Type: "fakeRuntime", ID: id}, results.Success, p)
	}
	return nil
}

// pretend creates a fake init container in place of one that could not be created, so that the kubelet continues with the next one.
func (u *Upstream) pretend(ctx context.Context, p *v1.Pod, name string) error {
	for id := range u.runtime.Sandboxes {
		_, err := u.runtime.FakeRuntimeService.CreateContainer(ctx, id, &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{},
			Labels: map[string]string{"io.kubernetes.container.name": name, "io.kubernetes.pod.name": p.Name,
				"io.kubernetes.pod.namespace": p.Namespace, "io.kubernetes.pod.uid": string(p.UID)},
			Annotations: map[string]string{"io.kubernetes.container.hash": "0", "io.kubernetes.container.restartCount": "0"},
		}, u.runtime.requests.Sandbox)
		return err
	}
	return nil
}

// fill writes the file envFile into an emptyDir; containers read variables from it (fileKeyRef). Other volumes get no file.
func fill(vol *v1.Volume, dir string) error {
	if vol.EmptyDir == nil {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, envFile), []byte(envFileText), 0o644)
}
