package conformance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/wherry-node/wherry/tools/internal/build"
	"github.com/wherry-node/wherry/tools/internal/debian"
	"github.com/wherry-node/wherry/tools/internal/dev"
	"github.com/wherry-node/wherry/tools/internal/images"
)

// Options configure a run.
type Options struct {
	Checkout string
	Suite    string // SuiteCluster (also if empty) or SuiteNode
	Node     string // wherry or kubelet
	Runtime  string // containerd2 (also if empty) or debian
	Focus    string // a regular expression for ginkgo
	Skip     string
	List     string // path of a file with names of tests, used in place of Focus
	Procs    int
	Repeat   int  // run the tests this many times, or until one fails; the table shows the last time
	Keep     bool // leave everything running at the end
	Retry    bool // run failed tests once more, alone, before they count: for machines that other programs also load (CI)
	Whole    bool // store a run of Wherry in conformance/wherry.txt too
	Brief    bool // print Summary in place of the table
	Progress io.Writer
}

func (o Options) dir(elem ...string) string {
	return filepath.Join(append([]string{o.Checkout, ".wherry", "conformance"}, elem...)...)
}

func (o Options) bin(name string) string { return filepath.Join(o.Checkout, "bin", name) }

// Build builds the missing parts of a run.
func Build(ctx context.Context, o Options) error {
	names := []string{"wherry", "wherry-controlplane", "runc", "containerd", "CNI plugins", "crictl", "kubectl", "image programs",
		o.suite().program, "conformance programs", "conformance applets"}
	if o.Node == "kubelet" {
		names = append(names, "kubelet")
	}
	if err := debian.Install(ctx, debian.Needed(), o.Progress); err != nil {
		return err
	}
	if err := build.Run(ctx, o.Checkout, names, o.Progress); err != nil {
		return err
	}
	if _, err := build.Images(ctx, o.Checkout); err != nil {
		return err
	}
	if o.Runtime == RuntimeDebian {
		if _, err := debian.Runtime(ctx, o.dir("debian"), o.Progress); err != nil {
			return err
		}
	}
	if err := o.copyCertificate(ctx); err != nil {
		return err
	}
	return debian.Program(ctx, "bash-static", "bin/bash-static", o.bin("conformance/bash-static"))
}

// copyCertificate copies agnhost's HTTPS certificate from the module of the tests.
func (o Options) copyCertificate(ctx context.Context) error {
	list := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "k8s.io/kubernetes/test/images/agnhost/porter")
	list.Dir = filepath.Join(o.Checkout, "conformance")
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("find agnhost's sources: %w", err)
	}
	for _, name := range []string{"localhost.crt", "localhost.key"} {
		data, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), name))
		if err == nil {
			err = os.WriteFile(o.bin("conformance/"+name), data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("copy agnhost's certificate: %w", err)
		}
	}
	return nil
}

// Run starts everything inside the calling process's network and mount namespaces, which must be new. It runs the tests, prints
// the table and ends everything.
func Run(ctx context.Context, o Options) (err error) {
	if err := prepareNetwork(ctx); err != nil {
		return err
	}
	// Share the mounts as systemd does: mounts of containers propagate from and to the node.
	for _, flag := range []uintptr{syscall.MS_PRIVATE, syscall.MS_SHARED} {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|flag, ""); err != nil {
			return fmt.Errorf("share the mounts of the new namespace: %w", err)
		}
	}
	set, err := Images(filepath.Join(o.Checkout, "bin"))
	if err != nil {
		return err
	}
	archive := o.bin("conformance/images.tar")
	if err := writeArchive(archive, set); err != nil {
		return err
	}
	stop, err := o.serveImages(set)
	if err != nil {
		return err
	}
	defer stop()
	env, err := o.environment(archive)
	if err != nil {
		return err
	}
	// End what is left of a killed run.
	if err := env.Down(ctx); err != nil {
		return err
	}
	restore, err := o.prepareNode()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	var last bytes.Buffer // the results come after the messages about the end
	progress := o.Progress
	defer func() { _, _ = last.WriteTo(progress) }()
	defer func() {
		if o.Keep {
			_, _ = last.WriteTo(progress)
			<-ctx.Done()
		}
		err = errors.Join(err, env.Down(context.WithoutCancel(ctx)))
	}()
	if err := env.Up(ctx); err != nil {
		return err
	}
	began := time.Now()
	focus := o.Focus
	if o.List != "" {
		if focus, err = o.focusOf(o.List); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(o.dir("logs", "ginkgo.log")); err != nil {
		return err
	}
	ran, testErr := o.ginkgo(ctx, env, focus, o.dir("report"))
	if failed := ran.failed(); o.Retry && isFailedTests(testErr) && len(failed) > 0 && len(failed) <= mostAgain && ctx.Err() == nil {
		testErr = o.again(ctx, env, ran, testErr)
	}
	if ran == nil {
		return testErr
	}
	took := time.Since(began)
	fmt.Fprintf(o.Progress, "tested for %.0f s\n", took.Seconds())
	o.Progress = &last // shown after the lines about the end of the cluster
	return o.report(ctx, ran, testErr, took)
}

