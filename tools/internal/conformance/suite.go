package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/wherry-node/wherry/tools/internal/dev"
	"github.com/wherry-node/wherry/tools/internal/vmnode"
)

// These are upstream's test suites that can run here.
const (
	SuiteCluster  = "e2e"      // k8s.io/kubernetes/test/e2e: tests of a cluster, here with one node
	SuiteNode     = "node"     // k8s.io/kubernetes/test/e2e_node: tests that run on the node itself
	SuiteKubeadm  = "kubeadm"  // k8s.io/kubernetes/test/e2e on the two nodes of a cluster that kubeadm makes (package kubeadm)
	SuiteStorage  = "storage"  // as SuiteKubeadm, with images of CSI drivers for the tests of volumes
	SuiteExternal = "external" // as SuiteKubeadm, with the CSI drivers of examples/csi: tests for which a driver must be there (External.Storage)
	SuiteGuest    = "vm"       // as SuiteNode, in a virtual machine with systemd and cgroup v2 (package vmnode)
)

// Suites returns the names of the suites.
func Suites() []string {
	return []string{SuiteCluster, SuiteNode, SuiteKubeadm, SuiteStorage, SuiteExternal, SuiteGuest}
}

// OwnNamespaces reports whether Run wants a process in new network and mount namespaces. The nodes of the other suites have their own.
func (o Options) OwnNamespaces() bool { return !o.twoNodes() && o.Suite != SuiteGuest }

// onNode reports whether the tests of the suite run on the node itself (upstream's e2e_node).
func (o Options) onNode() bool { return o.Suite == SuiteNode || o.Suite == SuiteGuest }

// twoNodes reports whether the suite runs on the two nodes of a cluster that kubeadm makes.
func (o Options) twoNodes() bool {
	return o.Suite == SuiteKubeadm || o.Suite == SuiteStorage || o.Suite == SuiteExternal
}

// RuntimeDebian is the containerd of Debian 12, which sends no container events.
const RuntimeDebian = "debian"

// suite has what differs between the test suites.
type suite struct {
	program string // name of the test program below bin/conformance, and of its build target
	title   string // name of the suite in ginkgo's report; the names of the tests begin with it
	target  string // make target that runs the suite
	lists   string // prefix of the suite's files in conformance/
	focus   string // regular expression of the tests that run by default
	// skip is a regular expression of tests that do not run by default. The node suite runs them if Focus or List names them, the suites of
	// volumes if List names them or Skip is set.
	skip string
}

func (o Options) suite() suite {
	if o.onNode() {
		s := suite{
			program: "e2e_node.test", title: "E2eNode Suite", target: "conformance-node", lists: "node-", focus: FocusDefault,
			skip: `\[Serial\]|\[Slow\]|\[Disruptive\]|\[Flaky\]`,
		}
		if o.Suite == SuiteGuest {
			s.target, s.lists = "conformance-vm", "vm-"
		}
		return s
	}
	s := suite{program: "e2e.test", title: "Kubernetes e2e suite", target: "conformance", focus: FocusDefault}
	switch o.Suite {
	case SuiteKubeadm:
		s.target, s.lists, s.focus = "conformance-kubeadm", "kubeadm-", `\[Conformance\]`
	case SuiteStorage:
		s.target, s.lists, s.focus, s.skip = "conformance-storage", "storage-", `\[sig-storage\]`, storageSkip
	case SuiteExternal:
		s.target, s.lists, s.focus, s.skip = "conformance-external", "external-", `External.Storage`, externalSkip
	}
	return s
}

// FocusDefault is the Focus of options whose caller has chosen none.
const FocusDefault = `\[NodeConformance\]`

// Focused returns the options with the focus of their suite, unless the caller has chosen one.
func (o Options) Focused() Options {
	if o.Focus == FocusDefault {
		o.Focus = o.suite().focus
	}
	return o
}

