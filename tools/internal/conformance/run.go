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
	"strings"
	"syscall"
	"time"

	"github.com/wherry-node/wherry/tools/internal/build"
	"github.com/wherry-node/wherry/tools/internal/debian"
	"github.com/wherry-node/wherry/tools/internal/dev"
	"github.com/wherry-node/wherry/tools/internal/images"
	"github.com/wherry-node/wherry/tools/internal/kubeadm"
)

// Options configure a run of the tests.
type Options struct {
	Checkout string
	Suite    string // one of Suites; "" is SuiteCluster
	Node     string // node agent under test: wherry or kubelet
	Runtime  string // containerd2 or debian; "" is containerd2
	Focus    string // regular expression of the tests to run (ginkgo's --focus)
	Skip     string
	List     string // path of a file with names of tests to run; it replaces Focus
	Procs    int
	Repeat   int  // number of times that the tests run. After a failure they do not run again. The table shows the results of the last time
	Keep     bool // leave the cluster running at the end. The guest of SuiteGuest stays for the next run, other clusters until ctx ends
	Retry    bool // run failed tests once more, alone, and count only the second result: for machines with other load, such as CI
	Whole    bool // store a run of Wherry also in conformance/wherry.txt
	Brief    bool // print Summary instead of the table
	SwapMiB  int  // swap space of the guest of SuiteGuest in MiB
	Progress io.Writer
}

func (o Options) dir(elem ...string) string {
	return filepath.Join(append([]string{o.Checkout, ".wherry", "conformance"}, elem...)...)
}

func (o Options) bin(name string) string { return filepath.Join(o.Checkout, "bin", name) }

// Build builds those programs for a run that are missing.
func Build(ctx context.Context, o Options) error {
	names := []string{"wherry", "wherry-controlplane", "runc", "containerd", "CNI plugins", "crictl", "kubectl", "image programs",
		o.suite().program, "conformance programs", "conformance applets"}
	if o.Node == "kubelet" {
		names = append(names, "kubelet")
	}
	if o.twoNodes() {
		names = append(names, "kubernetes", "CoreDNS")
	}
	packages := append(debian.Needed(), "bind9-dnsutils")
	switch o.Suite {
	case SuiteStorage:
		names = append(names, "CSI sidecars", "CSI stand-ins")
	case SuiteExternal:
		names, packages = append(names, "CSI sidecars", "example CSI driver"), append(packages, "mount", "e2fsprogs")
	case SuiteGuest:
		names = append(names, "logind stand-in")
	}
	if err := debian.Install(ctx, packages, o.Progress); err != nil {
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

// copyCertificate copies the HTTPS certificate of agnhost from the Go module of the tests.
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

// cluster is what the tests run on: a dev.Env, or the two nodes of a kubeadm.Cluster.
type cluster interface {
	Up(ctx context.Context) error
	Down(ctx context.Context) error
	// Kubeconfig returns the path of the administrator's kubeconfig.
	Kubeconfig() string
	// Command returns a command that runs where the cluster can be reached.
	Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error)
}

// devCluster is a dev.Env in the namespaces of this process.
type devCluster struct{ *dev.Env }

func (devCluster) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	return exec.CommandContext(ctx, name, args...), nil
}

