package agenttest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ignoresDeletions is a bug: the agent hears of each deletion 20 s late.
func ignoresDeletions() *Bug {
	return &Bug{Hears: func(_ *World, body io.ReadCloser) io.ReadCloser {
		return &lateLines{body: body, closed: make(chan struct{}), from: bufio.NewReader(body), late: func(line []byte) time.Duration {
			if bytes.Contains(line, []byte(`"deletionTimestamp"`)) {
				return 20 * time.Second
			}
			return 0
		}}
	}}
}

// lateLines is the body of an answer. It delays each line by the time that late returns.
type lateLines struct {
	body   io.Closer
	from   *bufio.Reader
	late   func(line []byte) time.Duration
	rest   []byte
	closed chan struct{}
	once   sync.Once
}

// Close closes the body and ends the wait of a Read.
func (l *lateLines) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.body.Close()
}

func (l *lateLines) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		line, err := l.from.ReadBytes('\n')
		if len(line) == 0 {
			return 0, err
		}
		select {
		case <-time.After(l.late(line)):
		case <-l.closed:
			return 0, io.ErrClosedPipe
		}
		l.rest = line
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// saysOtherwise returns a bug that changes the statuses of pods on their way to the API server.
func saysOtherwise(change func(body []byte) []byte) *Bug {
	return &Bug{API: func(w *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		if podOf(w, r) == nil || r.Body == nil {
			return do(r)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = change(body)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return do(r)
	}}
}

func staysPending() *Bug {
	return saysOtherwise(func(body []byte) []byte {
		return bytes.ReplaceAll(body, []byte(`"phase":"Running"`), []byte(`"phase":"Pending"`))
	})
}

func countsOneMore() *Bug {
	count := regexp.MustCompile(`"restartCount":(\d+)`)
	return saysOtherwise(func(body []byte) []byte {
		return count.ReplaceAllFunc(body, func(found []byte) []byte {
			n, err := strconv.Atoi(strings.TrimPrefix(string(found), `"restartCount":`))
			if err != nil || n == 0 {
				return found
			}
			return []byte(`"restartCount":` + strconv.Itoa(n+1))
		})
	})
}

func saysAnotherExitCode() *Bug {
	return saysOtherwise(func(body []byte) []byte {
		return bytes.ReplaceAll(body, []byte(`"exitCode":0`), []byte(`"exitCode":7`))
	})
}

// killsBeforeItsTime is a bug: it kills a container a second after its stop began, although the grace period is longer.
func killsBeforeItsTime() *Bug {
	return &Bug{Runtime: func(ctx context.Context, w *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		if r, ok := in.(*runtimeapi.StopContainerRequest); ok && r.Timeout >= 3 {
			go func() {
				time.Sleep(time.Second)
				kill := &runtimeapi.RemoveContainerRequest{ContainerId: r.ContainerId}
				defer asks(w, kill)()
				_, _ = w.Runtime.RemoveContainer(context.WithoutCancel(ctx), kill)
			}()
		}
		return do(ctx, in)
	}}
}

// hurriesRestarts is a bug: it gives a container whose probe failed only one second to end, although its grace period is longer.
func hurriesRestarts() *Bug {
	return &Bug{Runtime: func(ctx context.Context, w *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		if r, ok := in.(*runtimeapi.StopContainerRequest); ok && w.Witness.isDoomed(r.ContainerId) {
			in = &runtimeapi.StopContainerRequest{ContainerId: r.ContainerId, Timeout: 1}
		}
		return do(ctx, in)
	}}
}

func (w *Witness) isDoomed(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, is := w.doomed[id]
	return is
}

// restartsTheHealthy is a bug: it stops a container with a liveness probe after ten seconds, although the probe never fails.
func restartsTheHealthy() *Bug {
	var mu sync.Mutex
	done := map[string]bool{}
	return &Bug{Runtime: func(ctx context.Context, w *World, in any, do func(context.Context, any) (any, error)) (any, error) {
		if _, ok := in.(*runtimeapi.ListPodSandboxRequest); !ok {
			return do(ctx, in)
		}
		for _, c := range w.Witness.Containers() {
			p := w.Kube.Pod(c.Namespace, c.Pod)
			mu.Lock()
			skip := done[c.ID] || !c.Running || time.Since(c.Started) < 10*time.Second || p == nil || probesFail(p) || p.Spec.Containers[0].LivenessProbe == nil
			done[c.ID] = !skip || done[c.ID]
			mu.Unlock()
			if skip {
				continue
			}
			stop := &runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: 30}
			over := asks(w, stop)
			_, _ = w.Runtime.StopContainer(ctx, stop)
			over()
		}
		return do(ctx, in)
	}}
}

// flapsBesideInits is a bug: it sometimes reports a pod with init containers as not ready, without a cause.
func flapsBesideInits() *Bug {
	return &Bug{API: func(w *World, r *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		if strings.Contains(r.URL.Path, "/leases/") && r.Method == http.MethodPut {
			for _, p := range w.Kube.Pods() {
				regular := len(p.Spec.InitContainers) > 0 && p.Spec.InitContainers[0].RestartPolicy == nil
				if Condition(p, v1.PodReady) == v1.ConditionTrue && regular {
					patchStatus(w, p, `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`)
				}
			}
		}
		return do(r)
	}}
}
