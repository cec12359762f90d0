package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Namespace is the namespace of the benchmark's pods.
const Namespace = "bench"

// ConfigMaps is the number of ConfigMaps in the namespace, for pods with many volumes.
const ConfigMaps = 20

// ConfigMap returns the name of the i-th ConfigMap.
func ConfigMap(i int) string { return fmt.Sprintf("config-%d", i) }

// Rig is what all arms of the benchmark (the agents and baselines that it compares) share: the control plane, the runtime and the registry.
type Rig struct {
	Bin    string // directory with the project's built programs
	Dir    string // directory of the rig; a short path, because it contains Unix sockets
	Client kubernetes.Interface
	Socket string // path of the runtime's CRI socket
	Log    func(format string, args ...any)

	flavor     string
	audit      bool     // the control plane writes an audit log
	planeArgs  []string // further arguments of the control plane
	plane      *exec.Cmd
	planeDone  chan struct{} // closed when the control plane has ended
	registry   *Registry     // nil: not started yet
	small      *Registry     // registry of small images; nil: not started yet
	runtime    bool
	runtimePID int
	admin      *rest.Config
	sysctls    map[string]string
	cgroups    []string // cgroups of the agents and the runtime, which Close removes
}

// auditPolicy makes the API server log the requests of nodes and no others.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  userGroups: ["system:nodes"]
- level: None
`

// Open starts the control plane and the runtime in dir. flavor names a runtime of `wherry-dev runtime`; with "" it starts no runtime.
func Open(ctx context.Context, bin, dir, flavor string, log func(string, ...any)) (r *Rig, err error) {
	return open(ctx, &Rig{Bin: bin, Dir: dir, flavor: flavor, audit: true, Log: log})
}

// OpenPlane starts a control plane with further arguments of wherry-controlplane in dir, and no runtime. The control plane writes no audit log,
// so the rig cannot count requests.
func OpenPlane(ctx context.Context, bin, dir string, args []string, log func(string, ...any)) (*Rig, error) {
	return open(ctx, &Rig{Bin: bin, Dir: dir, planeArgs: args, Log: log})
}

func open(ctx context.Context, r *Rig) (_ *Rig, err error) {
	if r.Dir, err = realDir(r.Dir); err != nil {
		return nil, err
	}
	r.Socket, r.sysctls = filepath.Join(r.Dir, "rt", "containerd.sock"), map[string]string{}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	r.recordSysctls()
	r.raise("fs/inotify/max_user_instances", crowdedInstances)
	if err := r.startPlane(ctx); err != nil {
		return r, fmt.Errorf("start control plane: %w", err)
	}
	if r.flavor == "" {
		return r, r.prepareAPI(ctx)
	}
	r.runtime = true
	out, err := exec.CommandContext(ctx, filepath.Join(r.Bin, "wherry-dev"), "runtime", "up", "--dir", filepath.Dir(r.Socket), "--pod-subnet", subnet(), "--flavor", r.flavor).CombinedOutput()
	if err != nil {
		return r, fmt.Errorf("start containerd: %w\n%s", err, out)
	}
	if err := r.meter(); err != nil {
		return r, fmt.Errorf("count the runtime's processor time: %w", err)
	}
	return r, r.prepareAPI(ctx)
}

// realDir creates a directory and returns its absolute path without symbolic links, because the kernel lists mounts with such paths.
func realDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

func (r *Rig) path(elem ...string) string { return filepath.Join(append([]string{r.Dir}, elem...)...) }

// Runc returns the path of the runtime's runc, and the directory with the state of Kubernetes containers.
func (r *Rig) Runc() (program, root string) {
	bin := r.Bin
	if r.flavor == "debian" {
		bin = filepath.Join(filepath.Dir(r.Bin), ".wherry", "debian", "bin")
	}
	return filepath.Join(bin, "runc"), r.path("rt", "runc", "k8s.io")
}

// AuditLog returns the path of the API server's audit log, which has the requests of nodes.
func (r *Rig) AuditLog() string { return r.path("audit.log") }

func (r *Rig) startPlane(ctx context.Context) error {
	args := r.planeArgs
	if r.audit {
		if err := os.WriteFile(r.path("audit.yaml"), []byte(auditPolicy), 0o644); err != nil {
			return err
		}
		args = []string{"--apiserver-arg", "audit-policy-file=" + r.path("audit.yaml"), "--apiserver-arg", "audit-log-path=" + r.AuditLog(),
			"--apiserver-arg", "audit-log-maxsize=10240"} // megabytes; with the default of 100 the log would be rotated during a run
	}
	log, err := os.Create(r.path("plane.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	ready := r.path("ready")
	r.plane = exec.Command(filepath.Join(r.Bin, "wherry-controlplane"), append([]string{"--data-dir", r.path("cp"), "--secure-port", "0",
		"--proxy=false", "--ready-file", ready}, args...)...)
	r.plane.Stdout, r.plane.Stderr = log, log
	r.plane.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := r.plane.Start(); err != nil {
		return err
	}
	r.planeDone = make(chan struct{})
	go func() {
		defer close(r.planeDone)
		_ = r.plane.Wait() // the error only says that a signal ended the process
	}()
	return r.awaitPlane(ctx, ready)
}

// awaitPlane waits until the control plane writes the file ready, which it does when it is ready. It returns an error after two minutes, or
// at once if the control plane ends.
func (r *Rig) awaitPlane(ctx context.Context, ready string) error {
	deadline := time.After(2 * time.Minute)
	for {
		if _, err := os.Stat(ready); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.planeDone:
			return fmt.Errorf("it ended; see %s", r.path("plane.log"))
		case <-deadline:
			return fmt.Errorf("it is not ready after two minutes; see %s", r.path("plane.log"))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (r *Rig) prepareAPI(ctx context.Context) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", r.path("cp", "admin.kubeconfig"))
	if err != nil {
		return err
	}
	// The benchmark's own client has no rate limit, because a limit would distort the measurements.
	cfg.QPS, cfg.ContentType = -1, "application/vnd.kubernetes.protobuf"
	cfg.WarningHandlerWithContext = rest.NoWarnings{}
	r.admin = cfg
	if r.Client, err = kubernetes.NewForConfig(cfg); err != nil {
		return err
	}
	return r.makeNamespace(ctx)
}

// NodeClient returns a client that acts as the node, so that the API server authorizes and admits its requests as those of a node.
func (r *Rig) NodeClient(node string) (kubernetes.Interface, error) {
	cfg := rest.CopyConfig(r.admin)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + node, Groups: []string{"system:nodes"}}
	return kubernetes.NewForConfig(cfg)
}

// Close ends all processes of the rig, restores kernel settings, and removes the cgroups and the directory.
func (r *Rig) Close() error {
	var errs []error
	for _, g := range []*Registry{r.registry, r.small} {
		if g != nil {
			g.Close()
		}
	}
	if r.runtime {
		out, err := exec.Command(filepath.Join(r.Bin, "wherry-dev"), "runtime", "down", "--dir", filepath.Dir(r.Socket)).CombinedOutput()
		if err != nil {
			errs = append(errs, fmt.Errorf("end containerd: %w\n%s", err, out))
		}
	}
	if r.planeDone != nil {
		_ = r.plane.Process.Signal(syscall.SIGTERM)
		<-r.planeDone
	}
	r.restoreSysctls()
	for _, c := range append(r.cgroups, Cgroup("bare"), Cgroup("limit")) {
		errs = append(errs, RemoveCgroup(c))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// Files below a mount that is still there belong to the machine; removing the directory would delete them.
	if err := unmountBelow(r.Dir); err != nil {
		return err
	}
	return os.RemoveAll(r.Dir)
}

// Cgroup returns the parent cgroup of the pods of one arm (an agent or baseline that the benchmark compares). Its name contains the process
// ID, so that benchmarks that run at the same time use different cgroups.
func Cgroup(arm string) string { return fmt.Sprintf("/wherry-bench-%d-%s", os.Getpid(), arm) }

// subnet returns the pod CIDR. It depends on the process ID, so that benchmarks at the same time have different ones.
func subnet() string { return fmt.Sprintf("10.%d.%d.0/22", 100+os.Getpid()%50, os.Getpid()/50%64*4) }

// kernelFlags lists the kernel settings that a kubelet changes and does not restore.
var kernelFlags = []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "fs/inotify/max_user_instances"}

// crowdedInstances is the number of inotify instances that a node with many pods may need: on cgroup v2 each shim has one.
const crowdedInstances = 4096

func (r *Rig) recordSysctls() {
	for _, k := range kernelFlags {
		if v, err := os.ReadFile("/proc/sys/" + k); err == nil {
			r.sysctls[k] = strings.TrimSpace(string(v))
		}
	}
}

// raise sets a kernel setting to least, unless it is already greater.
func (r *Rig) raise(key string, least int) {
	if now, err := strconv.Atoi(r.sysctls[key]); err != nil || now >= least {
		return
	}
	if err := os.WriteFile("/proc/sys/"+key, []byte(strconv.Itoa(least)), 0o644); err != nil {
		r.Log("sysctl %s stays %s: %v", key, r.sysctls[key], err)
	}
}

func (r *Rig) restoreSysctls() {
	for k, v := range r.sysctls {
		if now, err := os.ReadFile("/proc/sys/" + k); err == nil && strings.TrimSpace(string(now)) != v {
			if err := os.WriteFile("/proc/sys/"+k, []byte(v), 0o644); err != nil {
				r.Log("sysctl %s stays %s: %v", k, strings.TrimSpace(string(now)), err)
			}
		}
	}
}

// escaped replaces the octal escapes in the paths of /proc/self/mountinfo with the characters that they represent.
var escaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// unmountBelow unmounts what a killed agent left mounted below dir, so that removing dir deletes no files of the machine.
func unmountBelow(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var errs []error
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		if at := escaped.Replace(f[4]); strings.HasPrefix(at, dir+"/") {
			// A mount may already be gone together with another one.
			if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil && err != syscall.EINVAL && err != syscall.ENOENT {
				errs = append(errs, fmt.Errorf("unmount %s: %w", at, err))
			}
		}
	}
	return errors.Join(errs...)
}
