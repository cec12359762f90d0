package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkpointDir is the directory of container checkpoints, below Config.RootDir. Kubernetes' kubelet uses the same name.
const checkpointDir = "checkpoints"

// checkpointer returns the function that makes the runtime write a checkpoint of a container. It returns nil if the feature gate
// ContainerCheckpoint is off, or if the machine is simulated and so has no disk.
func (a *Agent) checkpointer() func(ctx context.Context, p *v1.Pod, id, container string, timeout time.Duration) (string, error) {
	if !a.deps.Machine.real || !gates(&a.cfg).Enabled("ContainerCheckpoint") {
		return nil
	}
	return a.checkpointContainer
}

// checkpointContainer makes the runtime write a checkpoint of a container and returns the path of its file. The time limit is timeout or
// runtimeRequestTimeout, whichever is longer.
func (a *Agent) checkpointContainer(ctx context.Context, p *v1.Pod, id, container string, timeout time.Duration) (string, error) {
	dir := filepath.Join(a.cfg.RootDir, checkpointDir)
	// A checkpoint contains the memory of a container, including secrets, so no other user may enter the directory.
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the directory of checkpoints: %w", err)
	}
	path, err := newCheckpoint(dir, fmt.Sprintf("checkpoint-%s_%s-%s-", p.Name, p.Namespace, container), time.Now())
	if err != nil {
		return "", err
	}
	timeout = max(timeout, a.cfg.Kubelet.RuntimeRequestTimeout.Duration)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	a.log.Info("checkpoint of a container begins", "pod", p.Namespace+"/"+p.Name, "container", container, "file", path)
	_, err = a.deps.Runtime.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{
		ContainerId: id, Location: path, Timeout: int64(timeout / time.Second),
	})
	if err != nil {
		a.log.Error("checkpoint of a container failed", "pod", p.Namespace+"/"+p.Name, "container", container, "err", err)
		return "", err
	}
	return path, nil
}

// newCheckpoint returns a path at which no file exists. The file's name contains the time in seconds. If a checkpoint of the
// same second exists, the time has more digits.
func newCheckpoint(dir, prefix string, now time.Time) (string, error) {
	for _, layout := range []string{time.RFC3339, time.RFC3339Nano} {
		path := filepath.Join(dir, prefix+now.Format(layout)+".tar")
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return path, nil
		} else if err != nil {
			return "", err
		}
	}
	return "", errors.New("there is a checkpoint of the same moment already: try again")
}
