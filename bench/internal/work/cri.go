package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/bench/internal/rig"
)

const image = "docker.io/library/busybox:latest"

// command is the command of the benchmark's containers. It ignores SIGTERM, because the first process of a PID namespace ignores signals
// that it does not handle.
var command = []string{"sleep", "1000000"}

// CRI is a client of the runtime that makes CRI calls without a node agent.
type CRI struct {
	conn   *grpc.ClientConn
	r      runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
	dir    string
}

// DialCRI connects to the runtime. The files of the pods that it creates are in dir.
func DialCRI(socket, dir string) (*CRI, error) {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	return &CRI{conn: conn, r: runtimeapi.NewRuntimeServiceClient(conn), images: runtimeapi.NewImageServiceClient(conn), dir: dir}, nil
}

// Close closes the client.
func (c *CRI) Close() error { return c.conn.Close() }

// PID returns the process ID of a container's first process.
func (c *CRI) PID(ctx context.Context, id string) (int, error) {
	st, err := c.r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return 0, fmt.Errorf("get status of container %s: %w", id, err)
	}
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(st.Info["info"]), &info); err != nil {
		return 0, fmt.Errorf("read status of container %s: %w", id, err)
	}
	if info.PID == 0 {
		return 0, fmt.Errorf("status of container %s has no process", id)
	}
	return info.PID, nil
}

// NoneRuns waits until no container runs, and returns the time when it saw that.
func (c *CRI) NoneRuns(ctx context.Context) (time.Time, error) {
	for {
		list, err := c.r.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}})
		n := len(list.GetContainers())
		if err == nil && n == 0 {
			return time.Now(), nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%d containers still run (%v): %w", n, err, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Settled waits until at most this many sandboxes are ready. By then the runtime has ended the processes and networks of the pods that were
// deleted before.
func (c *CRI) Settled(ctx context.Context, most int) error {
	for {
		list, err := c.r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}})
		n := len(list.GetItems())
		if err == nil && n <= most {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d sandboxes are still ready, not %d (%v): %w", n, most, err, ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// RemoveImage removes an image and those of its layers that no other image uses. A missing image is no error.
func (c *CRI) RemoveImage(ctx context.Context, name string) error {
	if _, err := c.images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: name}}); err != nil {
		return fmt.Errorf("remove image %s: %w", name, err)
	}
	return nil
}

// Clear removes every pod from the runtime, because a failed arm may have left some.
func (c *CRI) Clear(ctx context.Context) error {
	list, err := c.r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list sandboxes: %w", err)
	}
	ids := make([]string, len(list.Items))
	for i, s := range list.Items {
		ids[i] = s.Id
	}
	_, err = each(ids, func(id string) error {
		if _, err := c.r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			return fmt.Errorf("stop sandbox %s: %w", id, err)
		}
		if _, err := c.r.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			return fmt.Errorf("remove sandbox %s: %w", id, err)
		}
		return nil
	})
	return err
}

type bare struct{ sandbox, container string }

// start creates what a node agent creates for a pod: a cgroup, a sandbox, and a container with a directory for the token, a hosts file and
// a termination message file.
func (c *CRI) start(ctx context.Context, name string) (b bare, err error) {
	dir := filepath.Join(c.dir, name)
	token := filepath.Join(dir, "token")
	if err := os.MkdirAll(token, 0o755); err != nil {
		return b, err
	}
	for _, f := range []string{"token/token", "hosts", "termination"} {
		if err := os.WriteFile(filepath.Join(dir, f), nil, 0o644); err != nil {
			return b, err
		}
	}
	sandbox := c.sandboxConfig(name, name, dir, rig.Cgroup("bare")+"/"+name)
	s, err := c.r.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: sandbox})
	if err != nil {
		return b, fmt.Errorf("run sandbox: %w", err)
	}
	b.sandbox = s.PodSandboxId
	return b, c.container(ctx, &b, sandbox, dir, 0, func() {})
}

func (c *CRI) sandboxConfig(name, uid, dir, cgroup string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "bare", Uid: uid}, Hostname: name,
		LogDirectory: dir, DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"10.96.0.10"}},
		Linux: &runtimeapi.LinuxPodSandboxConfig{CgroupParent: cgroup,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}, Seccomp: runtimeDefault}},
	}
}

// Upstream's kubelet and Wherry request these security settings for every pod, whatever its spec says. They take about a tenth of the time
// of a start, mostly for the seccomp filter of the sandbox. Without them the arms "bare CRI" and "limit" would be too fast.
var (
	runtimeDefault = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	unconfined     = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	maskedPaths    = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// leastGrace is the shortest time between SIGTERM and SIGKILL, in seconds. Both agents wait this long even for a pod with a grace period of
// one second.
const leastGrace = 2

// container creates and starts one attempt of the container of a pod. dir has the files that are mounted. created is called after the
// container is created.
func (c *CRI) container(ctx context.Context, b *bare, sandbox *runtimeapi.PodSandboxConfig, dir string, attempt uint32, created func()) error {
	made, err := c.r.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: b.sandbox, SandboxConfig: sandbox,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "sleep", Attempt: attempt}, Image: &runtimeapi.ImageSpec{Image: image}, Command: command,
			LogPath: strconv.Itoa(int(attempt)) + ".log",
			Mounts: []*runtimeapi.Mount{
				{HostPath: filepath.Join(dir, "token"), ContainerPath: "/var/run/secrets/kubernetes.io/serviceaccount", Readonly: true},
				{HostPath: filepath.Join(dir, "hosts"), ContainerPath: "/etc/hosts"},
				{HostPath: filepath.Join(dir, "termination"), ContainerPath: "/dev/termination-log"},
			},
			Linux: &runtimeapi.LinuxContainerConfig{
				Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2, OomScoreAdj: 1000},
				SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
					Seccomp:          unconfined, MaskedPaths: maskedPaths, ReadonlyPaths: readonlyPaths},
			},
		},
	})
	if err != nil {
		return fmt.Errorf("create container: %w", err)
	}
	b.container = made.ContainerId
	created()
	if _, err := c.r.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: b.container}); err != nil {
		return fmt.Errorf("start container: %w", err)
	}
	return nil
}

