package configs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"time"
	"unsafe"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	noop "go.opentelemetry.io/otel/trace/noop"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	critest "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/kubernetes/pkg/kubelet/allocation/state"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	podconfig "k8s.io/kubernetes/pkg/kubelet/config"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	probetest "k8s.io/kubernetes/pkg/kubelet/prober/testing"
	"k8s.io/kubernetes/pkg/kubelet/runtimeclass"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/kubelet/volumemanager"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	imagevolume "k8s.io/kubernetes/pkg/volume/image"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"
)

// Upstream runs the part of upstream's kubelet that creates sandboxes and containers.
type Upstream struct {
	world   World
	runtime *listener
	volumes *volumes
	manager kubecontainer.Runtime
	started results.Manager
	mounter *mount.FakeMounter
	sizes   state.State // the kubelet's store of allocated resources by pod; it writes all pods to disk at each change
}

// measured replaces cAdvisor. It reports the memory and swap of the World, the simulated machine.
type measured struct {
	cadvisortest.Fake
	world World
}

func (m *measured) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{NumCores: 8, MemoryCapacity: uint64(m.world.Memory), SwapCapacity: uint64(m.world.Swap),
		HugePages: []cadvisorapi.HugePagesInfo{{PageSize: 2048, NumPages: 512}}}, nil
}

// groups is a container manager that returns the real names of cgroups but creates none.
type groups struct {
	*cm.FakeContainerManager
	real cm.ContainerManager
	node *v1.Node
}

func (g *groups) NewPodContainerManager() cm.PodContainerManager {
	return g.real.NewPodContainerManager()
}
func (g *groups) GetNodeAllocatableAbsolute() v1.ResourceList { return g.node.Status.Allocatable }
func (g *groups) InternalContainerLifecycle() cm.InternalContainerLifecycle {
	return cm.NewFakeInternalContainerLifecycle()
}

// NewUpstream creates upstream's kubelet. It runs until ctx ends.
func NewUpstream(ctx context.Context, w World) (*Upstream, error) {
	root := filepath.Join(w.Dir, "upstream", "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	flags := options.NewKubeletFlags()
	cfg, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, err
	}
	flags.RootDirectory = root
	w.configure(cfg)
	u := &Upstream{world: w, runtime: newListener()}
	client := fake.NewClientset(w.objects()...)
	machine := &measured{world: w}
	mounter := mount.NewFakeMounter(nil)
	u.mounter = mounter
	recorder := &record.FakeRecorder{}
	node := w.node()
	real, err := cm.NewContainerManager(ctx, mounter, machine, cm.NodeConfig{
		NodeName: nodeName, CgroupsPerQOS: true, CgroupRoot: cfg.CgroupRoot, CgroupDriver: "cgroupfs", KubeletRootDir: root,
		CPUManagerPolicy: "none", MemoryManagerPolicy: "None", TopologyManagerPolicy: "none", TopologyManagerScope: "container",
		CPUManagerReconcilePeriod: time.Minute,
	}, false, recorder, client)
	if err != nil {
		return nil, fmt.Errorf("container manager: %w", err)
	}
	classes := unexported[cm.QOSContainerManager](real, "qosContainerManager")
	*unexported[cm.QOSContainersInfo](*classes, "qosContainersInfo") = cm.QOSContainersInfo{ // a real kubelet sets this when it starts
		Guaranteed: cm.CgroupName{"kubepods"}, Burstable: cm.CgroupName{"kubepods", "burstable"}, BestEffort: cm.CgroupName{"kubepods", "besteffort"}}
	deps := &kubelet.Dependencies{
		KubeClient: client, HeartbeatClient: client, ProbeManager: probetest.FakeManager{},
		RemoteRuntimeService: u.runtime, RemoteImageService: pictures{critest.NewFakeImageService()}, CAdvisorInterface: machine,
		OSInterface: kubecontainer.RealOS{}, ContainerManager: &groups{cm.NewFakeContainerManager(), real, node},
		VolumePlugins: plugins(), OOMAdjuster: oom.NewFakeOOMAdjuster(), Mounter: mounter, Subpather: subpath.New(mounter),
		HostUtil: hostutil.NewHostUtil(), PodStartupLatencyTracker: kubeletutil.NewPodStartupLatencyTracker(),
		PodConfig: podconfig.NewPodConfig(recorder, kubeletutil.NewPodStartupLatencyTracker()), NodeStartupLatencyTracker: kubeletutil.NewNodeStartupLatencyTracker(), TracerProvider: noop.NewTracerProvider(), Recorder: recorder,
	}
	k, err := kubelet.NewMainKubelet(ctx, cfg, deps, &flags.ContainerRuntimeOptions, nodeName, nodeName, []net.IP{net.ParseIP(hostIP)}, "", "",
		filepath.Join(root, "pki"), root, filepath.Join(w.Dir, "upstream", "logs"), "", "", false, nil, nil, "", false, false, metav1.Duration{}, 1, -1, nil, 50,
		cfg.SeccompDefault)
	if err != nil {
		return nil, fmt.Errorf("kubelet: %w", err)
	}
	u.volumes = &volumes{VolumeManager: volumemanager.NewFakeVolumeManager(nil, 0, nil, false)}
	plugged := *unexported[*volume.VolumePluginMgr](k, "volumePluginMgr")
	u.volumes.plugins = plugged
	*unexported[volumemanager.VolumeManager](k, "volumeManager") = u.volumes
	u.manager = *unexported[kubecontainer.Runtime](k, "containerRuntime")
	*unexported[kubecontainer.HandlerRunner](u.manager, "runner") = noHooks{}
	u.sizes = *unexported[state.State](u.manager, "actuatedState")
	u.started = *unexported[results.Manager](k, "startupManager")
	handlers := *unexported[*runtimeclass.Manager](k, "runtimeClassManager")
	go handlers.Start(ctx.Done())
	go func() { // the kubelet blocks if nobody reads the results of startup probes
		for {
			select {
			case <-u.started.Updates():
			case <-ctx.Done():
				return
			}
		}
	}()
	u.know(k)
	return u, u.settle(ctx, k)
}

