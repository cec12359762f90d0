package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// checkpointing is a runtime that writes an empty file as the checkpoint, or returns the error fail if it is set.
type checkpointing struct {
	runtimeapi.RuntimeServiceClient
	last *runtimeapi.CheckpointContainerRequest
	left time.Duration
	fail error
}

func (c *checkpointing) CheckpointContainer(ctx context.Context, in *runtimeapi.CheckpointContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CheckpointContainerResponse, error) {
	c.last = in
	deadline, _ := ctx.Deadline()
	c.left = time.Until(deadline)
	if c.fail != nil {
		return nil, c.fail
	}
	return &runtimeapi.CheckpointContainerResponse{}, os.WriteFile(in.Location, nil, 0o600)
}

// Checkpoints are in a directory below the root directory that only the agent's user may enter. Their names are like those
// of Kubernetes' kubelet. Without the gate ContainerCheckpoint there are no checkpoints.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	sim := simcri.New(simcri.Config{})
	defer sim.Close()
	root := t.TempDir()
	cfg := Config{NodeName: "n", RootDir: root, Kubelet: DefaultConfiguration()}
	cfg.Kubelet.RuntimeRequestTimeout.Duration = time.Minute
	r := &checkpointing{}
	deps := Deps{Machine: RealMachine(), Log: slog.New(slog.DiscardHandler)}
	r.RuntimeServiceClient, deps.Images = sim.Clients()
	deps.Runtime = r
	a, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	write := a.checkpointer()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "ns"}}
	seen := map[string]bool{}
	for range 3 { // several checkpoints are made in the same second
		path, err := write(t.Context(), p, "id-1", "main", 0)
		if err != nil {
			t.Fatal(err)
		}
		if seen[path] || filepath.Dir(path) != filepath.Join(root, "checkpoints") || !strings.HasPrefix(filepath.Base(path), "checkpoint-web_ns-main-20") || !strings.HasSuffix(path, ".tar") {
			t.Errorf("path %s", path)
		}
		seen[path] = true
	}
	if r.last.ContainerId != "id-1" || r.last.Timeout != 60 || r.left > time.Minute || r.left < 50*time.Second {
		t.Errorf("asked for %+v with %s left", r.last, r.left)
	}
	if info, err := os.Stat(filepath.Join(root, "checkpoints")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
	if _, err := write(t.Context(), p, "id-1", "main", time.Second); err != nil || r.last.Timeout != 60 {
		t.Errorf("a timeout below runtimeRequestTimeout: %v, %v", r.last, err)
	}
	if _, err := write(t.Context(), p, "id-1", "main", time.Hour); err != nil || r.last.Timeout != 3600 || r.left < 59*time.Minute {
		t.Errorf("a timeout above it: %v, %v", r.last, err)
	}
	r.fail = errors.New("no CRIU")
	if _, err := write(t.Context(), p, "id-1", "main", 0); !errors.Is(err, r.fail) {
		t.Errorf("the runtime's error: %v", err)
	}
	cfg.Kubelet.FeatureGates = map[string]bool{"ContainerCheckpoint": false}
	off, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	if off.checkpointer() != nil {
		t.Error("the gate is off, and checkpoints are served")
	}
}
