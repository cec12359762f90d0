package cricontract

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Subject is a runtime to test.
type Subject struct {
	Runtime runtimeapi.RuntimeServiceClient
	Images  runtimeapi.ImageServiceClient
	// Image is the name of a present image that has busybox.
	Image string
	// LogRoot is the directory for the logs of sandboxes; "": the runtime writes no logs.
	LogRoot string
	// CgroupParent is the cgroup parent of sandboxes; "": the runtime chooses.
	CgroupParent string
}

// Case is one test of the contract, that is, of what a runtime has to do.
type Case struct {
	Name string
	Run  func(t *testing.T, s Subject)
}

// Cases returns the cases of the contract.
func Cases() []Case {
	return []Case{
		{"NodeIsReady", nodeIsReady},
		{"SandboxLives", sandboxLives},
		{"SandboxNameIsReserved", sandboxNameIsReserved},
		{"HostNetworkHasNoAddress", hostNetworkHasNoAddress},
		{"ContainerLives", containerLives},
		{"ContainerExits", containerExits},
		{"ContainerNameIsReserved", containerNameIsReserved},
		{"CreationsThatFail", creationsThatFail},
		{"StopKillsAfterGrace", stopKillsAfterGrace},
		{"SecondStopIsBesideTheFirst", secondStopIsBesideTheFirst},
		{"StopSandboxKills", stopSandboxKills},
		{"RemoveIsForced", removeIsForced},
		{"ExecSync", execSync},
		{"Events", events},
		{"Lists", lists},
		{"Images", images},
		{"Stats", stats},
		{"Resources", resources},
		{"Logs", logs},
		{"UserNamespaces", userNamespaces},
		{"ImageMounts", imageMounts},
	}
}

// Run runs the cases against one runtime, in real time.
func Run(t *testing.T, s Subject) {
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			c.Run(t, s)
		})
	}
}

// pod is the pod of a case.
type pod struct {
	t   *testing.T
	s   Subject
	cfg *runtimeapi.PodSandboxConfig
	id  string
}

// newPod returns a pod that is removed at the end of the test. run creates its sandbox.
func newPod(t *testing.T, s Subject) *pod {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	uid := fmt.Sprintf("%s-%d", name, time.Now().UnixNano())
	p := &pod{t: t, s: s, cfg: &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "contract", Uid: uid},
		Hostname:    "contract",
		Labels:      map[string]string{"io.kubernetes.pod.uid": uid},
		Annotations: map[string]string{"note": "n"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    s.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{}},
		},
	}}
	if s.LogRoot != "" {
		p.cfg.LogDirectory = s.LogRoot + "/" + uid
	}
	return p
}

func (p *pod) run() *pod {
	p.t.Helper()
	resp, err := p.s.Runtime.RunPodSandbox(p.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: p.cfg})
	if err != nil {
		p.t.Fatalf("RunPodSandbox: %v", err)
	}
	id := resp.PodSandboxId
	p.id = id
	p.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := p.s.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			p.t.Errorf("StopPodSandbox in the end: %v", err)
		}
		if _, err := p.s.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			p.t.Errorf("RemovePodSandbox in the end: %v", err)
		}
	})
	return p
}

func (p *pod) status() *runtimeapi.PodSandboxStatus {
	p.t.Helper()
	resp, err := p.s.Runtime.PodSandboxStatus(p.t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		p.t.Fatalf("PodSandboxStatus: %v", err)
	}
	return resp.Status
}

// container returns the request for a container of the pod.
func (p *pod) container(name string, attempt uint32, cmd ...string) *runtimeapi.CreateContainerRequest {
	return &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, SandboxConfig: p.cfg,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
			Image:    &runtimeapi.ImageSpec{Image: p.s.Image},
			Command:  cmd,
			Labels:   map[string]string{"io.kubernetes.container.name": name, "io.kubernetes.pod.uid": p.cfg.Metadata.Uid},
			LogPath:  fmt.Sprintf("%s.log", name),
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources:       &runtimeapi.LinuxContainerResources{CpuShares: 100, MemoryLimitInBytes: 64 << 20},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}},
			},
		},
	}
}

func (p *pod) create(name string, attempt uint32, cmd ...string) string {
	p.t.Helper()
	resp, err := p.s.Runtime.CreateContainer(p.t.Context(), p.container(name, attempt, cmd...))
	if err != nil {
		p.t.Fatalf("CreateContainer: %v", err)
	}
	return resp.ContainerId
}

func (p *pod) start(id string) string {
	p.t.Helper()
	if _, err := p.s.Runtime.StartContainer(p.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		p.t.Fatalf("StartContainer: %v", err)
	}
	return id
}

func (p *pod) stop(id string, timeout int64) {
	p.t.Helper()
	if _, err := p.s.Runtime.StopContainer(p.t.Context(), &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: timeout}); err != nil {
		p.t.Fatalf("StopContainer: %v", err)
	}
}

func (p *pod) remove(id string) {
	p.t.Helper()
	if _, err := p.s.Runtime.RemoveContainer(p.t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: id}); err != nil {
		p.t.Fatalf("RemoveContainer: %v", err)
	}
}

func (p *pod) inspect(id string) *runtimeapi.ContainerStatus {
	p.t.Helper()
	resp, err := p.s.Runtime.ContainerStatus(p.t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		p.t.Fatalf("ContainerStatus: %v", err)
	}
	return resp.Status
}

// ends waits until the container has exited.
func (p *pod) ends(id string) *runtimeapi.ContainerStatus {
	p.t.Helper()
	var st *runtimeapi.ContainerStatus
	eventually(p.t, "container exits", func() bool {
		st = p.inspect(id)
		return st.State == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return st
}

// announce creates sandboxes until the channel arrived reports the first event. One sandbox may not be enough, because an event stream over
// gRPC begins some time after the call that requests it.
func (p *pod) announce(arrived <-chan struct{}) {
	p.t.Helper()
	for range 30 {
		p.run()
		select {
		case <-arrived:
			return
		case <-time.After(time.Second):
		}
		m := p.cfg.Metadata
		p.cfg.Metadata = &runtimeapi.PodSandboxMetadata{Name: m.Name, Namespace: m.Namespace, Uid: m.Uid, Attempt: m.Attempt + 1}
	}
	p.t.Fatal("no event of 30 sandboxes")
}

// eventually calls ok every 50 ms until it returns true, and fails the test after two minutes.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	late := time.After(2 * time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not within 2 minutes: %s", what)
		}
	}
}

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%s: code %s, want %s (%v)", what, got, want, err)
	}
}

func wantState(t *testing.T, st *runtimeapi.ContainerStatus, state runtimeapi.ContainerState, code int32, reason string) {
	t.Helper()
	if st.State != state || st.ExitCode != code || st.Reason != reason {
		t.Errorf("state %s code %d reason %q, want %s %d %q", st.State, st.ExitCode, st.Reason, state, code, reason)
	}
}