// stop stops and removes a pod, as an agent does when the pod is deleted with a grace period of one second.
func (c *CRI) stop(ctx context.Context, b bare) error {
	if _, err := c.r.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: b.container, Timeout: leastGrace}); err != nil {
		return fmt.Errorf("stop container: %w", err)
	}
	if _, err := c.r.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: b.sandbox}); err != nil {
		return fmt.Errorf("stop sandbox: %w", err)
	}
	return nil
}

// Bare runs those steps of a block that are possible with CRI calls alone, and removes the pods afterwards.
func (c *CRI) Bare(ctx context.Context, r *rig.Rig, p Plan, s Samples, round int, block string) (err error) {
	made := map[string]bare{}
	defer func() { err = errors.Join(err, c.remove(context.WithoutCancel(ctx), made)) }()
	for _, step := range steps(block) {
		if !p.wants(step, round) {
			continue
		}
		switch step.name {
		case "one":
			err = c.one(ctx, p, s, round, made)
		case "many":
			err = c.many(ctx, r, p, s, round, made)
		case "exec":
			err = c.execCost(ctx, r, s, round, made)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

func (c *CRI) one(ctx context.Context, p Plan, s Samples, round int, made map[string]bare) error {
	for i := range p.Sequence {
		name := fmt.Sprintf("bare-one-%d-%d", round, i)
		began := time.Now()
		b, err := c.start(ctx, name)
		made[name] = b
		if err != nil {
			return err
		}
		s.took("one pod, create to Ready", time.Since(began))
		began = time.Now()
		if err := c.stop(ctx, b); err != nil {
			return err
		}
		s.took("one pod, delete to gone", time.Since(began))
	}
	return nil
}

// many starts all pods at once, and then stops them at once.
func (c *CRI) many(ctx context.Context, r *rig.Rig, p Plan, s Samples, round int, made map[string]bare) error {
	names := names(fmt.Sprintf("bare-many-%d-", round), p.Pods)
	used, err := meter(r, 0)
	if err != nil {
		return err
	}
	if err := c.startAll(ctx, names, p.Parallel, s, made); err != nil {
		return err
	}
	if err := used(s, "CPU per pod start", p.Pods); err != nil {
		return err
	}
	if used, err = meter(r, 0); err != nil {
		return err
	}
	// All pods stop at once, as with an agent, because the grace period takes nearly all of the time.
	var mu sync.Mutex
	err = atOnce(names, len(names), "pods deleted, delete to gone", s, &mu, func(n string) error {
		mu.Lock()
		b := made[n]
		mu.Unlock()
		return c.stop(ctx, b)
	})
	if err != nil {
		return err
	}
	return used(s, "CPU per pod deletion", p.Pods)
}

// startAll starts pods with a number of concurrent workers. It stores each pod in made, even if the start failed.
func (c *CRI) startAll(ctx context.Context, names []string, workers int, s Samples, made map[string]bare) error {
	var mu sync.Mutex
	return atOnce(names, workers, "pods at once, create to Ready", s, &mu, func(n string) error {
		b, err := c.start(ctx, n)
		mu.Lock()
		made[n] = b
		mu.Unlock()
		return err
	})
}

// remove removes the sandboxes of pods. It skips a pod whose sandbox could not be created.
func (c *CRI) remove(ctx context.Context, made map[string]bare) error {
	_, err := each(slices.Collect(maps.Keys(made)), func(name string) error {
		if made[name].sandbox == "" {
			return nil
		}
		_, err := c.r.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: made[name].sandbox})
		return err
	})
	if err != nil {
		return fmt.Errorf("remove sandbox: %w", err)
	}
	return nil
}

// Fastest starts all pods once for each number of workers. best is the number of workers that took the least time. times is a text with the
// time for each number.
func (c *CRI) Fastest(ctx context.Context, workers []int, pods int) (best int, times string, err error) {
	least := 0.0
	var said []string
	for i, n := range workers {
		s, made := Samples{}, map[string]bare{}
		err := c.startAll(ctx, names(fmt.Sprintf("bare-try-%d-", n), pods), n, s, made)
		if err := errors.Join(err, c.remove(ctx, made)); err != nil {
			return 0, "", err
		}
		took := s["pods at once, create to Ready, total"][0]
		if i == 0 || took < least {
			best, least = n, took
		}
		said = append(said, fmt.Sprintf("%d: %.2f s", n, took))
	}
	return best, fmt.Sprintf("time to start %d pods, by number of workers: %s", pods, strings.Join(said, ", ")), nil
}

func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = prefix + strconv.Itoa(i)
	}
	return out
}

// atOnce calls f for all names with a number of concurrent workers. It adds a sample for each successful call: the time from the start of
// atOnce to the end of the call. It adds a sample for the total only if no call failed.
func atOnce(names []string, workers int, what string, s Samples, mu *sync.Mutex, f func(string) error) error {
	todo := make(chan string, len(names))
	for _, n := range names {
		todo <- n
	}
	close(todo)
	var wg sync.WaitGroup
	var first error
	start := time.Now()
	for range workers {
		wg.Go(func() {
			for n := range todo {
				err := f(n)
				took := time.Since(start)
				mu.Lock()
				if err == nil {
					s.took(what+", each", took)
				} else if first == nil {
					first = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if first == nil {
		s.took(what+", total", time.Since(start))
	}
	return first
}
