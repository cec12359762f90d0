package credplugin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// maxAnswer bounds the output of a plugin, in bytes.
const maxAnswer = 1 << 20

// afterKill is how long the agent waits for the pipes of a plugin that has ended. A child process that has left the plugin's process group
// may keep them open.
const afterKill = 2 * time.Second

// exec runs the plugin once. Its errors quote nothing that the plugin wrote, since that may be a secret.
func (p *plugin) exec(ctx context.Context, limit time.Duration, request pluginapi.CredentialProviderRequest) (*pluginapi.CredentialProviderResponse, error) {
	request.TypeMeta = metav1.TypeMeta{Kind: "CredentialProviderRequest", APIVersion: p.APIVersion}
	in, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out := &bounded{left: maxAnswer, full: cancel}
	cmd := exec.CommandContext(ctx, p.path, p.Args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), out, io.Discard
	cmd.Env = slices.Clone(os.Environ())
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the plugin has a process group of its own, so that its children are killed with it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = afterKill
	if err = cmd.Start(); err == nil {
		endGroup(cmd.Process.Pid)
		err = cmd.Wait()
	}
	switch {
	case out.exceeded:
		return nil, fmt.Errorf("it wrote more than %d bytes", maxAnswer)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fmt.Errorf("it did not answer within %s", limit)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // with ErrWaitDelay the plugin succeeded, and only its pipes were still open
		return nil, fmt.Errorf("run it: %w (run %s by hand to see its output)", err, p.path)
	}
	return p.decode(out.kept.Bytes())
}

// endGroup blocks until a plugin has exited, then kills what is left of its process group: a child that keeps the plugin's output open would
// delay the answer, and would stay. The plugin must not have been waited for: until then no other process can get its ID.
func endGroup(leader int) {
	for {
		err := unix.Waitid(unix.P_PID, leader, nil, unix.WEXITED|unix.WNOWAIT, nil)
		switch {
		case err == nil:
			_ = unix.Kill(-leader, unix.SIGKILL) // an error means that no process is left
			return
		case !errors.Is(err, unix.EINTR):
			return
		}
	}
}

// decode parses the output of a plugin.
func (p *plugin) decode(raw []byte) (*pluginapi.CredentialProviderResponse, error) {
	r := &pluginapi.CredentialProviderResponse{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, errors.New("its answer is not the JSON of a CredentialProviderResponse")
	}
	if r.Kind != "CredentialProviderResponse" || r.APIVersion != p.APIVersion {
		return nil, fmt.Errorf("its answer is not a CredentialProviderResponse of %s, which it is configured to speak", p.APIVersion)
	}
	switch r.CacheKeyType {
	case pluginapi.ImagePluginCacheKeyType, pluginapi.RegistryPluginCacheKeyType, pluginapi.GlobalPluginCacheKeyType:
		return r, nil
	}
	return nil, errors.New("the cacheKeyType of its answer is none of Image, Registry and Global")
}

// bounded stores what is written to it until it is full. The buffer is not embedded, because its ReadFrom would have no bound.
type bounded struct {
	kept     bytes.Buffer
	left     int
	full     func()
	exceeded bool
}

// Write stores b. If b does not fit, it calls full instead.
func (w *bounded) Write(b []byte) (int, error) {
	if len(b) > w.left {
		w.exceeded = true
		w.full()
		return 0, errors.New("too much output")
	}
	w.left -= len(b)
	return w.kept.Write(b)
}