// Run runs the tests on a new cluster, prints the table of results, and ends everything. Unless the suite runs on two nodes, the calling process
// must be in new network and mount namespaces (see OwnNamespaces).
func Run(ctx context.Context, o Options) (err error) {
	set, err := Images(ctx, filepath.Join(o.Checkout, "bin"))
	if err != nil {
		return err
	}
	if o.twoNodes() {
		sample, err := sampleAPIServer(o.bin(""))
		if err != nil {
			return err
		}
		set = append(set, sample)
	}
	drivers, err := o.driverImages(ctx)
	if err != nil {
		return err
	}
	set = append(set, drivers...)
	archive := o.bin("conformance/images.tar")
	if err := images.WriteArchiveFile(archive, set); err != nil {
		return err
	}
	env, stop, err := o.cluster(ctx, archive, set)
	if err != nil {
		return err
	}
	defer stop()
	guest, isGuest := env.(*guestCluster)
	if !isGuest || !guest.kept() {
		// A run that was killed may have left processes and mounts.
		if err := errors.Join(env.Down(ctx), o.removeVolumes(ctx)); err != nil {
			return err
		}
	}
	restore, err := o.prepareNode()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	var last bytes.Buffer // the report, which is printed only after the messages about the end of the cluster
	progress := o.Progress
	defer func() { _, _ = last.WriteTo(progress) }()
	defer func() {
		switch {
		case o.Keep && isGuest:
			fmt.Fprintf(progress, "the guest stays for the next run; this ends it: bin/wherry-dev vm --dir=%s down\n", guest.Dir)
			return
		case o.Keep:
			_, _ = last.WriteTo(progress)
			<-ctx.Done()
		}
		end := context.WithoutCancel(ctx)
		err = errors.Join(err, env.Down(end), o.removeVolumes(end))
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
	if err := errors.Join(os.RemoveAll(o.dir("logs", "ginkgo.log")), os.MkdirAll(o.dir("logs"), 0o755)); err != nil {
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
	o.Progress = &last // shown after the messages about the end of the cluster
	return o.report(ctx, ran, testErr, took)
}

// cluster returns the cluster of the suite, which is not up yet. Up lets the runtimes of its nodes pull the images in set; stop ends that.
func (o Options) cluster(ctx context.Context, archive string, set []images.Image) (env cluster, stop func(), err error) {
	if o.twoNodes() {
		k := &kubeadmCluster{set: set, registries: o.dir("registries"), volumes: o.volumes()}
		if o.Suite == SuiteExternal {
			k.kinds = externalKinds()
		}
		k.Cluster, err = kubeadm.New(kubeadm.Options{
			Checkout: o.Checkout, Agent: o.Node, NoBuild: true, Archives: []string{archive}, Registries: k.registries, Progress: o.Progress,
		})
		return k, k.stop, err
	}
	if o.Suite == SuiteGuest {
		guest, err := newGuestCluster(o, archive, set)
		return guest, guest.stop, err
	}
	if err := prepareNetwork(ctx); err != nil {
		return nil, nil, err
	}
	// Mounts propagate between containers and the node (MS_SHARED), as on a machine with systemd.
	for _, flag := range []uintptr{syscall.MS_PRIVATE, syscall.MS_SHARED} {
		if err := syscall.Mount("", "/", "", syscall.MS_REC|flag, ""); err != nil {
			return nil, nil, fmt.Errorf("share the mounts of the new namespace: %w", err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	stop, err = serveImages(set, listener, o.dir("registries"))
	if err != nil {
		return nil, nil, err
	}
	own, err := o.environment(archive)
	return devCluster{own}, stop, err
}

// again runs the failed tests once more, one at a time. It returns an error if a test still fails.
func (o Options) again(ctx context.Context, env cluster, ran Results, testErr error) error {
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

// Down ends what a killed run has left.
func Down(ctx context.Context, o Options) error {
	env, err := o.environment("")
	if err != nil {
		return err
	}
	return env.Down(ctx)
}

// prepareNetwork gives the network namespace a loopback interface and an address that pods can reach. The address is on a bridge, because
// not every kernel has dummy interfaces.
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

// serveImages serves images at the listener, and writes the configurations into registries that make a runtime pull from it.
func serveImages(set []images.Image, listener net.Listener, registries string) (stop func(), err error) {
	registry, err := NewRegistry(set)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	server := &http.Server{Handler: registry, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // Serve returns an error when Close is called
	}()
	return func() {
		_ = server.Close()
		<-done
	}, WriteHosts(registries, listener.Addr().String())
}

func (o Options) environment(archive string) (*dev.Env, error) {
	// Some tests look for a process with the name kubelet, so Wherry runs under that name.
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

// roomFlags returns flags of the node agent that lower the disk thresholds. Builds sometimes fill the machine's disk to more than the
// default 85 %; the node must not evict pods or remove images because of that. Wherry and upstream's kubelet accept these flags.
func roomFlags() []string {
	return []string{
		"--eviction-hard=memory.available<100Mi,nodefs.available<1Gi,nodefs.inodesFree<1%,imagefs.available<1Gi,imagefs.inodesFree<1%",
		"--image-gc-high-threshold=100",
	}
}

// focusOf returns the regular expression that matches the tests in a file.
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

// report prints the results, stores them in conformance/ if they are those of a whole run, and returns an error if a test that has to pass
// did not.
func (o Options) report(ctx context.Context, ran Results, testErr error, took time.Duration) error {
	reference, err := ReadReference(o.runs("upstream.txt"))
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
	if errors.Is(testErr, errNoReport) {
		return errors.Join(o.add(ran, took, "The guest ended before its report: these tests had run."), testErr)
	}
	if ctx.Err() != nil && o.Suite == SuiteGuest { // such runs take hours, so what has run counts
		return errors.Join(o.add(ran, took, "Interrupted: these tests had run."), testErr)
	}
	if ctx.Err() != nil {
		return errors.Join(errors.New("the run was interrupted, so conformance/ stays as it was"), testErr)
	}
	if o.Node == "kubelet" {
		if testErr != nil && !isFailedTests(testErr) {
			return testErr
		}
		return o.add(ran, took)
	}
	if o.Whole || o.Suite != SuiteCluster && !o.Retry { // a run of the other suites is always stored, unless failed tests run again (Retry)
		if err := o.add(ran, took); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		testErr = errors.Join(testErr, fmt.Errorf("%d tests of %s did not run", len(missing), o.List))
	}
	if o.Brief && testErr != nil {
		return testErr // the summary has named the failed tests already
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

// isFailedTests reports whether ginkgo's exit code says that tests failed and nothing else went wrong.
func isFailedTests(err error) bool {
	var exit interface {
		error
		ExitCode() int
	}
	return errors.As(err, &exit) && exit.ExitCode() == 1
}

const nodeName = "node"

// agentNames are the names of node agents in the tables.
var agentNames = map[string]string{"wherry": "Wherry", "kubelet": "kubelet"}

// add adds a new run at the top of the agent's file of runs.
func (o Options) add(ran Results, took time.Duration, remarks ...string) error {
	path := o.runs("wherry.txt")
	if o.Node == "kubelet" {
		path = o.runs("upstream.txt")
	}
	before, err := ReadReference(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	title, err := o.title(len(ran), took)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before.With(ReferenceRun{Title: title, Remarks: remarks, Tests: ran}).String()), 0o644)
}

// title returns the first line of a run in a file of runs: node agent, version, machine, date and duration.
func (o Options) title(tests int, took time.Duration) (string, error) {
	begins, program, args := titleWherry, "wherry", []string{"version"}
	if o.Node == "kubelet" {
		begins, program, args = titleKubelet, "conformance/kubelet", []string{"--version"}
	}
	version, err := exec.Command(o.bin(program), args...).Output()
	if err != nil {
		return "", fmt.Errorf("get the version of the node agent: %w", err)
	}
	if o.Node == "wherry" { // a version of Wherry has its commit, which changes all the time, so the title has the version of Kubernetes instead
		lines := strings.Split(strings.TrimSpace(string(version)), "\n")
		version = []byte(lines[len(lines)-1])
	}
	return fmt.Sprintf("%s%s, %d processors, %d tests, %d at a time, %s, %s%.0f s", begins, strings.TrimSpace(string(version)),
		runtime.NumCPU(), tests, o.Procs, time.Now().Format(time.DateOnly), wallBegins, took.Seconds()), nil
}
