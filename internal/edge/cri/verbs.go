package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Version returns the runtime's name and version.
func (c *Client) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	v, err := c.cfg.Runtime.Version(ctx, &runtimeapi.VersionRequest{Version: "v1"})
	if err != nil {
		return nil, fmt.Errorf("get runtime version: %w", err)
	}
	return v, nil
}

// Status returns the runtime's conditions and handlers.
func (c *Client) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	s, err := c.cfg.Runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("get runtime status: %w", err)
	}
	return s, nil
}

// CgroupDriver returns the cgroup driver of the runtime ("KubeletCgroupDriverFromCRI"); "" if the runtime does not report it.
func (c *Client) CgroupDriver(ctx context.Context) (string, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	r, err := c.cfg.Runtime.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	switch {
	case IsUnimplemented(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the runtime's configuration: %w", err)
	case r.GetLinux() == nil:
		return "", nil
	case r.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD:
		return "systemd", nil
	}
	return "cgroupfs", nil
}

// UpdatePodCIDR sends the node's pod CIDR to the runtime.
func (c *Client) UpdatePodCIDR(ctx context.Context, cidr string) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	_, err := c.cfg.Runtime.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{
		RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}},
	})
	if err != nil {
		return fmt.Errorf("update runtime pod CIDR to %s: %w", cidr, err)
	}
	return nil
}

// RunSandbox creates and starts a sandbox. Its deadline is twice the usual one, because the call also sets up the network.
func (c *Client) RunSandbox(ctx context.Context, cfg *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.Timeout)
	defer cancel()
	r, err := c.cfg.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: cfg, RuntimeHandler: handler})
	if err != nil {
		return "", fmt.Errorf("run pod sandbox: %w", err)
	}
	if r.GetPodSandboxId() == "" {
		return "", fmt.Errorf("run pod sandbox: the runtime returned no sandbox ID")
	}
	return r.GetPodSandboxId(), nil
}

// StopSandbox stops a sandbox and takes its network down. The call is idempotent.
func (c *Client) StopSandbox(ctx context.Context, id string) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	_, err := c.cfg.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && !IsNotFound(err) {
		return fmt.Errorf("stop pod sandbox %s: %w", id, err)
	}
	return nil
}

// RemoveSandbox removes a stopped sandbox. The call is idempotent.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	_, err := c.cfg.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	if err != nil && !IsNotFound(err) {
		return fmt.Errorf("remove pod sandbox %s: %w", id, err)
	}
	return nil
}

// CreateContainer creates a container in a sandbox.
func (c *Client) CreateContainer(ctx context.Context, sandboxID string, cfg *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	r, err := c.cfg.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: cfg, SandboxConfig: sandbox})
	if err != nil {
		return "", fmt.Errorf("create container: %w", err)
	}
	if r.GetContainerId() == "" {
		return "", fmt.Errorf("create container: the runtime returned no container ID")
	}
	return r.GetContainerId(), nil
}

// StartContainer starts a created container.
func (c *Client) StartContainer(ctx context.Context, id string) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	if _, err := c.cfg.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("start container %s: %w", id, err)
	}
	return nil
}

// StopContainer sends the stop signal, waits up to grace (whole seconds, rounded up), then kills. It is idempotent. Its
// deadline is the grace period plus the usual timeout.
func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, plus(grace, c.cfg.Timeout))
	defer cancel()
	_, err := c.cfg.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: wholeSeconds(grace)})
	if err != nil && !IsNotFound(err) {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// plus adds two durations without an overflow: "terminationGracePeriodSeconds" may be any number.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// wholeSeconds rounds up to whole seconds.
func wholeSeconds(d time.Duration) int64 { return int64(plus(d, time.Second-1) / time.Second) }

// RemoveContainer removes a container that has ended. The call is idempotent.
func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	c.untouch(id)
	_, err := c.cfg.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	if err != nil && !IsNotFound(err) {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	return nil
}

// UpdateResources changes a running container's Linux resources.
func (c *Client) UpdateResources(ctx context.Context, id string, res *runtimeapi.LinuxContainerResources) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	defer c.touch(id) // call touch also after an error, because the runtime may have applied a part of the resources
	_, err := c.cfg.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: res})
	if err != nil {
		return fmt.Errorf("update resources of container %s: %w", id, err)
	}
	return nil
}

