package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/cgroup"
	"github.com/wherry-node/wherry/tools/internal/proc"
	"github.com/wherry-node/wherry/tools/internal/runtime"
)

// csiDir is the directory of the CSI example below Options.Dir.
const csiDir = "csi"

// csiParts are the parts of the CSI example: a second node with a containerd of its own, the processes of the driver of examples/csi, and the
// CSI sidecars, which are processes of the machine too. All their files are below the directory csiDir.
type csiParts struct {
	*Env        // the environment that is up
	second *Env // of the second node; it has the control plane of the first one
}

func (e *Env) csiExample() *csiParts {
	second := &Env{Options: e.Options, began: e.began, podSubnet: secondSubnet}
	second.Dir, second.Runtime = e.path(csiDir), runtimeContainerd2
	return &csiParts{Env: e, second: second}
}

// startSecond starts the second node and waits until it is Ready.
func (c *csiParts) startSecond(ctx context.Context, first *state) error {
	s := &state{Runtime: runtimeContainerd2, NodeName: first.NodeName + "-2", NodeIP: first.NodeIP}
	if err := os.MkdirAll(c.second.path("run"), 0o755); err != nil {
		return err
	}
	for _, shared := range []string{"controlplane", "admin.kubeconfig"} {
		if err := os.Symlink(c.path(shared), c.second.path(shared)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	containerd := c.second.containerd(s.Runtime)
	if err := runtime.Start(ctx, containerd); err != nil {
		return err
	}
	if err := runtime.Import(ctx, containerd, c.bin("images.tar")); err != nil {
		return err
	}
	if err := cgroup.Make(c.second.cgroupParent()); err != nil {
		return err
	}
	if err := c.second.startNode(s); err != nil {
		return err
	}
	return c.second.awaitNode(ctx, s)
}

// volumes returns the directory of the driver's volumes.
func (c *csiParts) volumes() string { return c.second.path("volumes") }

// controllerSocket returns the socket that the sidecars use.
func (c *csiParts) controllerSocket() string { return c.second.path("run", "driver.sock") }

// startProcess starts a program of bin/csi. It writes to a log with the name of the process.
func (c *csiParts) startProcess(name, program string, args ...string) error {
	_, err := proc.Start(proc.Spec{PIDFile: c.second.pidFile(name), Log: c.processLog(name), Path: c.bin(filepath.Join(csiDir, program)), Args: args, Dir: c.second.Dir})
	return err
}

func (c *csiParts) processLog(name string) string { return c.second.path("logs", name+".log") }

func (c *csiParts) stopProcess(ctx context.Context, name string) error {
	return proc.Stop(ctx, c.second.pidFile(name), 10*time.Second)
}

// startController starts the controller of the driver, and waits until it has its socket.
func (c *csiParts) startController(ctx context.Context) error {
	if err := os.MkdirAll(c.volumes(), 0o700); err != nil {
		return err
	}
	if err := c.startProcess(controllerProcess, "driver", "--name="+csiDriver, "--dir="+c.volumes(), "--socket="+c.controllerSocket()); err != nil {
		return err
	}
	return c.await(ctx, "the driver's socket", 30*time.Second, func(context.Context) (bool, string) {
		_, err := os.Stat(c.controllerSocket())
		return err == nil, fmt.Sprint(err)
	})
}

// startDriver starts the driver on a node; process is firstDriver or secondDriver.
func (c *csiParts) startDriver(process, node string) error {
	root := c.path("node", "root")
	if process == secondDriver {
		root = c.second.path("node", "root")
	}
	socket := filepath.Join(root, "plugins", csiDriver, "csi.sock")
	for _, dir := range []string{filepath.Dir(socket), filepath.Join(root, "plugins_registry")} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return err
		}
	}
	return c.startProcess(process, "driver", "--name="+csiDriver, "--dir="+c.volumes(), "--socket="+socket,
		"--node="+node, "--register="+filepath.Join(root, "plugins_registry", csiDriver+"-reg.sock"))
}

// startSidecar starts one of the programs of the module tools/csi.
func (c *csiParts) startSidecar(name string) error {
	return c.startProcess(name, name, "--kubeconfig="+c.Kubeconfig(), "--csi-address="+c.controllerSocket(), "--v=2")
}

// These are the names of the example's processes. The sidecars have the names of their programs.
const (
	controllerProcess = "csi-controller"
	firstDriver       = "csi-node-1"
	secondDriver      = "csi-node-2"
	provisioner       = "csi-provisioner"
	attacher          = "csi-attacher"
	resizer           = "csi-resizer"
)

// end ends all processes of the example and the second node. It needs only the files on disk, and may be repeated.
func (c *csiParts) end(ctx context.Context) error {
	if _, err := os.Stat(c.second.Dir); err != nil {
		return nil
	}
	var errs []error
	for _, name := range []string{resizer, attacher, provisioner, "node", firstDriver, secondDriver, controllerProcess} {
		errs = append(errs, c.stopProcess(ctx, name))
	}
	errs = append(errs, c.second.endContainerd(ctx, runtimeContainerd2), unmountBelow(c.second.Dir), cgroup.Remove(ctx, c.second.cgroupParent()), removeLogLinks("/var/log/containers", c.second.path("node", "pod-logs")))
	logs, _ := os.ReadDir(c.second.path("logs"))
	for _, log := range logs {
		keepLog(c.second.path("logs", log.Name()), c.path("logs", "csi-example-"+log.Name()))
	}
	return errors.Join(errs...)
}

// remove deletes the directory of the example, unless something is mounted below it.
func (c *csiParts) remove() error {
	mounts, err := runtime.MountsBelow(c.second.Dir)
	if err == nil && len(mounts) > 0 {
		err = fmt.Errorf("still mounted: %s", strings.Join(mounts, " "))
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(c.second.Dir)
}

// why runs `wherry why` for a pod and returns its answer.
func (c *csiParts) why(ctx context.Context, pod string) string {
	cmd := exec.CommandContext(ctx, c.bin("wherry"), "why", pod, "-n", csiNamespace, "--kubeconfig", c.Kubeconfig())
	out, _ := cmd.CombinedOutput() // the exit code says that the pod is not well
	return string(out)
}
