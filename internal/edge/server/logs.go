package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/server/crilog"
)

// logQuery holds the PodLogOptions from the query of a containerLogs request.
type logQuery struct {
	crilog.Options
	follow, previous bool
}

// badQuery is an error about a value of a query that cannot be parsed (400) or makes no sense (422).
type badQuery struct {
	status int
	text   string
}

func (e *badQuery) Error() string { return e.text }

// parseLogQuery reads PodLogOptions from the query of a request. sinceSeconds counts back from now.
func parseLogQuery(q url.Values, now time.Time) (o logQuery, err error) {
	p := queryParser{values: q}
	o.follow = p.bool("follow")
	o.previous = p.bool("previous")
	o.Timestamps = p.bool("timestamps")
	o.Limit = p.int("limitBytes", 1)
	if q.Get("tail") != "" && q.Get("tail") != "all" { // tail is an old name of the parameter tailLines
		o.Tail = p.int("tail", 0)
	} else if q.Get("tail") == "" {
		o.Tail = p.int("tailLines", 0)
	}
	seconds := p.int("sinceSeconds", 1)
	since := q.Get("sinceTime")
	if seconds != nil && since != "" {
		p.fail(http.StatusUnprocessableEntity, "sinceSeconds: at most one of sinceTime or sinceSeconds may be given")
	}
	if seconds != nil {
		o.Since = now.Add(-min(time.Duration(*seconds), 1<<33) * time.Second)
	}
	if since != "" {
		if o.Since, err = time.Parse(time.RFC3339Nano, since); err != nil {
			p.fail(http.StatusBadRequest, fmt.Sprintf("sinceTime: %q is not a time in RFC 3339 form", since))
		}
	}
	switch s := crilog.Stream(q.Get("stream")); s {
	case "", crilog.All, crilog.Stdout, crilog.Stderr:
		o.Stream = s
	default:
		p.fail(http.StatusUnprocessableEntity, fmt.Sprintf("stream: %q is not one of All, Stdout, Stderr", s))
	}
	if p.err != nil {
		return logQuery{}, p.err
	}
	return o, nil
}

// queryParser reads values of a query and keeps the first error.
type queryParser struct {
	values url.Values
	err    error
}

func (p *queryParser) fail(status int, text string) {
	if p.err == nil {
		p.err = &badQuery{status, text}
	}
}

func (p *queryParser) bool(name string) bool {
	if !p.values.Has(name) {
		return false
	}
	switch v := p.values.Get(name); v {
	case "", "true", "1", "True", "TRUE", "t": // a parameter without a value means true
		return true
	case "false", "0", "False", "FALSE", "f":
		return false
	default:
		p.fail(http.StatusBadRequest, fmt.Sprintf("%s: %q is not true or false", name, v))
		return false
	}
}

func (p *queryParser) int(name string, least int64) *int64 {
	v := p.values.Get(name)
	if v == "" {
		return nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		p.fail(http.StatusBadRequest, fmt.Sprintf("%s: %q is not a number", name, v))
		return nil
	}
	if n < least {
		p.fail(http.StatusUnprocessableEntity, fmt.Sprintf("%s: %d is less than %d", name, n, least))
	}
	return &n
}

// serveLogs answers /containerLogs/NAMESPACE/POD/CONTAINER.
func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request) {
	o, err := parseLogQuery(r.URL.Query(), s.cfg.Clock.Shows(time.Now())) // the log has times of the node's clock
	if bad := (*badQuery)(nil); errors.As(err, &bad) {
		http.Error(w, bad.text, bad.status)
		return
	}
	podName, name := r.PathValue("pod"), r.PathValue("container")
	p, ok := s.cfg.Pods.Pod(r.PathValue("namespace"), podName)
	if !ok {
		http.Error(w, fmt.Sprintf("pod %q does not exist", podName), http.StatusNotFound)
		return
	}
	if pod.SpecOf(p, name) == nil {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", name, podName), http.StatusNotFound)
		return
	}
	c, err := s.logged(p, name, o.previous)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx := r.Context()
	if o.follow {
		o.Running = func() bool { return s.running(p, c.ID) }
		var stop func()
		ctx, stop = s.whileGranted(ctx)
		defer stop()
	}
	s.sendLog(ctx, w, c.LogPath, o.Options)
}

