package rig

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"text/template"
	"time"
)

// Program is a node agent that understands the kubelet's flags and configuration file.
type Program struct {
	Name string   // name of the agent in the benchmark's table; the node is called "bench-" and this name
	Args []string // path of the program, and its first arguments
	// Config has additional lines of the agent's KubeletConfiguration.
	Config string
}

// Agent is a node agent of the benchmark. It can be stopped and started again.
type Agent struct {
	Node string
	rig  *Rig
	prog Program
	port int
	cmd  *exec.Cmd
	done chan struct{}
	// ended is the processor time of the agent's processes that have ended, in nanoseconds.
	ended atomic.Int64
	// Began is when the process was last started.
	Began time.Time
}

// agentConfig is the configuration of every agent: upstream's defaults, except for paths and for features that the benchmark's
// machine lacks.
var agentConfig = template.Must(template.New("config").Parse(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: "unix://{{.Socket}}"
address: 0.0.0.0
port: {{.Port}}
healthzPort: 0
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: "{{.CA}}"}
authorization: {mode: Webhook}
rotateCertificates: true
clusterDomain: cluster.local
clusterDNS: [10.96.0.10]
podLogsDir: "{{.Dir}}/logs"
volumePluginDir: "{{.Dir}}/plugins"
cgroupDriver: cgroupfs
cgroupRoot: "{{.Cgroup}}"
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
maxPods: 1000
{{.More}}`))

// NewAgent prepares the directories and the port of a node agent. Start starts the agent.
func (r *Rig) NewAgent(p Program) (*Agent, error) {
	a := &Agent{Node: "bench-" + p.Name, rig: r, prog: p}
	for _, d := range []string{"root", "pki", "logs", "plugins", "config"} {
		if err := os.MkdirAll(a.path(d), 0o755); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a.port = l.Addr().(*net.TCPAddr).Port
	r.cgroups = append(r.cgroups, a.cgroup())
	return a, l.Close()
}

func (a *Agent) path(elem ...string) string {
	return a.rig.path(append([]string{a.prog.Name}, elem...)...)
}

// configFile returns the path of the agent's configuration. Nothing else is in its directory, because Wherry watches that directory, and the
// kernel would report each line of a log in it.
func (a *Agent) configFile() string { return a.path("config", "config.yaml") }

func (a *Agent) cgroup() string { return Cgroup(a.prog.Name) }

// Start writes the agent's configuration and starts the agent. The agent connects to the container runtime at socket.
func (a *Agent) Start(socket string) error {
	var b bytes.Buffer
	if err := agentConfig.Execute(&b, map[string]any{
		"Socket": socket, "Port": a.port, "CA": a.rig.path("cp", "ca.crt"), "Dir": a.path(), "Cgroup": a.cgroup(), "More": a.prog.Config,
	}); err != nil {
		return err
	}
	if err := os.WriteFile(a.configFile(), b.Bytes(), 0o644); err != nil {
		return err
	}
	if err := MakeCgroup(a.cgroup()); err != nil {
		return err
	}
	log, err := os.OpenFile(a.path("agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	args := append(a.prog.Args[1:len(a.prog.Args):len(a.prog.Args)],
		"--config="+a.configFile(), "--root-dir="+a.path("root"), "--cert-dir="+a.path("pki"),
		"--bootstrap-kubeconfig="+a.rig.path("cp", "bootstrap.kubeconfig"), "--kubeconfig="+a.path("kubeconfig"),
		"--hostname-override="+a.Node, "--node-ip="+Address(), "--v=0")
	return a.run(exec.Command(a.prog.Args[0], args...), log)
}

// run starts the agent's process. If that fails, the Agent counts as stopped.
func (a *Agent) run(cmd *exec.Cmd, log *os.File) error {
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	a.Began = time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	a.cmd, a.done = cmd, done
	go func() {
		defer close(done)
		_ = cmd.Wait() // the error only says that a signal ended the process
		if s := cmd.ProcessState; s != nil {
			a.ended.Add(int64(s.UserTime() + s.SystemTime()))
		}
	}()
	return nil
}

// CPU returns the processor time that all processes of the agent have used until now.
func (a *Agent) CPU() (time.Duration, error) {
	ended := time.Duration(a.ended.Load())
	if a.cmd == nil {
		return ended, nil
	}
	own, children, err := processCPU(a.PID())
	return ended + own + children, err
}

// HasCredentials reports whether an earlier run of the agent got a kubeconfig. Without one, the agent's next start requests credentials
// (TLS bootstrap).
func (a *Agent) HasCredentials() bool {
	_, err := os.Stat(a.path("kubeconfig"))
	return err == nil
}

// Forget removes the agent's kubeconfig and certificates, so that its next start requests new ones. The agent must be stopped.
func (a *Agent) Forget() error {
	if err := os.Remove(a.path("kubeconfig")); err != nil && !os.IsNotExist(err) {
		return err
	}
	if err := os.RemoveAll(a.path("pki")); err != nil {
		return err
	}
	return os.Mkdir(a.path("pki"), 0o755)
}

// Stop ends the agent with SIGTERM. The pods keep running.
func (a *Agent) Stop() {
	if a.cmd == nil {
		return
	}
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.done:
	case <-time.After(10 * time.Second):
		_ = a.cmd.Process.Kill()
		<-a.done
	}
	a.cmd = nil
}

// Kill ends the agent with SIGKILL, as a crash would.
func (a *Agent) Kill() {
	_ = a.cmd.Process.Kill()
	<-a.done
	a.cmd = nil
}

// PID returns the process ID of the running agent.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

// Alive returns an error if the agent's process has ended by itself.
func (a *Agent) Alive() error {
	select {
	case <-a.done:
		return fmt.Errorf("%s ended; see %s", a.prog.Name, a.path("agent.log"))
	default:
		return nil
	}
}

// AwaitReady waits until the API shows a Ready condition that the current process of the agent has sent. It returns the time from Began
// until then.
func (a *Agent) AwaitReady(ctx context.Context, w *Watch) (time.Duration, error) {
	for {
		at, ok, err := w.NodeReady(a.Node, a.Began)
		if err != nil {
			return 0, fmt.Errorf("wait until %s is Ready: %w", a.Node, err)
		}
		if ok {
			return at.Sub(a.Began), nil
		}
		if err := a.Alive(); err != nil {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%s is not Ready: %w; see %s", a.Node, ctx.Err(), a.path("agent.log"))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Address returns an IP address of the machine, which the nodes of the benchmark use as their address. It is not a loopback address,
// because a kubelet refuses one. If the machine has no route to other machines, Address returns 127.0.0.1.
func Address() string {
	c, err := net.Dial("udp", "198.51.100.1:9") // connecting a UDP socket sends nothing
	if err != nil {
		return "127.0.0.1"
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).IP.String()
}

// LeastShares gives a cgroup the smallest CPU weight, which pods without a CPU request also get. The processes in the cgroup then yield to
// all others.
func LeastShares(path string) error {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return os.WriteFile("/sys/fs/cgroup"+path+"/cpu.weight", []byte("1"), 0o644)
	}
	return os.WriteFile("/sys/fs/cgroup/cpu"+path+"/cpu.shares", []byte("2"), 0o644)
}

func controllers() []string {
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{"/sys/fs/cgroup"}
	}
	for i := range dirs {
		dirs[i] = filepath.Dir(dirs[i])
	}
	return dirs
}

// MakeCgroup creates a cgroup in every cgroup hierarchy.
func MakeCgroup(path string) error {
	for _, c := range controllers() {
		if err := os.MkdirAll(c+path, 0o755); err != nil {
			return err
		}
		// A new cpuset has neither processors nor memory nodes, and cannot contain a process until they are set.
		for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
			if v, err := os.ReadFile(filepath.Join(c, f)); err == nil && filepath.Base(c) == "cpuset" {
				if err := os.WriteFile(filepath.Join(c+path, f), v, 0o644); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// RemoveCgroup removes a cgroup and all cgroups below it, in every cgroup hierarchy.
func RemoveCgroup(path string) error {
	var last error
	for _, c := range controllers() {
		var dirs []string
		_ = filepath.WalkDir(c+path, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := syscall.Rmdir(dirs[i]); err != nil && err != syscall.ENOENT {
				last = fmt.Errorf("remove cgroup %s: %w", dirs[i], err)
			}
		}
	}
	return last
}
