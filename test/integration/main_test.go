package integration

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// prefix begins the names of the directory and the cgroups of a run. The process ID of the run follows.
const prefix = "wherry-it-"

// debian is the value of WHERRY_RUNTIME for Debian's containerd 1.6, which lacks some features of containerd 2.
const debian = "debian"

// env is what all tests of a run share: programs, control plane, runtime and node.
type env struct {
	dir, bin        string
	wherry, kubectl string
	flavor          string
	id              int
	plane           *process
	config          *rest.Config
	client          kubernetes.Interface
	node            *node

	mu               sync.Mutex // guards the fields below, to which tests may add
	nodes            []*node
	runtimeInstances []string
	subnets          map[string]int // number of the subnet of each containerd instance, by the instance's directory
}

func (e *env) addRuntime(dir string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runtimeInstances = append(e.runtimeInstances, dir)
}

// The variable named "the" has the environment of this run. TestMain sets it before the tests. If it is nil, whyNot says why the tests
// cannot run.
var (
	the    *env
	whyNot string
)

// use returns the environment and marks the test as parallel. If there is no environment, it skips the test.
func use(t *testing.T) *env {
	t.Helper()
	if the == nil {
		t.Skip(whyNot)
	}
	t.Parallel()
	return the
}

func TestMain(m *testing.M) {
	if config := os.Getenv(killDriverEnv); config != "" { // this process is the driver of TestVolumeKills
		if err := serveKillDriver(config); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	if f := flag.Lookup("test.list"); f != nil && f.Value.String() != "" {
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	e, why := locate()
	if why != "" {
		whyNot = why
		fmt.Fprintln(os.Stderr, "tests on real parts skip themselves:", why)
		return m.Run()
	}
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = f.Value.Set("8") // run more tests in parallel than there are processors, because the tests mostly wait
	}
	sweep(e.bin)
	restore := keepKernel()
	defer restore()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		e.end(false)
		restore()
		os.Exit(1)
	}()
	if err := e.begin(); err != nil {
		fmt.Fprintf(os.Stderr, "integration environment: %v\n", err)
		e.end(false)
		return 1
	}
	the = e
	code := m.Run()
	if code == 0 {
		if err := e.checkNothingLeft(); err != nil {
			fmt.Fprintf(os.Stderr, "all tests passed, but: %v\n", err)
			code = 1
		}
	}
	e.end(code == 0)
	return code
}

// locate returns an environment with the programs that a run needs. If something is missing, it returns nil and says what.
func locate() (*env, string) {
	wd, err := os.Getwd()
	if err != nil {
		return nil, err.Error()
	}
	bin := filepath.Join(wd, "..", "..", "bin")
	e := &env{
		bin: bin, id: os.Getpid(), dir: filepath.Join(os.TempDir(), prefix+strconv.Itoa(os.Getpid())),
		wherry:  getenv("WHERRY_BIN", filepath.Join(bin, "wherry")),
		kubectl: getenv("WHERRY_KUBECTL", filepath.Join(bin, "kubectl")),
		flavor:  getenv("WHERRY_RUNTIME", "containerd2"),
	}
	if os.Geteuid() != 0 {
		return nil, "needs root: it runs containers"
	}
	need := []string{e.wherry, e.kubectl, e.tool("wherry-controlplane"), e.tool("wherry-dev"), e.tool("crictl"), e.tool("images.tar")}
	if e.flavor != debian {
		need = append(need, e.tool("containerd"))
	}
	for _, f := range need {
		if _, err := os.Stat(f); err != nil {
			return nil, fmt.Sprintf("needs %s (go -C tools run ./cmd/wherry-dev build): %v", f, err)
		}
	}
	return e, ""
}

func (e *env) tool(name string) string { return filepath.Join(e.bin, name) }

