package agenttest

import (
	"context"
	"log/slog"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/agent"
)

// StartAgent starts an agent. The pods and files that the previous agent has left on the machine are still there.
func (w *World) StartAgent() {
	w.Helper()
	if w.Alive() {
		w.Fatal("an agent is running")
	}
	kubelet := agent.DefaultConfiguration()
	kubelet.EnableServer = new(false)
	cfg := agent.Config{NodeName: NodeName, Kubelet: kubelet, StartSlots: 10} // the default of StartSlots depends on the machine of the test
	if w.cfg.Agent != nil {
		w.cfg.Agent(&cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := newLine(w, func() {
		cancel()
		w.Witness.agent(nil)
	})
	client := &rest.Config{Host: "http://simkube", Transport: l, UserAgent: agentName, QPS: -1}
	w.Witness.rereads = kubelet.FileCheckFrequency.Duration
	if w.cfg.Standalone {
		client = nil
	}
	shape := agent.Shape{PullRecords: w.cfg.PullRecords, PollManifests: true}
	if w.cfg.Memory != "" || w.cfg.Storage != "" {
		w.measure(&shape)
	}
	if w.cfg.CSI != nil {
		shape.Volumes, shape.Mounts = w.volumes, mountTable{w, l}
		shape.Drivers = map[string]func(context.Context) (net.Conn, error){w.cfg.CSI.Name: l.dialDriver}
	}
	if !w.cfg.Forgetful {
		shape.Disk = disk{w.disk, l}
	}
	deps := agent.Deps{
		Client: client, Runtime: l, Images: l, Dialer: dialer{w, l}, Machine: agent.SimulatedMachine(shape), Control: w.newControl(),
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	if w.cfg.Deps != nil {
		w.cfg.Deps(&deps)
	}
	w.started = cfg
	a, err := agent.New(cfg, deps)
	if err != nil {
		w.Fatal(err)
	}
	ended := make(chan error, 1)
	w.line, w.agent, w.end, w.ended = l, a, cancel, ended
	w.Witness.agent(l.known)
	if w.cfg.Record {
		w.Witness.recalls(l.known)
	}
	go func() { ended <- a.Run(ctx) }()
}

// measure sets the sizes of the machine's memory and disk, and how much of them the containers use.
func (w *World) measure(s *agent.Shape) {
	if w.cfg.Memory != "" {
		s.Memory = resource.MustParse(w.cfg.Memory)
	}
	if w.cfg.Storage != "" {
		s.Storage = resource.MustParse(w.cfg.Storage)
	}
	s.Used = func() agent.Used {
		memory, disk, processes := w.Runtime.Used()
		return agent.Used{Memory: memory, Storage: disk, Processes: processes}
	}
}

// Alive reports whether an agent runs. A call of CrashAfter may have ended it.
func (w *World) Alive() bool { return w.line != nil && !w.line.isCut() }

// StopAgent ends the agent as SIGTERM would, and waits until it has ended.
func (w *World) StopAgent() {
	w.Helper()
	if w.line == nil {
		return
	}
	if w.line.isCut() {
		w.bury()
		return
	}
	w.end()
	if err := <-w.ended; err != nil {
		w.Errorf("the agent ended with %v", err)
	}
	w.Witness.agent(nil)
	w.line.end()
	w.line, w.agent, w.control = nil, nil, nil
}

// CrashAgent kills the agent as SIGKILL would: from now on its calls have no effect. If goesOn is true, calls in flight complete in the
// runtime; otherwise they are canceled.
func (w *World) CrashAgent(goesOn bool) {
	if w.Alive() {
		w.line.cut(goesOn)
	}
	w.bury()
}

// CrashAfter kills the agent at its n-th action on the runtime from now: before the action or, if done is true, after the action and before
// the agent gets the result. goesOn is as in CrashAgent.
func (w *World) CrashAfter(n int, done, goesOn bool) {
	if w.Alive() {
		w.line.light(n, done, goesOn)
	}
}

// bury removes a killed agent from the World. Its goroutines end in the background; World.close waits for them.
func (w *World) bury() {
	if w.line != nil {
		w.ghosts = append(w.ghosts, w.ended)
		w.line, w.agent, w.control = nil, nil, nil
		w.crashes++
	}
}

// RestartAgent stops the agent and starts another one after the pause.
func (w *World) RestartAgent(pause time.Duration) {
	w.Helper()
	w.StopAgent()
	time.Sleep(pause)
	w.StartAgent()
}