// again runs the failed tests once more, one at a time, and returns the remaining error.
func (o Options) again(ctx context.Context, env *dev.Env, ran Results, testErr error) error {
	failed := ran.failed()
	fmt.Fprintf(o.Progress, "%d failed; run again, alone: %s\n", len(failed), strings.Join(failed, "; "))
	o.Procs, o.Repeat, o.Skip = 1, 1, ""
	second, err := o.ginkgo(ctx, env, o.focusOn(failed...), o.dir("report", "again"))
	ran.Again(second)
	if len(ran.failed()) > 0 {
		return testErr
	}
	return err
}

// Down ends what is left of a killed run.
func Down(ctx context.Context, o Options) error {
	env, err := o.environment("")
	if err != nil {
		return err
	}
	return env.Down(ctx)
}

// prepareNetwork gives the namespace a loopback interface and an address that pods can reach. Not every kernel has dummy
// interfaces.
func prepareNetwork(ctx context.Context) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"}, {"link", "add", "node0", "type", "bridge"},
		{"addr", "add", "172.31.255.1/32", "dev", "node0"}, {"link", "set", "node0", "up"},
	} {
		if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

func writeArchive(path string, set []images.Image) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(images.WriteArchive(file, set), file.Close())
}

func (o Options) serveImages(set []images.Image) (stop func(), err error) {
	registry, err := NewRegistry(set)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: registry, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // Serve ends when Close is called
	}()
	return func() {
		_ = server.Close()
		<-done
	}, WriteHosts(o.dir("registries"), listener.Addr().String())
}

func (o Options) environment(archive string) (*dev.Env, error) {
	// Some tests look for a process named kubelet, so wherry runs under that name too.
	agent, program := o.dir("bin", "kubelet"), o.bin("wherry")
	if o.Node == "kubelet" {
		program = o.bin("conformance/kubelet")
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(agent), 0o755), os.RemoveAll(agent), os.Symlink(program, agent)); err != nil {
		return nil, err
	}
	return dev.New(dev.Options{
		Checkout: o.Checkout, Dir: o.dir(), Runtime: cmp.Or(o.Runtime, "containerd2"), NodeName: nodeName, SkipExample: true, Bare: true, Agent: []string{agent},
		Registries: o.dir("registries"), Archives: []string{archive}, NodeFlags: o.nodeFlags(), NodeConfig: o.nodeConfig(), PodLogs: o.podLogs(), Progress: o.Progress,
	})
}

// roomFlags returns flags with which the node does not evict pods or remove images because other programs fill the machine's
// disk: builds sometimes fill more than the default 85 %. Both node agents accept them.
func roomFlags() []string {
	return []string{
		"--eviction-hard=memory.available<100Mi,nodefs.available<1Gi,nodefs.inodesFree<1%,imagefs.available<1Gi,imagefs.inodesFree<1%",
		"--image-gc-high-threshold=100",
	}
}