func getenv(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// mainSettings are the settings of the node that all tests share: it has a console, which computes nothing while no test looks at it.
const mainSettings = "apiVersion: wherry.dev/v1alpha1\nkind: WherryConfiguration\nconsole: {enabled: true}\n"

// begin starts the control plane and the runtime concurrently, and then the node. On a machine whose disk is too full for nodes it fails.
func (e *env) begin() error {
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return err
	}
	if err := enoughRoom(e.dir); err != nil {
		return err
	}
	runtimeUp := make(chan error, 1)
	rt := filepath.Join(e.dir, "rt")
	e.addRuntime(rt)
	go func() { runtimeUp <- e.runtimeUp(rt, e.subnet(rt)) }()
	err := e.planeUp(scalingFlags()...)
	if err = errors.Join(err, <-runtimeUp); err != nil {
		return err
	}
	settings := filepath.Join(e.dir, "wherry.yaml")
	if err := os.WriteFile(settings, []byte(mainSettings), 0o644); err != nil {
		return err
	}
	e.node, err = e.startNode(nodeConfig{Name: "main", Runtime: rt, Flags: []string{"--wherry-config", settings}})
	if err != nil {
		return err
	}
	return e.node.waitReady(patience)
}

// subnet returns the pod CIDR of the containerd instance in a directory. Within a run each instance has a CIDR of its own. Two runs at the
// same time most likely use different CIDRs, too.
func (e *env) subnet(dir string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, ok := e.subnets[dir]
	if !ok {
		n = len(e.subnets)
		if e.subnets == nil {
			e.subnets = map[string]int{}
		}
		e.subnets[dir] = n
	}
	return fmt.Sprintf("10.%d.%d.0/24", 150+n, e.id%250)
}

func (e *env) planeUp(flags ...string) error {
	dir := filepath.Join(e.dir, "cp")
	ready := filepath.Join(dir, "ready")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var err error
	e.plane, err = start(filepath.Join(e.dir, "controlplane.log"), e.tool("wherry-controlplane"),
		append([]string{"--data-dir", dir, "--secure-port", "0", "--proxy=false", "--ready-file", ready}, flags...)...)
	if err != nil {
		return err
	}
	if err := wait(4*time.Minute, func() error {
		if err := e.plane.alive(); err != nil {
			return fatal{err}
		}
		_, err := os.Stat(ready)
		return err
	}); err != nil {
		return fmt.Errorf("start control plane: %w", err)
	}
	if e.config, err = clientcmd.BuildConfigFromFlags("", e.kubeconfig()); err != nil {
		return err
	}
	e.config.QPS = -1
	e.client, err = kubernetes.NewForConfig(e.config)
	return err
}

func (e *env) kubeconfig() string { return filepath.Join(e.dir, "cp", "admin.kubeconfig") }

// runKubectl runs kubectl in the cluster of a kubeconfig, with stdin as its input, and returns its output.
func (e *env) runKubectl(kubeconfig, stdin string, args ...string) (string, error) {
	cmd := command(e.kubectl, append([]string{"--kubeconfig", kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	stdout, stderr, err := output(cmd)
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, stderr)
	}
	return stdout, nil
}

func (e *env) runtimeUp(dir, subnet string, flags ...string) error {
	args := append([]string{"runtime", "up", "--dir", dir, "--pod-subnet", subnet, "--flavor", e.flavor}, flags...)
	if out, err := command(e.tool("wherry-dev"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("start runtime: %w\n%s", err, out)
	}
	return nil
}

// end ends all processes and removes everything. If well is false, the logs stay.
func (e *env) end(well bool) {
	the = nil
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, n := range e.nodes {
		n.process.stop()
	}
	for _, dir := range e.runtimeInstances {
		keepLog(filepath.Join(dir, "containerd.log"), filepath.Join(e.dir, filepath.Base(dir)+".log"))
		runtimeDown(e.bin, dir)
	}
	if e.plane != nil {
		e.plane.stop()
	}
	clean(e.dir, e.id, well && os.Getenv("WHERRY_KEEP") == "")
	if !well {
		fmt.Fprintf(os.Stderr, "logs are kept in %s\n", e.dir)
	}
}

func keepLog(from, to string) {
	if data, err := os.ReadFile(from); err == nil {
		_ = os.WriteFile(to, data, 0o644)
	}
}

func runtimeDown(bin, dir string) {
	if out, err := command(filepath.Join(bin, "wherry-dev"), "runtime", "down", "--dir", dir).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "end runtime %s: %v\n%s", dir, err, out)
	}
}