// skips returns a regular expression of the tests to leave out. In the node suite these include all tests that the cluster suite has too:
// more than half of the node suite.
func (o Options) skips() (string, error) {
	if o.Skip != "" || o.List != "" {
		return o.Skip, nil
	}
	if o.Suite == SuiteStorage || o.Suite == SuiteExternal {
		return o.suite().skip, nil
	}
	if !o.onNode() || o.Focus != FocusDefault {
		return "", nil
	}
	shared, err := ReadReference(filepath.Join(o.Checkout, "conformance", "upstream.txt"))
	if err != nil {
		return "", fmt.Errorf("read the cluster suite's tests: %w", err)
	}
	return o.suite().skip + "|" + o.focusOn(shared.Results().Names()...), nil
}

// list returns the path of one of the suite's files in conformance/.
func (o Options) list(name string) string {
	return filepath.Join(o.Checkout, "conformance", o.suite().lists+name)
}

// The method runs returns the path of a file with results of the suite (see Reference). Debian's containerd has files of its own.
func (o Options) runs(name string) string {
	if o.Runtime == RuntimeDebian {
		name = RuntimeDebian + "-" + name
	}
	return o.list(name)
}

// listed returns the tests that must pass. For the cluster suite a file lists them; a run may select only some of them. For the other suites
// they are the tests that upstream's kubelet passes, except the tests in the suite's open.txt, which may be empty but must exist.
func (o Options) listed(reference Reference) ([]string, error) {
	if o.Suite == SuiteCluster {
		return ReadPasses(o.list("passes.txt"))
	}
	open, err := ReadPasses(o.list("open.txt"))
	if err != nil {
		return nil, err
	}
	waits := map[string]bool{}
	for _, name := range open {
		waits[name] = true
	}
	var names []string
	results := reference.Results()
	for _, name := range results.Names() {
		if results[name].Status == "passed" && !waits[name] {
			names = append(names, name)
		}
	}
	return names, nil
}

// arguments returns the arguments of the test program.
func (o Options) arguments(ctx context.Context, env cluster, report string) ([]string, error) {
	common := []string{"--report-dir=" + report, "--dns-domain=cluster.local", "--dump-logs-on-failure=true"}
	if !o.onNode() {
		nodes, root := "1", o.dir("node", "root")
		if o.twoNodes() {
			nodes, root = "2", "/var/lib/kubelet"
		}
		if o.Suite == SuiteExternal {
			for _, kind := range externalKinds() {
				common = append(common, "--storage.testdriver="+o.testDriver(kind))
			}
		}
		return append([]string{"--provider=skeleton", "--kubeconfig=" + env.Kubeconfig(), "--allowed-not-ready-nodes=0", "--kubectl-path=" + o.bin("kubectl"),
			"--kubelet-root-dir=" + root, "--num-nodes=" + nodes, "--node-os-distro=custom", "--system-pods-startup-timeout=0"}, common...), nil
	}
	host, token, err := o.account(ctx, env)
	if err != nil {
		return nil, err
	}
	node, socket, dropIns := nodeName, o.dir("containerd", "containerd.sock"), o.dropIns()
	if o.Suite == SuiteGuest {
		node, socket, dropIns = vmnode.NodeName, "/run/containerd/containerd.sock", guestDropIns
	}
	return append([]string{
		"--start-services=false", "--stop-services=false", "--prepull-images=false", "--host=" + host, "--bearer-token=" + token, "--node-name=" + node,
		"--container-runtime-endpoint=unix://" + socket, "--config-dir=" + dropIns,
	}, common...), nil
}

