package perform

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/cri"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// logger is a runtime that opens the log of a container when it creates the container, and makes no directories, as CRI-O does.
type logger struct {
	runtimeapi.RuntimeServiceClient
	runtimeapi.ImageServiceClient
}

func (logger) ImageStatus(context.Context, *runtimeapi.ImageStatusRequest, ...grpc.CallOption) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "sha256:1"}}, nil
}

func (logger) CreateContainer(_ context.Context, r *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	err := os.WriteFile(filepath.Join(r.GetSandboxConfig().GetLogDirectory(), r.GetConfig().GetLogPath()), nil, 0o600)
	return &runtimeapi.CreateContainerResponse{ContainerId: "c1"}, err
}

func (logger) StartContainer(context.Context, *runtimeapi.StartContainerRequest, ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	return &runtimeapi.StartContainerResponse{}, nil
}

// empty are volumes of pods that have none.
type empty struct{ Volumes }

func (empty) Mounts(context.Context, volume.MountInput) ([]*runtimeapi.Mount, error) { return nil, nil }

func (empty) Devices(*v1.Pod, *v1.Container) ([]*runtimeapi.Device, error) { return nil, nil }

// The directory of a container's log exists before the runtime creates the container, also for an ephemeral container, which came after the
// set-up of its pod, and after somebody removed the directories of the logs.
func TestLogDirectoryOfAContainerThatStartsLater(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	x := New(Config{
		CRI: cri.New(cri.Config{Runtime: logger{}, Images: logger{}}), Logs: &LogDirs{Root: root, RemoveTree: os.RemoveAll}, Volumes: empty{}, Cgroups: flat{},
		Objects: cluster{synced: true}, Recorder: &recorder{}, Facts: func() Facts { return Facts{LogRoot: root, Spec: crispec.DefaultPolicy()} },
	})
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u1"}, Spec: v1.PodSpec{
		Containers:          []v1.Container{{Name: "main", Image: "i"}},
		EphemeralContainers: []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i"}}},
	}}
	for _, name := range []string{"debug", "main"} {
		o := x.Do(t.Context(), pod.Job{
			Ref: pod.RefOf(p), Pod: p, ImageRef: "sha256:1", Observed: &pod.Observed{Sandboxes: []pod.Sandbox{{ID: "s", Ready: true, IPs: []string{"10.0.0.1"}}}},
			Action: pod.Action{Op: pod.OpStartContainer, Container: name},
		})
		if o.Err != nil {
			t.Errorf("%s: %v", name, o.Err)
		}
		if err := os.RemoveAll(root); err != nil {
			t.Fatal(err)
		}
	}
}

// remover is a runtime that removes containers.
type remover struct {
	runtimeapi.RuntimeServiceClient
}

func (remover) RemoveContainer(context.Context, *runtimeapi.RemoveContainerRequest, ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// removed notes the attempts whose logs are removed.
type removed struct {
	NoLogs
	attempts []uint32
}

func (r *removed) Remove(_ pod.Ref, _ string, attempt uint32) error {
	r.attempts = append(r.attempts, attempt)
	return nil
}

// If a runtime has two containers with one name and attempt, they have one log. The removal of one of them does not remove the log of the
// other, which may run.
func TestRemovedContainerWhoseLogAnotherHas(t *testing.T) {
	t.Parallel()
	logs := &removed{}
	x := New(Config{CRI: cri.New(cri.Config{Runtime: remover{}}), Logs: logs})
	obs := &pod.Observed{Containers: []pod.Container{
		{Name: "main", ID: "twin-a", Attempt: 2, State: pod.StateRunning}, {Name: "main", ID: "twin-b", Attempt: 2, State: pod.StateExited},
		{Name: "main", ID: "older", Attempt: 1, State: pod.StateExited}, {Name: "other", ID: "other", Attempt: 1, State: pod.StateExited},
	}}
	for _, id := range []string{"twin-b", "older"} {
		if o := x.Do(t.Context(), pod.Job{Pod: &v1.Pod{}, Observed: obs, Action: pod.Action{Op: pod.OpRemoveContainer, ID: id}}); o.Err != nil {
			t.Fatal(o.Err)
		}
	}
	if !slices.Equal(logs.attempts, []uint32{1}) {
		t.Errorf("the logs of the attempts %v were removed, want that of 1", logs.attempts)
	}
}

// The log of a container of a pod that no source has stays until the pod is forgotten, which removes all its logs.
func TestLogsOfAPodThatIsGoneAreRemovedTogether(t *testing.T) {
	t.Parallel()
	logs := &removed{}
	x := New(Config{CRI: cri.New(cri.Config{Runtime: remover{}}), Logs: logs})
	obs := &pod.Observed{Containers: []pod.Container{{Name: "main", ID: "main", State: pod.StateExited}}}
	if o := x.Do(t.Context(), pod.Job{Observed: obs, Action: pod.Action{Op: pod.OpRemoveContainer, ID: "main"}}); o.Err != nil {
		t.Fatal(o.Err)
	}
	if len(logs.attempts) > 0 {
		t.Errorf("the logs of the attempts %v were removed one by one", logs.attempts)
	}
}
