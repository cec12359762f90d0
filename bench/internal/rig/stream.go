package rig

import (
	"context"
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
)

// ExecFirstByte runs a command in a pod, as kubectl exec does, and returns the time until its first byte of output.
func (r *Rig) ExecFirstByte(ctx context.Context, pod string) (time.Duration, error) {
	began := time.Now()
	req := r.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(Namespace).Name(pod).SubResource("exec").
		VersionedParams(&v1.PodExecOptions{Command: []string{"echo", "here"}, Stdout: true}, scheme.ParameterCodec)
	e, err := remotecommand.NewWebSocketExecutor(r.admin, http.MethodGet, req.URL().String())
	if err != nil {
		return 0, err
	}
	out := &firstWrite{}
	if err := e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out}); err != nil {
		return 0, fmt.Errorf("exec in pod %s: %w", pod, err)
	}
	if out.at.IsZero() {
		return 0, fmt.Errorf("exec in pod %s: no output", pod)
	}
	return out.at.Sub(began), nil
}

// firstWrite is a writer that records the time of the first write.
type firstWrite struct{ at time.Time }

func (f *firstWrite) Write(p []byte) (int, error) {
	if f.at.IsZero() && len(p) > 0 {
		f.at = time.Now()
	}
	return len(p), nil
}

// LogsFirstByte reads a pod's log, as kubectl logs does, and returns the time until the first byte.
func (r *Rig) LogsFirstByte(ctx context.Context, pod string) (time.Duration, error) {
	began := time.Now()
	s, err := r.Client.CoreV1().Pods(Namespace).GetLogs(pod, &v1.PodLogOptions{}).Stream(ctx)
	if err != nil {
		return 0, fmt.Errorf("logs of pod %s: %w", pod, err)
	}
	defer s.Close()
	if _, err := s.Read(make([]byte, 1)); err != nil {
		return 0, fmt.Errorf("logs of pod %s: %w", pod, err)
	}
	return time.Since(began), nil
}