// noHooks replaces the runner of lifecycle hooks, because no container really runs. A hook that sleeps or gets no answer would delay the
// comparison by its whole grace period.
type noHooks struct{}

// Run does nothing.
func (noHooks) Run(context.Context, kubecontainer.ContainerID, *v1.Pod, *v1.Container, *v1.LifecycleHandler) (string, error) {
	return "", nil
}

// unexported returns a pointer to an unexported field of one of the kubelet's structs. In a real kubelet, its start would set the field.
func unexported[T any](k any, name string) *T {
	f := reflect.ValueOf(k).Elem().FieldByName(name)
	return (*T)(unsafe.Pointer(f.UnsafeAddr()))
}

// know sets the runtime handlers that the kubelet knows. A real kubelet reads them from the runtime's status.
func (u *Upstream) know(k *kubelet.Kubelet) {
	state := reflect.ValueOf(k).Elem().FieldByName("runtimeState").Elem()
	known := (*[]kubecontainer.RuntimeHandler)(unsafe.Pointer(state.FieldByName("rtHandlers").UnsafeAddr()))
	for _, h := range handlers() {
		*known = append(*known, kubecontainer.RuntimeHandler{Name: h.Name,
			SupportsRecursiveReadOnlyMounts: h.Features.GetRecursiveReadOnlyMounts(), SupportsUserNamespaces: h.Features.GetUserNamespaces()})
	}
}

// settle waits until the kubelet's informers have the objects of the API server: until a container gets variables of many Services.
func (u *Upstream) settle(ctx context.Context, k *kubelet.Kubelet) error {
	last, n := errors.New("no error"), 0
	for range 100 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
		probe := Plain().Pod
		opts, _, err := k.GenerateRunContainerOptions(ctx, probe, &probe.Spec.Containers[0], "", nil, nil)
		if err != nil {
			last = err
			continue
		}
		if n = len(opts.Envs); n > 20 {
			return nil
		}
	}
	return fmt.Errorf("upstream's caches did not fill: %d variables, %w", n, last)
}

func (w World) configure(cfg *kubeletconfig.KubeletConfiguration) {
	cfg.ClusterDomain, cfg.ClusterDNS = "cluster.local", []string{"10.96.0.10"}
	cfg.CgroupRoot, cfg.CgroupsPerQOS = "/", true
	cfg.FailSwapOn = false
	cfg.ConfigMapAndSecretChangeDetectionStrategy = kubeletconfig.GetChangeDetectionStrategy
	cfg.SeccompDefault, cfg.CPUCFSQuota = w.SeccompDefault, w.CPUQuota
	cfg.ResolverConfig = filepath.Join(w.Dir, "resolv.conf")
	cfg.SerializeImagePulls = false
	cfg.RegistryPullQPS = 0
	if w.LimitedSwap {
		cfg.MemorySwap.SwapBehavior = "LimitedSwap"
	}
}

func (w World) objects() (all []runtime.Object) {
	all = append(all, w.node())
	for _, o := range configMaps() {
		all = append(all, o)
	}
	for _, o := range secrets() {
		all = append(all, o)
	}
	for _, o := range services() {
		all = append(all, o)
	}
	for _, o := range runtimeClasses() {
		all = append(all, o)
	}
	return all
}

func plugins() (all []volume.VolumePlugin) {
	all = append(all, emptydir.ProbeVolumePlugins()...)
	all = append(all, hostpath.ProbeVolumePlugins(volume.VolumeConfig{})...)
	all = append(all, secret.ProbeVolumePlugins()...)
	all = append(all, downwardapi.ProbeVolumePlugins()...)
	all = append(all, configmap.ProbeVolumePlugins()...)
	all = append(all, projected.ProbeVolumePlugins()...)
	return append(all, imagevolume.ProbeVolumePlugins()...)
}