// clean removes what a run has left on the machine: mounts, cgroups and the run's directory. If all is false, the logs stay.
func clean(dir string, id int, all bool) {
	mounts, err := mountsBelow(dir)
	for _, m := range mounts {
		_ = syscall.Unmount(m, syscall.MNT_DETACH)
	}
	if err == nil {
		mounts, err = mountsBelow(dir)
	}
	if err != nil || len(mounts) > 0 { // a mount that is still there may show files of the machine, so nothing below it is removed
		fmt.Fprintf(os.Stderr, "%s stays, because of mounts below it: %v %v\n", dir, mounts, err)
		return
	}
	for _, c := range cgroupDirs(prefix + strconv.Itoa(id)) {
		_ = wait(5*time.Second, func() error { return removeTree(c) })
	}
	if all {
		_ = os.RemoveAll(dir)
		return
	}
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if entry.IsDir() && !strings.HasSuffix(entry.Name(), ".logs") {
			_ = os.RemoveAll(filepath.Join(dir, entry.Name()))
		}
	}
}

// sweep removes what killed runs have left. A run was killed if its directory exists but its process does not.
func sweep(bin string) {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range dirs {
		id, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(dir), prefix))
		if err != nil || syscall.Kill(id, 0) == nil {
			continue
		}
		endProcesses(dir)
		sockets, _ := filepath.Glob(filepath.Join(dir, "*", "containerd.sock"))
		for _, s := range sockets {
			runtimeDown(bin, filepath.Dir(s))
		}
		clean(dir, id, len(sockets) > 0)
	}
}

// endProcesses ends the child processes of a killed run. Their arguments contain the directory of the run.
func endProcesses(dir string) {
	_ = wait(20*time.Second, func() error {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		left := 0
		for _, f := range files {
			args, err := os.ReadFile(f)
			program, _, _ := strings.Cut(string(args), "\x00")
			ours := slices.Contains([]string{"wherry", "wherry-controlplane", "kubelet", "kubectl", "metrics-server"}, filepath.Base(program))
			if err != nil || !ours || !strings.Contains(string(args), dir+"/") {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f))); err == nil && pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGTERM)
				left++
			}
		}
		if left > 0 {
			return fmt.Errorf("%d processes of %s still run", left, dir)
		}
		return nil
	})
}

// checkNothingLeft waits until all pods are gone, and returns an error if they have left something behind.
func (e *env) checkNothingLeft() error {
	ctx := context.Background()
	return wait(patience, func() error {
		pods, err := e.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(pods.Items) > 0 {
			return fmt.Errorf("pods are left: %v", podNames(pods.Items))
		}
		var errs []error
		for _, n := range e.nodes {
			if n.process.alive() == nil {
				errs = append(errs, n.checkNothingLeft())
			}
		}
		return errors.Join(errs...)
	})
}

func podNames(pods []v1.Pod) (names []string) {
	for i := range pods {
		names = append(names, pods[i].Namespace+"/"+pods[i].Name)
	}
	return names
}

var ports atomic.Int32 // number of ports that freePort has tried

// freePort returns a TCP port that is free now. The kernel does not give ports of this range to clients, so that no other program takes the
// port before its use.
func freePort() (int, error) {
	for range 500 {
		port := 10000 + (os.Getpid()*61+int(ports.Add(1)))%9000
		if l, err := net.Listen("tcp", fmt.Sprintf("0.0.0.0:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("none of 500 TCP ports is free")
}

// keepKernel reads the kernel settings that an agent changes, and returns a function that restores them.
func keepKernel() (restore func()) {
	before := map[string][]byte{}
	for _, s := range config.KernelSettings() {
		file := s.File("/proc/sys")
		if value, err := os.ReadFile(file); err == nil {
			before[file] = value
		}
	}
	return func() {
		for file, value := range before {
			now, err := os.ReadFile(file)
			if err == nil && !bytes.Equal(now, value) {
				err = os.WriteFile(file, value, 0o644)
			}
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s is not put back to %s: %v\n", file, bytes.TrimSpace(value), err)
			}
		}
	}
}