// sendLog streams a log. After the first byte of the log was sent, sendLog can only append the text of an error to the log.
func (s *Server) sendLog(ctx context.Context, w http.ResponseWriter, path string, o crilog.Options) {
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Time{}) // a client may follow a log for as long as its container runs
	// If the client follows the log, wrote is true from the start, so that the first Flush sends the headers: the client sees that it is
	// connected before the first line arrives.
	lw := &logWriter{ResponseWriter: w, wrote: o.Running != nil}
	o.Flush = func() {
		if lw.wrote { // if nothing was written, the answer can still become an error
			_ = out.Flush() // ignore the error: if the client is gone, the next write fails or ctx ends
		}
	}
	w.Header().Set("Content-Type", "text/plain")
	o.Flush()
	err := crilog.Read(ctx, path, o, lw)
	switch {
	case err == nil || lw.failed:
	case ctx.Err() != nil:
		// The agent ends, the user has lost the right to the log, or the client is gone. A client that is still there must not take this for the
		// end of the container, so the answer ends as if the connection broke.
		panic(http.ErrAbortHandler)
	case lw.wrote:
		s.cfg.Log.Warn("reading a container log failed", "path", path, "err", err)
		fmt.Fprintf(w, "\nfailed to read container log: %v\n", err)
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, fmt.Sprintf("unable to retrieve container logs: %s does not exist", path), http.StatusNotFound)
	default:
		s.cfg.Log.Warn("reading a container log failed", "path", path, "err", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// logWriter remembers whether anything was written and whether that failed.
type logWriter struct {
	http.ResponseWriter
	wrote, failed bool
}

func (w *logWriter) Write(b []byte) (int, error) {
	w.wrote = true
	n, err := w.ResponseWriter.Write(b)
	w.failed = w.failed || err != nil
	return n, err
}

// logged finds the attempt of a container whose log the request names. It searches the attempts in the runtime. If none has a
// log, the error gives the reason from the pod's status.
func (s *Server) logged(p *v1.Pod, name string, previous bool) (*pod.Container, error) {
	o, _ := s.cfg.Pods.Observed(p.UID)
	var attempts []*pod.Container // the attempts that have started, newest first
	if o != nil {
		for i := range o.Containers {
			if c := &o.Containers[i]; c.Name == name && c.State != pod.StateCreated {
				attempts = append(attempts, c)
			}
		}
	}
	if previous {
		// While a container waits for its next attempt, its newest attempt counts as the previous attempt.
		st := pod.StatusOf(&p.Status, name)
		if st != nil && st.State.Waiting != nil && len(attempts) > 0 && attempts[0].State == pod.StateExited {
			return attempts[0], nil
		}
		if len(attempts) < 2 {
			return nil, fmt.Errorf("previous terminated container %q in pod %q not found", name, p.Name)
		}
		return attempts[1], nil
	}
	if len(attempts) > 0 {
		return attempts[0], nil
	}
	return nil, errors.New(noLog(p, name))
}

// noLog says why a container has no log, in the texts that kubectl users know.
func noLog(p *v1.Pod, name string) string {
	st := pod.StatusOf(&p.Status, name)
	switch {
	case st == nil:
		return fmt.Sprintf("container %q in pod %q is not available", name, p.Name)
	case st.State.Terminated != nil:
		return fmt.Sprintf("container %q in pod %q is terminated", name, p.Name)
	case st.State.Waiting == nil:
		return fmt.Sprintf("container %q in pod %q is waiting to start - no logs yet", name, p.Name)
	}
	reason := st.State.Waiting.Reason
	switch reason {
	case "ErrImagePull":
		reason = "image can't be pulled"
	case "ImagePullBackOff":
		reason = "trying and failing to pull image"
	}
	return fmt.Sprintf("container %q in pod %q is waiting to start: %s", name, p.Name, reason)
}

// running reports whether a container still runs, according to the newest inspection.
func (s *Server) running(p *v1.Pod, id string) bool {
	o, _ := s.cfg.Pods.Observed(p.UID)
	c := o.ByID(id)
	return c != nil && c.Alive()
}
