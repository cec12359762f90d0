package agenttest

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// clock is the difference between the wall clock of the machine and that of the API server. A test cannot change the clock of a synctest
// bubble. Instead the type line, which stands between the agent and its surroundings, shifts the times in all messages. As on a real
// machine, durations that Go measures between two readings do not change.
//
//   - The runtime is on the same machine. Times that it recorded before the clock was changed look older by the change; later times do
//     not.
//   - The API server is on another machine. After a change of the clock all its times look older, and the times that it gets from the
//     agent contain the change.
//   - Times on the disk do not change: they were written with the clock of that time.
type clock struct {
	stamps *regexp.Regexp
	mu     sync.Mutex
	jumps  []jump
}

type jump struct {
	at time.Time
	by time.Duration
}

func newClock() *clock {
	return &clock{stamps: regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`)}
}

// move changes the machine's clock by whole seconds.
func (c *clock) move(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jumps = append(c.jumps, jump{time.Now(), by.Truncate(time.Second)})
}

// ahead returns how far the machine's clock is ahead of the API server's.
func (c *clock) ahead() (d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.jumps {
		d += j.by
	}
	return d
}

func (c *clock) moved() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.jumps) > 0
}

// noted shifts a time that the runtime has recorded, in nanoseconds since 1970, if the time is from before a change of the clock. 0 means
// that there is no time.
func (c *clock) noted(ns *int64) {
	if *ns == 0 {
		return
	}
	at := *ns
	for _, j := range c.jumps {
		if at < j.at.UnixNano() {
			*ns -= int64(j.by)
		}
	}
}

// answered returns an answer of the runtime in which the times are those of the agent's clock.
func (c *clock) answered(out any) any {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.jumps) == 0 {
		return out
	}
	container := func(s *runtimeapi.ContainerStatus) {
		c.noted(&s.CreatedAt)
		c.noted(&s.StartedAt)
		c.noted(&s.FinishedAt)
	}
	switch r := out.(type) { // an answer may be shared, so it is copied before a change
	case *runtimeapi.ContainerStatusResponse:
		if r.GetStatus() != nil {
			r = proto.CloneOf(r)
			container(r.Status)
		}
		return r
	case *runtimeapi.PodSandboxStatusResponse:
		if r.GetStatus() != nil {
			r = proto.CloneOf(r)
			c.noted(&r.Status.CreatedAt)
			for _, s := range r.ContainersStatuses {
				container(s)
			}
		}
		return r
	case *runtimeapi.ListContainersResponse:
		r = proto.CloneOf(r)
		for _, o := range r.GetContainers() {
			c.noted(&o.CreatedAt)
		}
		return r
	case *runtimeapi.ListPodSandboxResponse:
		r = proto.CloneOf(r)
		for _, o := range r.GetItems() {
			c.noted(&o.CreatedAt)
		}
		return r
	}
	return out
}

// shift changes every time in a JSON text.
func (c *clock) shift(text []byte, by time.Duration) []byte {
	if by == 0 {
		return text
	}
	return c.stamps.ReplaceAllFunc(text, func(quoted []byte) []byte {
		at, err := time.Parse(time.RFC3339Nano, string(quoted[1:len(quoted)-1]))
		if err != nil {
			return quoted
		}
		layout := time.RFC3339
		if bytes.IndexByte(quoted, '.') > 0 {
			layout = "2006-01-02T15:04:05.000000Z07:00"
		}
		return []byte(`"` + at.Add(by).Format(layout) + `"`)
	})
}

// sent returns a request of the agent in which the times are those of the API server's clock.
func (c *clock) sent(r *http.Request) (*http.Request, error) {
	by := c.ahead()
	if by == 0 || r.Body == nil || !strings.Contains(r.Header.Get("Content-Type"), "json") {
		return r, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_ = r.Body.Close() // returns no error, because it reads from memory
	body = c.shift(body, by)
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r, nil
}

// received returns the body of the API server's answer in which the times are those of the agent's clock. It works line by line, because a
// watch has one line for each event.
func (c *clock) received(body io.ReadCloser) io.ReadCloser {
	return &lines{body, bufio.NewReader(body), c, nil, nil}
}

type lines struct {
	io.Closer
	from *bufio.Reader
	c    *clock
	rest []byte
	err  error
}

// Read returns data of the body after the times in it have been converted.
func (l *lines) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		var line []byte
		line, l.err = l.from.ReadBytes('\n')
		if l.rest = l.c.shift(line, -l.c.ahead()); len(l.rest) == 0 {
			return 0, l.err
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}
