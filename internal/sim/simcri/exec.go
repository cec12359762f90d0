package simcri

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// command is the effect of a command in a running container: either a fixed result (answered is true), or a program that takes time.
type command struct {
	prog           *program
	stdout, stderr []byte
	code           int32
	answered       bool
}

// command determines the effect of the command cmd in the container id. The caller must not hold the lock.
func (r *Runtime) command(id string, cmd []string) (command, error) {
	r.mu.Lock()
	c, err := r.runningContainer(id)
	if err != nil {
		r.mu.Unlock()
		return command{}, err
	}
	info, healthy, env, do, copied := r.info(c), c.healthy(time.Now()), environment(c.sb.hostname, c.env), c.do, c.files.clone()
	r.mu.Unlock()
	if len(cmd) == 0 {
		return command{}, errInvalid("cmd is required")
	}
	if r.cfg.Exec != nil {
		if stdout, stderr, code, ok := r.cfg.Exec(info, cmd); ok {
			return command{stdout: stdout, stderr: stderr, code: code, answered: true}, nil
		}
	}
	if do != nil {
		if e := do.ExecAnswer(strings.Join(cmd, " "), info.Running); e != nil {
			return command{stdout: []byte(e.Stdout), stderr: []byte(e.Stderr), code: e.Code, answered: true}, nil
		}
	}
	p := compileExec(cmd, env, copied)
	if !healthy && (p.unknown || len(p.steps) == 0) && p.code == 0 {
		return command{stderr: []byte("simulated failure\n"), code: 1, answered: true}, nil
	}
	return command{prog: p}, nil
}

// ExecSync runs a command in a container and waits for its end.
func (r *Runtime) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	f, err := r.enter(ctx, "ExecSync", r.ofContainer(req.ContainerId))
	if err != nil {
		return nil, err
	}
	c, err := r.command(req.ContainerId, req.Cmd)
	if err != nil {
		return nil, err
	}
	if c.answered {
		return leave(ctx, f, &runtimeapi.ExecSyncResponse{Stdout: c.stdout, Stderr: c.stderr, ExitCode: c.code})
	}
	took := c.prog.took
	if c.prog.forever {
		took = -1
	}
	limit := seconds(req.Timeout)
	late := limit > 0 && (took < 0 || took > limit)
	if late {
		took = limit
	}
	ended, stop := r.ended(req.ContainerId)
	defer stop()
	began := time.Now()
	cut, err := pauseUntil(ctx, took, ended)
	switch {
	case err != nil:
		return nil, err
	case !cut && late:
		return nil, status.Errorf(codes.DeadlineExceeded, "failed to exec in container: timeout %v exceeded: context deadline exceeded", limit)
	}
	if cut { // the kernel kills the processes of a container that ends
		c.prog.code = killed.code
	}
	var stdout, stderr bytes.Buffer
	for _, s := range c.prog.steps {
		if cut && s.at > time.Since(began) {
			break
		}
		to := &stdout
		if s.stderr {
			to = &stderr
		}
		to.Write(atTime(s.out, r.cfg.Clock.Shows(time.Now())))
	}
	return leave(ctx, f, &runtimeapi.ExecSyncResponse{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), ExitCode: c.prog.code})
}

// writeLog appends output to the log file of a container, in CRI's format. If out is nil, it only creates the file. The caller holds
// the lock.
func (r *Runtime) writeLog(c *container, at time.Time, out []byte, stderr bool) {
	if !r.cfg.WriteLogs || c.logPath == "" {
		return
	}
	at = r.cfg.Clock.Shows(at)
	out = atTime(out, at)
	var b bytes.Buffer
	stream := "stdout"
	if stderr {
		stream = "stderr"
	}
	for len(out) > 0 {
		line, rest, whole := bytes.Cut(out, []byte("\n"))
		tag := " F "
		if !whole {
			tag = " P "
		}
		b.WriteString(at.UTC().Format(time.RFC3339Nano) + " " + stream + tag)
		b.Write(line)
		b.WriteByte('\n')
		out = rest
	}
	if err := appendFile(c.logPath, b.Bytes()); err != nil {
		r.cfg.Log.Debug("cannot write container log", "path", c.logPath, "err", err)
	}
}

// atTime replaces datePlaceholder, which stands for $(date), by the time.
func atTime(out []byte, at time.Time) []byte {
	return bytes.ReplaceAll(out, []byte(datePlaceholder), []byte(at.UTC().Format(time.UnixDate)))
}

func appendFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}

// ReopenContainerLog creates a new log file after a rotation.
func (r *Runtime) ReopenContainerLog(ctx context.Context, req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	f, err := r.enter(ctx, "ReopenContainerLog", r.ofContainer(req.ContainerId))
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	c := find(r.containers, req.ContainerId)
	switch {
	case c == nil:
		err = errNotFound("container", req.ContainerId)
	case c.state != runtimeapi.ContainerState_CONTAINER_RUNNING:
		err = status.Error(codes.Unknown, "container is not running")
	default:
		r.writeLog(c, time.Now(), nil, false)
	}
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return leave(ctx, f, &runtimeapi.ReopenContainerLogResponse{})
}

// CheckpointContainer returns an error, because there is no process.
func (r *Runtime) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	return nil, status.Error(codes.Unimplemented, "checkpointing is not supported: nothing runs in a simulated container")
}