// UpdateSandboxResources informs the runtime of the resources of a whole pod. A runtime that keeps pods in virtual machines resizes the
// machine. An error that means that the runtime does not have this call is ignored.
func (c *Client) UpdateSandboxResources(ctx context.Context, id string, resources, overhead *runtimeapi.LinuxContainerResources) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	_, err := c.cfg.Runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: id, Resources: resources, Overhead: overhead})
	if err == nil || IsUnimplemented(err) || strings.Contains(Message(err), "not implemented") { // containerd 2.2 returns no code for this error
		return nil
	}
	return fmt.Errorf("update resources of sandbox %s: %w", id, err)
}

// touch records that the resources of a container may have changed, so that the next inspection reads its status even if its state is the
// same.
func (c *Client) touch(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resized == nil {
		c.resized = map[string]bool{}
	}
	c.resized[id] = true
}

// untouch reports whether touch was called for the container, and clears the record.
func (c *Client) untouch(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.resized[id]
	delete(c.resized, id)
	return was
}

// MemoryUsage returns the memory usage of a container in bytes; false: the runtime does not report it.
func (c *Client) MemoryUsage(ctx context.Context, id string) (int64, bool) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	r, err := c.cfg.Runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
	if err != nil {
		return 0, false
	}
	m := r.GetStats().GetMemory()
	switch {
	case m.GetUsageBytes() != nil:
		return int64(m.UsageBytes.Value), true
	case m.GetWorkingSetBytes() != nil:
		return int64(m.WorkingSetBytes.Value), true
	}
	return 0, false
}

// ReopenLog makes the runtime reopen a container's log file after rotation.
func (c *Client) ReopenLog(ctx context.Context, id string) error {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	if _, err := c.cfg.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id}); err != nil {
		return fmt.Errorf("reopen log of container %s: %w", id, err)
	}
	return nil
}

// execOutput is how many bytes of each output of a command are returned. Events, conditions and logs show less.
const execOutput = 16 << 10

// head copies the beginning of an output, so that the rest can be freed. Over gRPC, headCodec has cut it already.
func head(b []byte) []byte { return bytes.Clone(b[:min(len(b), execOutput)]) }

// ExecSync runs a command in a container and returns the beginning of its output. With a timeout of 0 only ctx limits it. The
// exit code is valid only if err is nil.
func (c *Client) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, code int32, err error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, plus(timeout, c.cfg.Timeout))
		defer cancel()
	}
	r, err := c.cfg.Runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: wholeSeconds(timeout)}, grpc.ForceCodecV2(newHeadCodec()))
	if err != nil {
		return nil, nil, 0, fmt.Errorf("exec in container %s: %w", id, err)
	}
	return head(r.GetStdout()), head(r.GetStderr()), r.GetExitCode(), nil
}

// ContainerStatus returns the CRI status of a container.
func (c *Client) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	r, err := c.cfg.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return nil, fmt.Errorf("get status of container %s: %w", id, err)
	}
	if err := isAbout(id, r.GetStatus().GetId()); err != nil {
		return nil, fmt.Errorf("get status of container %s: %w", id, err)
	}
	return r.GetStatus(), nil
}

// isAbout returns an error if a status does not have the ID that was asked for: an answer without a status would otherwise show a sandbox that is
// ready, or a container that was only created, because these states are the zero values.
func isAbout(asked, got string) error {
	switch got {
	case asked:
		return nil
	case "":
		return errors.New("the runtime returned none")
	}
	return fmt.Errorf("the runtime returned that of %.100q", got)
}

// ImageStatus returns the runtime's description of an image, or nil when it is not present.
func (c *Client) ImageStatus(ctx context.Context, ref string) (*runtimeapi.Image, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	r, err := c.cfg.Images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		return nil, fmt.Errorf("get status of image %s: %w", ref, err)
	}
	return r.GetImage(), nil
}

// ImageDir returns the directory where the runtime keeps images, or "" if the runtime does not report it.
func (c *Client) ImageDir(ctx context.Context) (string, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	r, err := c.cfg.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return "", fmt.Errorf("get image file system: %w", err)
	}
	if len(r.GetImageFilesystems()) == 0 {
		return "", nil
	}
	return r.GetImageFilesystems()[0].GetFsId().GetMountpoint(), nil
}

// ListImages lists the images that the runtime holds.
func (c *Client) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	r, err := c.cfg.Images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	return r.GetImages(), nil
}
