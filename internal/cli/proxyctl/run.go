package proxyctl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/wherry-node/wherry/agent/fleet"
	"github.com/wherry-node/wherry/agent/simulated"
	"github.com/wherry-node/wherry/internal/cli/ctlsocket"
	"github.com/wherry-node/wherry/internal/edge/criproxy"
	"github.com/wherry-node/wherry/internal/edge/server"
	"github.com/wherry-node/wherry/internal/edge/socket"
)

// Injection is a fault of the runtime, with the time that it lasts.
type Injection struct {
	Fault simulated.Fault `json:"fault"`
	// Seed decides which calls Fault.Chance hits.
	Seed uint64        `json:"seed"`
	For  time.Duration `json:"for"` // 0: until it is healed
}

// check returns an error if the fault is not valid. It names the flag that is wrong: the flags have the names of the fields.
func (i *Injection) check() error {
	err := i.Fault.Check()
	if wrong, ok := errors.AsType[*simulated.FieldError](err); ok {
		return fmt.Errorf("--%s: %w", wrong.Field, wrong.Err)
	}
	return err
}

// fault returns the fault for a proxy.
func (i *Injection) fault() (criproxy.Fault, error) {
	f := &i.Fault
	if err := f.Check(); err != nil {
		return criproxy.Fault{}, err
	}
	out := criproxy.Fault{Method: f.Method, Effect: criproxy.Slow, Err: f.Err(), Delay: f.Delay, Chance: f.Chance, Seed: i.Seed, For: i.For}
	switch {
	case f.LoseEvents:
		out.Effect, out.Method = criproxy.LoseEvents, ""
	case f.LoseAnswer:
		out.Effect = criproxy.LoseAnswer
	case f.Hang:
		out.Effect = criproxy.Hang
	case f.Error != "":
		out.Effect = criproxy.Refuse
	}
	return out, nil
}

// Run is the command `wherry cri proxy`.
type Run struct {
	Listen  string // where clients call: unix:///PATH
	Runtime string // the real runtime: unix:///PATH
	Socket  string // the control socket; "": the usual one
	// Scenario is a file with faults that happen; "": none. Record is a file that gets a line for each call; "": none. With the file before
	// it, it has at most RecordLimit MiB.
	Scenario, Record string
	RecordLimit      int64
	// Fault is active from the start; the zero value: none is.
	Fault Injection
	Log   *slog.Logger
}

// Run forwards calls until ctx ends.
func (r *Run) Run(ctx context.Context) error {
	listen, runtime, err := r.paths()
	if err != nil {
		return err
	}
	var plan *fleet.Scenario
	if r.Scenario != "" {
		if plan, err = readScenario(r.Scenario); err != nil {
			return err
		}
	}
	cfg := criproxy.Config{Log: r.Log, Dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", runtime)
	}}
	var rec *record
	if r.Record != "" {
		if rec, err = openRecord(r.Record, r.RecordLimit, r.Log); err != nil {
			return err
		}
		defer rec.close()
		cfg.Ended = rec.add
	}
	proxy, err := criproxy.New(cfg)
	if err != nil {
		return err
	}
	defer func() { _, _ = proxy.Heal("") }() // if the proxy is not served, its faults end here
	if err := r.begin(proxy); err != nil {
		return err
	}
	commands, l, err := r.sockets(listen)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	c := &control{proxy: proxy, listen: r.Listen, runtime: r.Runtime, began: time.Now(), record: rec, plays: plays{ctx: ctx, proxy: proxy, log: r.Log}}
	others.Go(func() {
		if err := server.Serve(ctx, commands, c.handler(), server.ServeOptions{Log: r.Log}); err != nil {
			r.Log.Error("the control socket is not served any more", "err", err)
		}
		<-ctx.Done()
		c.plays.wait()
	})
	if plan != nil {
		if err := c.plays.begin(r.Scenario, plan); err != nil {
			_ = l.Close()
			return err
		}
	}
	r.Log.Info("CRI proxy listens", "listen", r.Listen, "runtime", r.Runtime, "control", socketPath(r.Socket))
	return proxy.Serve(ctx, l)
}

// sockets opens the control socket, and the socket for clients of CRI at the path listen.
func (r *Run) sockets(listen string) (commands, clients net.Listener, err error) {
	commands, err = socket.Listen(socketPath(r.Socket), ctlsocket.Dir())
	if errors.Is(err, socket.ErrInUse) {
		return nil, nil, fmt.Errorf("a CRI proxy runs already with the control socket %s: choose another with --socket", socketPath(r.Socket))
	}
	if err != nil {
		return nil, nil, err
	}
	if clients, err = socket.ListenUnused(listen); err != nil {
		_ = commands.Close()
		return nil, nil, fmt.Errorf("--listen=%s: %w", r.Listen, err)
	}
	return commands, clients, nil
}

// begin makes the fault active that the user wants from the start.
func (r *Run) begin(proxy *criproxy.Proxy) error {
	if r.Fault.Fault == (simulated.Fault{}) && r.Fault.For == 0 {
		return nil
	}
	if err := r.Fault.check(); err != nil {
		return err
	}
	f, err := r.Fault.fault()
	if err != nil {
		return err
	}
	_, err = proxy.Inject(f)
	return err
}

// paths returns the paths of the two sockets of CRI.
func (r *Run) paths() (listen, runtime string, err error) {
	for _, e := range []struct {
		flag, value string
		path        *string
	}{{"listen", r.Listen, &listen}, {"runtime", r.Runtime, &runtime}} {
		path, ok := strings.CutPrefix(e.value, "unix://")
		if !ok || !filepath.IsAbs(path) {
			return "", "", fmt.Errorf("--%s=%q: use unix:// and the absolute path of a socket", e.flag, e.value)
		}
		*e.path = filepath.Clean(path)
	}
	if listen == runtime {
		return "", "", fmt.Errorf("--listen and --runtime are both %s: the proxy needs a socket of its own", r.Listen)
	}
	if own := filepath.Clean(socketPath(r.Socket)); own == listen || own == runtime { // the control socket replaces the file at its path
		return "", "", fmt.Errorf("--socket=%s is the path of --listen or --runtime: the proxy needs a control socket of its own", own)
	}
	return listen, runtime, nil
}

// socketPath returns the control socket; asked is the path that the user chose, or "".
func socketPath(asked string) string {
	if asked != "" {
		return asked
	}
	return filepath.Join(ctlsocket.Dir(), "cri-proxy.sock")
}