// account creates a service account with all rights, and returns the address of the API server and the account's token. The node suite
// needs a token, because it cannot use a kubeconfig.
func (o Options) account(ctx context.Context, env cluster) (host, token string, err error) {
	const name = "node-tests"
	kubectl := func(args ...string) (string, error) {
		cmd, err := env.Command(ctx, o.bin("kubectl"), append([]string{"--kubeconfig", env.Kubeconfig()}, args...)...)
		if err != nil {
			return "", err
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args[:2], " "), err, strings.TrimSpace(string(out)))
		}
		return strings.TrimSpace(string(out)), nil
	}
	_, serr := kubectl("create", "serviceaccount", "-n", "kube-system", name)
	_, berr := kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", "--serviceaccount=kube-system:"+name)
	token, terr := kubectl("create", "token", "-n", "kube-system", name, "--duration=8h")
	host, herr := kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
	if err := errors.Join(terr, herr); err != nil { // errors of the creation do not count by themselves, because the account may exist from an earlier call
		return "", "", errors.Join(serr, berr, err)
	}
	return host, token, nil
}

func (o Options) dropIns() string { return o.dir("node", "config.d") }

// nodeFlags returns flags for the node agent, in addition to those of the development environment.
func (o Options) nodeFlags() []string {
	flags := roomFlags()
	if o.Suite == SuiteNode {
		flags = append(flags, "--config-dir="+o.dropIns())
	}
	return flags
}

// nodeConfig returns fields of the node's KubeletConfiguration for the node suite; nil for the cluster suite. Tests of the node suite
// rewrite the configuration file.
func (o Options) nodeConfig() map[string]string {
	if o.Suite != SuiteNode {
		return nil
	}
	return map[string]string{"readOnlyPort": "10255", "fileCheckFrequency": `"10s"`, "serializeImagePulls": "false"}
}

func (o Options) podLogs() string {
	if o.Suite != SuiteNode {
		return ""
	}
	return "/var/log/pods"
}

// prepareNode prepares what the node suite expects: stand-ins for programs, and the default paths of a node. In this mount namespace,
// directories of the run are mounted at these paths. restore unmounts them.
func (o Options) prepareNode() (restore func() error, err error) {
	nothing := func() error { return nil }
	if o.Suite != SuiteNode {
		return nothing, nil
	}
	for _, dir := range []string{o.dropIns(), o.dir("node", "root"), o.dir("node", "log")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nothing, err
		}
	}
	if err := o.standIns(); err != nil {
		return nothing, err
	}
	const root, logs = "/var/lib/kubelet", "/var/log"
	// The empty directory stays afterwards, because it may be the mount point of another run.
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nothing, err
	}
	for from, to := range map[string]string{o.dir("node", "root"): root, o.dir("node", "log"): logs} {
		if err := syscall.Mount(from, to, "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
			return nothing, fmt.Errorf("mount %s on %s: %w", from, to, err)
		}
	}
	return func() error {
		return errors.Join(syscall.Unmount(root, syscall.MNT_DETACH), syscall.Unmount(logs, syscall.MNT_DETACH))
	}, nil
}

// standIns installs scripts that replace sudo and systemctl, with which the tests stop and restart the node agent. It also makes links to
// the test program and to the node's configuration in one directory, because the test program writes the configuration beside itself.
func (o Options) standIns() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(o.dir("suite")), os.MkdirAll(o.standInDir(), 0o755)); err != nil {
		return err
	}
	for name, script := range map[string]string{
		"sudo":      "exec \"$@\"",
		"systemctl": fmt.Sprintf("exec '%s' systemctl --unit='%s' -- \"$@\"", self, dev.UnitFile(o.dir())),
	} {
		if err := os.WriteFile(filepath.Join(o.standInDir(), name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(os.Symlink(o.bin("conformance/"+o.suite().program), o.testProgram()),
		os.Symlink(o.dir("node", "config.yaml"), o.dir("suite", "kubelet-config")))
}

func (o Options) standInDir() string { return o.dir("suite", "bin") }

// testProgram returns the path of the program that ginkgo runs.
func (o Options) testProgram() string {
	switch o.Suite {
	case SuiteNode:
		return o.dir("suite", o.suite().program)
	case SuiteGuest:
		return path.Join(guestDir, o.suite().program)
	}
	return o.bin("conformance/" + o.suite().program)
}
