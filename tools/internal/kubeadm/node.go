package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/wherry-node/wherry/tools/internal/images"
	"github.com/wherry-node/wherry/tools/internal/proc"
	"github.com/wherry-node/wherry/tools/internal/runtime"
	"github.com/wherry-node/wherry/tools/internal/unit"
)

// node is one node of the cluster. Its files on the machine are below dir.
type node struct {
	cluster *Cluster
	name    string // host name and name of the Node
	address string
	pods    string // range of its pods' addresses, which the controller manager gives to nodes in the order in which they join
	dir     string
}

func (n *node) path(elem ...string) string {
	return filepath.Join(append([]string{n.dir}, elem...)...)
}

// overlaid are the directories of the machine of which a node has an overlay.
func overlaid() []string { return []string{"etc", "opt", "usr", "var"} }

// own returns the path on the machine of a file that the node wrote; path is the path on the node, below one of overlaid.
func (n *node) own(path string) string { return n.path("upper", path) }

func (n *node) containerd() runtime.Config {
	return runtime.Config{
		Flavor: runtime.Containerd2, Dir: n.path("containerd"), Bin: filepath.Join(n.cluster.Checkout, "bin"), PodSubnet: n.pods, SandboxImage: images.Pause,
		Routed: true, Registries: n.cluster.Registries,
	}
}

// mounts is a template for the shell script that makes the node's own file system. Programs that look for the node's namespaces look at
// process 1, which is the machine's; so the directory of its namespaces is covered with that of the holder's.
var mounts = template.Must(template.New("mounts").Parse(`set -e
mount --make-rprivate /
hostname {{.Name}}
{{- range .Dirs}}
mkdir -p {{$.Base}}/upper/{{.}} {{$.Base}}/work/{{.}}
mount -t overlay overlay -o lowerdir=/{{.}},upperdir={{$.Base}}/upper/{{.}},workdir={{$.Base}}/work/{{.}} /{{.}}
{{- end}}
mount -t tmpfs tmpfs /run
mount --bind /proc/{{.Holder}}/ns /proc/1/ns
mkdir -p /usr/lib/modules /etc/kubernetes
echo {{.Name}} > /etc/hostname
printf '127.0.0.1 localhost\n{{.Address}} {{.Name}}\n' > /etc/hosts
echo 'nameserver {{.Nameserver}}' > /etc/resolv.conf
mount --make-rshared /
`))

// prepare makes the node's namespaces and its file system. They must not exist yet.
func (n *node) prepare(ctx context.Context) error {
	if err := n.spaces().open(ctx); err != nil {
		return err
	}
	holder, err := n.spaces().holder()
	if err != nil {
		return err
	}
	var script strings.Builder
	if err := mounts.Execute(&script, map[string]any{"Name": n.name, "Holder": holder.PID, "Address": n.address, "Base": n.dir, "Dirs": overlaid(), "Nameserver": UserAddress}); err != nil {
		return err
	}
	return n.spaces().run(ctx, "sh", "-c", script.String())
}

// programs makes the directory of programs that comes first in the node's PATH: kubeadm, the node agent as kubelet, and the stand-in for
// systemctl.
func (n *node) programs() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	agent := n.cluster.bin("wherry")
	if n.cluster.Agent == "kubelet" {
		agent = n.cluster.bin("conformance/kubelet")
	}
	bin := n.path("bin")
	if err := errors.Join(os.RemoveAll(bin), os.MkdirAll(bin, 0o755)); err != nil {
		return err
	}
	for name, target := range map[string]string{
		"kubelet": agent, "kubeadm": n.cluster.bin("images/kubernetes"), "kubectl": n.cluster.bin("kubectl"), "crictl": n.cluster.bin("crictl"),
	} {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	script := fmt.Sprintf("#!/bin/sh\nexec '%s' systemctl --unit='%s' -- \"$@\"\n", self, n.unitFile())
	return os.WriteFile(filepath.Join(bin, "systemctl"), []byte(script), 0o755)
}

func (n *node) unitFile() string { return n.path("kubelet.json") }

func (n *node) searchPath() string {
	return "PATH=" + n.path("bin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
}

// startAgent is the shell script of the unit kubelet. It does what the drop-in file of kubeadm's package makes systemd do.
const startAgent = `for file in /var/lib/kubelet/kubeadm-flags.env /etc/default/kubelet; do
	if [ -r $file ]; then . $file; fi
done
exec kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
	--config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS`

// agentPID returns the pid file of the node agent.
func (n *node) agentPID() string { return n.path("kubelet.pid") }

func (n *node) log() string { return n.path("kubelet.log") }

// writeUnit writes the unit kubelet. kubeadm starts it.
func (n *node) writeUnit() error {
	line, err := n.spaces().inside("sh", "-c", startAgent)
	if err != nil {
		return err
	}
	return unit.Write(n.unitFile(), unit.Unit{Name: "kubelet", Spec: proc.Spec{
		PIDFile: n.agentPID(), Log: n.log(), Path: line[0], Args: line[1:], Env: []string{n.searchPath()}, Dir: n.dir,
	}})
}

// run runs a program on the node and returns its output.
func (n *node) run(ctx context.Context, name string, args ...string) (string, error) {
	cmd, err := n.command(ctx, name, args...)
	if err != nil {
		return "", err
	}
	return proc.Output(cmd, "on "+n.name+": "+proc.Line(name, args...))
}

// startRuntime starts the node's containerd and imports the images.
func (n *node) startRuntime(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := n.containerd()
	if _, err := n.run(ctx, self, "runtime", "up", "--dir="+c.Dir, "--pod-subnet="+c.PodSubnet, "--registries="+c.Registries, "--routed"); err != nil {
		return err
	}
	for _, archive := range append([]string{n.cluster.path("images.tar")}, n.cluster.Archives...) {
		if _, err := n.run(ctx, n.cluster.bin("ctr"), "--address", c.Socket(), "-n", "k8s.io", "images", "import", "--snapshotter", "overlayfs", archive); err != nil {
			return err
		}
	}
	return nil
}

// crictl runs crictl on the node's containerd and returns its output.
func (n *node) crictl(ctx context.Context, args ...string) (string, error) {
	endpoint := "unix://" + n.containerd().Socket()
	return n.run(ctx, "crictl", append([]string{"--runtime-endpoint", endpoint, "--image-endpoint", endpoint, "--timeout", "30s"}, args...)...)
}

// end ends the node agent, the runtime with all its containers, and the namespaces. Mounts disappear with their namespace.
func (n *node) end(ctx context.Context) error {
	if _, err := os.Stat(n.dir); err != nil {
		return nil
	}
	errs := []error{proc.Stop(ctx, n.agentPID(), 20*time.Second)}
	if _, open := proc.Find(n.spaces().pidFile); open {
		self, err := os.Executable()
		if err == nil {
			_, err = n.run(ctx, self, "runtime", "down", "--dir="+n.containerd().Dir, "--pod-subnet="+n.pods)
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, n.spaces().close(ctx))...)
}

// command returns a command that runs on the node.
func (n *node) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	line, err := n.spaces().inside("env", append([]string{n.searchPath(), name}, args...)...)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.WaitDelay, cmd.Dir = 10*time.Second, "/"
	return cmd, nil
}

// On returns a command that runs on the node with this name.
func (c *Cluster) On(ctx context.Context, node, name string, args ...string) (*exec.Cmd, error) {
	for _, n := range c.nodes {
		if n.name == node {
			return n.command(ctx, name, args...)
		}
	}
	return nil, fmt.Errorf("there is no node %q: one or two", node)
}
