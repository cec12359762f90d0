package fleetctl

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
)

// said is what a command says. It may be read while the command runs.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) has(text string) func() bool {
	return func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(s.text.String(), text)
	}
}

// isEarly reports whether an error says that expectations did not hold because somebody ended the wait for them.
func isEarly(err error) bool {
	var unmet *fleet.Unmet
	return errors.As(err, &unmet) && strings.Contains(err.Error(), "ended before the expectations held: ")
}

// A fleet that is ended before the expectations of its user hold fails (fleet.Unmet), whoever ends it. It does not fail if they have held, or if the user
// waits for none. A fleet that fails by itself says why.
func TestEndedBeforeTheExpectationsHold(t *testing.T) {
	t.Parallel()
	_, kubeconfig := cluster(t)
	for _, c := range []struct {
		name      string
		change    func(r *Run)
		await     string // what the command says before it is ended
		interrupt bool   // by the context; otherwise with wherry fleet stop
		early     bool
	}{
		{"stopped", func(r *Run) { r.Expect = []string{"nodes.ready>2"} }, "", false, true},
		{"interrupted", func(r *Run) { r.Expect = []string{"nodes=ready", "pods.running>=1"} }, "", true, true},
		{"within", func(r *Run) { r.Pods, r.Within = 5, time.Hour }, "nodes Ready in", false, true}, // no scheduler, so no pod runs
		{"once", func(r *Run) { r.Pods, r.Once = 5, true }, "nodes Ready in", false, true},
		{"held", func(r *Run) { r.Expect = []string{"nodes=ready"} }, "the fleet runs", false, false},
		{"not asked", func(r *Run) { r.Pods = 5 }, "nodes Ready in", true, false},
	} {
		var out said
		ctx, cancel := context.WithCancel(t.Context())
		r := Run{Name: "f", Nodes: 2, Kubeconfig: kubeconfig, Yes: true, Identity: "shared", NoServe: true, Namespace: "default", Socket: filepath.Join(t.TempDir(), "s")}
		c.change(&r)
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx, &out) }()
		client := Client{Name: "f", Socket: r.Socket}
		until(t, c.name+": the fleet runs", func() bool {
			_, err := client.State(t.Context())
			return err == nil && out.has(c.await)()
		})
		if c.interrupt {
			cancel()
		} else if _, err := client.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; isEarly(err) != c.early || !c.early && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		cancel()
	}
}

// A fleet that cannot begin, and a wait that is interrupted.
func TestEndedWithoutAFleet(t *testing.T) {
	t.Parallel()
	_, kubeconfig := cluster(t)
	first := Run{Name: "f", Nodes: 1, Kubeconfig: kubeconfig, Yes: true, Identity: "shared", NoServe: true, Socket: filepath.Join(t.TempDir(), "s")}
	ended := make(chan error, 1)
	go func() { ended <- first.Run(t.Context(), &bytes.Buffer{}) }()
	c := Client{Name: "f", Socket: first.Socket}
	until(t, "the node has renewed its lease", func() bool {
		s, err := c.State(t.Context())
		return err == nil && s.Settled() && s.Leases.Renewals > 0
	})
	second := first
	second.Socket, second.Expect = filepath.Join(t.TempDir(), "s"), []string{"nodes=ready"}
	var unmet *fleet.Unmet
	if err := second.Run(t.Context(), &bytes.Buffer{}); err == nil || errors.As(err, &unmet) || !strings.Contains(err.Error(), "the fleet f runs already") {
		t.Errorf("a second fleet of the name: %v", err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	time.AfterFunc(200*time.Millisecond, cancel)
	var out bytes.Buffer
	if err := (&Expect{Client: c, Texts: []string{"nodes.ready>=5"}}).Run(interrupted, &out); !isEarly(err) || !strings.Contains(out.String(), "nodes.ready>=5: does not hold") {
		t.Errorf("wherry fleet expect is interrupted: %v: %s", err, &out)
	}
	silent := Client{Name: "f", Socket: filepath.Join(t.TempDir(), "s")}
	l, err := net.Listen("unix", silent.Socket) // as a fleet whose control plane starts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = (&Expect{Client: silent, Texts: []string{"nodes=ready"}, Within: 200 * time.Millisecond}).Run(t.Context(), &bytes.Buffer{})
	if !errors.As(err, &unmet) || !strings.Contains(err.Error(), "nodes=ready (now: unknown: the fleet has not answered)") {
		t.Errorf("a fleet that does not answer: %v", err)
	}
	program, _ := ownPlane(t, kubeconfig)
	third := Run{Name: "g", Nodes: 1, ControlPlane: program, Identity: "shared", NoServe: true, Socket: filepath.Join(t.TempDir(), "s"), Expect: []string{"nodes=ready"}}
	if err := third.Run(interrupted, &bytes.Buffer{}); !isEarly(err) {
		t.Errorf("interrupted while the control plane starts: %v", err)
	}
	if _, err := c.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A run in virtual time that is interrupted fails if its expectations have not held: with Within by then, otherwise at the end of the time.
func TestVirtualInterruptedWithExpectations(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		within time.Duration
		expect string
		early  bool
	}{
		{0, "nodes=ready", true}, {90_000 * time.Hour, "nodes.ready>2", true}, {time.Hour, "nodes=ready", false},
	} {
		var out said
		ctx, cancel := context.WithCancel(t.Context())
		r := Run{Name: "f", Nodes: 2, Namespace: "default", Virtual: 100_000 * time.Hour, Within: c.within, Expect: []string{c.expect}, Result: &bytes.Buffer{}}
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx, &out) }()
		until(t, "the nodes are Ready", out.has("2 of 2 nodes Ready"))
		cancel()
		if err := <-ended; isEarly(err) != c.early || !c.early && err != nil {
			t.Errorf("%s within %s: %v", c.expect, c.within, err)
		}
	}
}