// ginkgo runs the tests and returns an error if one failed. After a first interrupt it writes its report.
func (o Options) ginkgo(ctx context.Context, env *dev.Env, focus, report string) (Results, error) {
	if err := errors.Join(os.RemoveAll(report), os.MkdirAll(report, 0o755)); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(o.dir("logs", "ginkgo.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	skip, err := o.skips()
	if err != nil {
		return nil, err
	}
	args := []string{"--procs=" + strconv.Itoa(o.Procs), "--no-color", "--timeout=4h", "--poll-progress-after=10m", "--focus=" + focus, "--skip=" + skip}
	if o.Repeat > 1 { // in another order each time
		args = append(args, "--repeat="+strconv.Itoa(o.Repeat-1))
	} else { // the same order for both node agents, because the total time depends on which long test comes last
		args = append(args, "--seed=1")
	}
	own, err := o.arguments(ctx, env, report)
	if err != nil {
		return nil, err
	}
	args = append(append(args, o.testProgram(), "--"), own...)
	cmd := exec.CommandContext(ctx, o.bin("conformance/ginkgo"), args...)
	// An interrupt reaches the whole process group, as from a terminal. Each process ends its own tests, and ginkgo writes the
	// report.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 45 * time.Second
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, o.dir("logs")
	cmd.Env = append(os.Environ(), "PATH="+o.standInDir()+":"+os.Getenv("PATH"))
	fmt.Fprintf(o.Progress, "testing with %d processes; %s\n", o.Procs, log.Name())
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // kill processes that ignored the interrupt, if there are any
	}
	if err != nil {
		err = fmt.Errorf("run the tests: %w; see %s", err, log.Name())
	}
	ran, readErr := ReadJUnit(filepath.Join(report, "junit_01.xml"))
	if readErr != nil {
		return nil, errors.Join(err, readErr)
	}
	return ran, err
}

// focusOf returns the expression for the tests that a file lists.
func (o Options) focusOf(path string) (string, error) {
	names, err := ReadPasses(path)
	if err != nil {
		return "", fmt.Errorf("read list of tests: %w", err)
	}
	if len(names) == 0 {
		return "", fmt.Errorf("read list of tests: %s names no test", path)
	}
	return o.focusOn(names...), nil
}

// report prints the table and returns an error if the run is worse than the stored results.
func (o Options) report(ctx context.Context, ran Results, testErr error, took time.Duration) error {
	upstream := o.runs("upstream.txt")
	reference, err := ReadReference(upstream)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listed, err := o.listed(reference)
	if err != nil {
		return err
	}
	table := Table(o.suite().target, agentNames[o.Node], ran, reference, took.Seconds())
	if err := os.WriteFile(o.dir("table.txt"), []byte(table), 0o644); err != nil {
		return err
	}
	var missing []string
	if o.List != "" {
		names, err := ReadPasses(o.List)
		if err != nil {
			return fmt.Errorf("read list of tests: %w", err)
		}
		missing = ran.Missing(names)
	}
	if o.Brief {
		fmt.Fprint(o.Progress, Summary(ran, missing, took.Seconds()))
	} else {
		fmt.Fprint(o.Progress, table)
	}
	if ctx.Err() != nil {
		return errors.Join(errors.New("the run was interrupted, so conformance/ stays as it was"), testErr)
	}
	if o.Node == "kubelet" {
		if testErr != nil && !isFailedTests(testErr) {
			return testErr
		}
		return o.record(upstream, reference, ran, took)
	}
	if o.Whole || o.Suite == SuiteNode && !o.Retry { // a run of the node suite is stored, unless its failed tests run again
		path := o.runs("wherry.txt")
		before, err := ReadReference(path)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := o.record(path, before, ran, took); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		testErr = errors.Join(testErr, fmt.Errorf("%d tests of %s did not run", len(missing), o.List))
	}
	if o.Brief && testErr != nil {
		return testErr // the summary names the failed tests
	}
	if broken := Broken(listed, ran); len(broken) > 0 {
		return fmt.Errorf("%d listed tests do not pass:\n  %s", len(broken), strings.Join(broken, "\n  "))
	}
	if failed := ran.failed(); len(failed) > 0 && len(missing) == 0 && len(ran.FailedHereOnly(reference.Results())) == 0 && isFailedTests(testErr) {
		fmt.Fprintf(o.Progress, "failed on upstream's kubelet too, so the run passes:\n  %s\n", strings.Join(failed, "\n  "))
		return nil
	}
	return testErr
}

// isFailedTests reports whether ginkgo's exit code means that only tests failed.
func isFailedTests(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == 1
}

const nodeName = "node"

// agentNames are the names of the node agents in tables.
var agentNames = map[string]string{"wherry": "Wherry", "kubelet": "kubelet"}

// record adds a run at the beginning of a file of runs.
func (o Options) record(path string, before Reference, ran Results, took time.Duration) error {
	title, err := o.title(len(ran), took)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before.With(ReferenceRun{Title: title, Tests: ran}).String()), 0o644)
}

// title returns the description of a run.
func (o Options) title(tests int, took time.Duration) (string, error) {
	begins, program, args := titleWherry, "wherry", []string{"version"}
	if o.Node == "kubelet" {
		begins, program, args = titleKubelet, "conformance/kubelet", []string{"--version"}
	}
	version, err := exec.Command(o.bin(program), args...).Output()
	if err != nil {
		return "", fmt.Errorf("get the version of the node agent: %w", err)
	}
	if o.Node == "wherry" { // the commit changes all the time, so the title has the version of Kubernetes
		lines := strings.Split(strings.TrimSpace(string(version)), "\n")
		version = []byte(lines[len(lines)-1])
	}
	return fmt.Sprintf("%s%s, %d processors, %d tests, %d at a time, %s, %s%.0f s", begins, strings.TrimSpace(string(version)),
		runtime.NumCPU(), tests, o.Procs, time.Now().Format(time.DateOnly), wallBegins, took.Seconds()), nil
}
