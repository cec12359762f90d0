package server

import (
	"context"
	"fmt"
	"net/url"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CRI is a Runtime that uses a CRI client.
type CRI struct {
	Client runtimeapi.RuntimeServiceClient
	// Timeout is the timeout of calls that ask for the URL of a stream (runtimeRequestTimeout; 0: no limit). ExecSync has only
	// its context's limit.
	Timeout time.Duration
}

var _ Runtime = CRI{}

func (c CRI) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, c.Timeout)
}

// Exec asks for the URL of an exec stream.
func (c CRI) Exec(ctx context.Context, containerID string, cmd []string, s Streams) (*url.URL, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r, err := c.Client.Exec(ctx, &runtimeapi.ExecRequest{
		ContainerId: containerID, Cmd: cmd, Tty: s.TTY, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr,
	})
	if err != nil {
		return nil, fmt.Errorf("exec in container %s: %w", containerID, err)
	}
	return streamURL(r.GetUrl())
}

// Attach asks for the URL of an attach stream.
func (c CRI) Attach(ctx context.Context, containerID string, s Streams) (*url.URL, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r, err := c.Client.Attach(ctx, &runtimeapi.AttachRequest{
		ContainerId: containerID, Tty: s.TTY, Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr,
	})
	if err != nil {
		return nil, fmt.Errorf("attach to container %s: %w", containerID, err)
	}
	return streamURL(r.GetUrl())
}

// PortForward asks for the URL of a port-forward stream.
func (c CRI) PortForward(ctx context.Context, sandboxID string, ports []int32) (*url.URL, error) {
	ctx, cancel := c.bounded(ctx)
	defer cancel()
	r, err := c.Client.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandboxID, Port: ports})
	if err != nil {
		return nil, fmt.Errorf("forward ports of sandbox %s: %w", sandboxID, err)
	}
	return streamURL(r.GetUrl())
}

// ExecSync runs a command to its end.
func (c CRI) ExecSync(ctx context.Context, containerID string, cmd []string) ([]byte, error) {
	r, err := c.Client.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: containerID, Cmd: cmd})
	if err != nil {
		return nil, fmt.Errorf("run in container %s: %w", containerID, err)
	}
	out := append(r.GetStdout(), r.GetStderr()...)
	if code := r.GetExitCode(); code != 0 {
		return nil, fmt.Errorf("command '%v' exited with %d: %s", cmd, code, out)
	}
	return out, nil
}

func streamURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("the container runtime's streaming URL: %w", err)
	}
	if u.Host == "" {
		return nil, fmt.Errorf("the container runtime's streaming URL %q has no host", text)
	}
	return u, nil
}
