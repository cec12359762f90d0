package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/wherry-node/wherry/tools/internal/dev"
)

// These are upstream's test suites that can run here.
const (
	SuiteCluster = "e2e"  // k8s.io/kubernetes/test/e2e: a cluster, here of one node
	SuiteNode    = "node" // k8s.io/kubernetes/test/e2e_node: one node, from the inside
)

// RuntimeDebian is Debian's containerd: it has no container events.
const RuntimeDebian = "debian"

// suite has the differences between the suites.
type suite struct {
	program string // program below bin/conformance; also the name of the build target
	title   string // ginkgo's name of the suite, which is a prefix of the names of its tests
	target  string // the target of make
	lists   string // the prefix of its files in conformance/
	// skip matches the tests that are left out unless Focus or List names them.
	skip string
}

func (o Options) suite() suite {
	if o.Suite == SuiteNode {
		return suite{
			program: "e2e_node.test", title: "E2eNode Suite", target: "conformance-node", lists: "node-",
			skip: `\[Serial\]|\[Slow\]|\[Disruptive\]|\[Flaky\]`,
		}
	}
	return suite{program: "e2e.test", title: "Kubernetes e2e suite", target: "conformance"}
}

// FocusDefault selects the tests to run by default.
const FocusDefault = `\[NodeConformance\]`

// skips returns the tests to leave out of a run. For the node suite these include the tests with the same names as in the
// cluster suite: more than half of it.
func (o Options) skips() (string, error) {
	if o.Suite != SuiteNode || o.Skip != "" || o.List != "" || o.Focus != FocusDefault {
		return o.Skip, nil
	}
	shared, err := ReadReference(filepath.Join(o.Checkout, "conformance", "upstream.txt"))
	if err != nil {
		return "", fmt.Errorf("read the cluster suite's tests: %w", err)
	}
	return o.suite().skip + "|" + o.focusOn(shared.Results().Names()...), nil
}

// list returns the path of one of the suite's files.
func (o Options) list(name string) string {
	return filepath.Join(o.Checkout, "conformance", o.suite().lists+name)
}

// runs returns the path of a file of runs. Each runtime has its own file.
func (o Options) runs(name string) string {
	if o.Runtime == RuntimeDebian {
		name = RuntimeDebian + "-" + name
	}
	return o.list(name)
}

// listed returns the tests that must pass. For the node suite these are the tests that upstream's kubelet passes, except the
// open ones. For the cluster suite they are in a file, which has more tests than one run.
func (o Options) listed(reference Reference) ([]string, error) {
	if o.Suite != SuiteNode {
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
func (o Options) arguments(ctx context.Context, env *dev.Env, report string) ([]string, error) {
	common := []string{"--report-dir=" + report, "--dns-domain=cluster.local", "--dump-logs-on-failure=true"}
	if o.Suite != SuiteNode {
		return append([]string{"--provider=skeleton", "--kubeconfig=" + env.Kubeconfig(), "--allowed-not-ready-nodes=0", "--kubectl-path=" + o.bin("kubectl"),
			"--kubelet-root-dir=" + o.dir("node", "root"), "--num-nodes=1", "--node-os-distro=custom", "--system-pods-startup-timeout=0"}, common...), nil
	}
	host, token, err := o.account(ctx, env)
	if err != nil {
		return nil, err
	}
	return append([]string{
		"--start-services=false", "--stop-services=false", "--prepull-images=false", "--host=" + host, "--bearer-token=" + token, "--node-name=" + nodeName,
		"--container-runtime-endpoint=unix://" + o.dir("containerd", "containerd.sock"), "--config-dir=" + o.dropIns(),
	}, common...), nil
}

// account creates a service account with all rights, because the node suite needs a token and cannot use a kubeconfig.
func (o Options) account(ctx context.Context, env *dev.Env) (host, token string, err error) {
	const name = "node-tests"
	kubectl := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, o.bin("kubectl"), append([]string{"--kubeconfig", env.Kubeconfig()}, args...)...).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args[:2], " "), err, strings.TrimSpace(string(out)))
		}
		return strings.TrimSpace(string(out)), nil
	}
	_, serr := kubectl("create", "serviceaccount", "-n", "kube-system", name)
	_, berr := kubectl("create", "clusterrolebinding", name, "--clusterrole=cluster-admin", "--serviceaccount=kube-system:"+name)
	token, terr := kubectl("create", "token", "-n", "kube-system", name, "--duration=8h")
	host, herr := kubectl("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
	if err := errors.Join(terr, herr); err != nil { // in a second run in one environment the account already exists
		return "", "", errors.Join(serr, berr, err)
	}
	return host, token, nil
}

func (o Options) dropIns() string { return o.dir("node", "config.d") }

// nodeFlags returns additional flags of the node agent, beside those of a development node.
func (o Options) nodeFlags() []string {
	flags := roomFlags()
	if o.Suite == SuiteNode {
		flags = append(flags, "--config-dir="+o.dropIns())
	}
	return flags
}

// nodeConfig returns the node's fields of KubeletConfiguration for the node suite. The tests rewrite the whole file.
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

// prepareNode configures the node as the node suite expects it, with the paths of a default node. In this mount namespace the
// paths are directories of the run.
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
	// The empty directory is not removed afterwards, because it may be a mount point of another run.
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

// standIns installs stand-ins for sudo and systemctl at the beginning of the search path, because the tests stop and restart the
// node agent with these programs. It puts the test program beside a link to the node's configuration, because the test program
// writes the configuration into its own directory.
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
		"systemctl": fmt.Sprintf("exec '%s' systemctl --dir='%s' -- \"$@\"", self, o.dir()),
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
	if o.Suite != SuiteNode {
		return o.bin("conformance/" + o.suite().program)
	}
	return o.dir("suite", o.suite().program)
}
