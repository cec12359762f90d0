package vmnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/build"
	"github.com/wherry-node/wherry/tools/internal/debian"
	"github.com/wherry-node/wherry/tools/internal/proc"
	"github.com/wherry-node/wherry/tools/internal/vm"
)

// Up builds what is missing, boots the guest, installs the packages in it, and waits until the node is Ready.
func (e *Env) Up(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("bring up the virtual machine: building its image, its network namespace and its tap device need root")
	}
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	image, err := e.prepare(ctx)
	if err != nil {
		return err
	}
	if err := e.makeNetwork(ctx); err != nil {
		return err
	}
	if err := e.startPlane(ctx); err != nil {
		return err
	}
	fresh, err := e.boot(ctx, image)
	if err != nil {
		return err
	}
	if err := e.awaitPlane(ctx); err != nil {
		return err
	}
	if fresh {
		if err := e.Install(ctx); err != nil {
			return err
		}
	}
	return e.AwaitReady(ctx)
}

// Prepare builds the image and the programs, and also the build targets in further, so that a later Up with NoBuild has everything.
func (e *Env) Prepare(ctx context.Context, further ...string) error {
	_, err := e.prepare(ctx, further...)
	return err
}

func (e *Env) prepare(ctx context.Context, further ...string) (vm.Image, error) {
	if err := debian.Install(ctx, append(debian.Needed(), vm.Tools()...), e.Progress); err != nil {
		return vm.Image{}, err
	}
	if !e.NoBuild {
		names := []string{"wherry-controlplane", "runc", "containerd", "CNI plugins", "crictl", "kubectl", "image programs"}
		names = append(names, further...)
		if err := build.Run(ctx, e.Checkout, names, e.Progress); err != nil {
			return vm.Image{}, err
		}
		if _, err := build.Images(ctx, e.Checkout); err != nil {
			return vm.Image{}, err
		}
	}
	return vm.Build(ctx, e.Cache, vm.Debian(), e.Progress)
}

// MakePackages builds the Debian packages of the checkout into dir. version is their version; "": the version of the commit.
func (e *Env) MakePackages(ctx context.Context, dir, version string) error {
	args := []string{"--checkout", e.Checkout, "--arch", "amd64", "--out", dir}
	if version != "" {
		args = append(args, "--version", version)
	}
	_, err := output(ctx, e.bin("wherry-packages"), args...)
	return err
}

// payload makes a disk image with everything that the guest installs: programs, container images, packages. It returns the path of the
// image, and keeps an existing one.
func (e *Env) payload(ctx context.Context) (file string, err error) {
	file = e.path("payload.img")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	dir := e.path("payload")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.RemoveAll(dir); err != nil { // a killed run may have left packages of another version
		return "", err
	}
	if err := os.MkdirAll(filepath.Join(dir, "bin", "cni"), 0o755); err != nil {
		return "", err
	}
	if err := e.MakePackages(ctx, filepath.Join(dir, "packages"), ""); err != nil {
		return "", err
	}
	names := []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", "crictl"}
	for _, plugin := range []string{"ptp", "host-local", "loopback", "portmap", "bridge"} {
		names = append(names, "cni/"+plugin)
	}
	for _, name := range names {
		if err := copyFile(e.bin(name), filepath.Join(dir, "bin", name)); err != nil {
			return "", err
		}
	}
	if err := copyFile(e.bin("images.tar"), filepath.Join(dir, "images.tar")); err != nil {
		return "", err
	}
	if err := vm.FileSystem(ctx, file+".new", dir, "payload", 512); err != nil {
		return "", err
	}
	return file, os.Rename(file+".new", file)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// makeNetwork creates the network namespace with its tap device, unless it exists.
func (e *Env) makeNetwork(ctx context.Context) error {
	name := e.namespace()
	if _, err := os.Stat("/run/netns/" + name); err == nil {
		return nil
	}
	if _, err := output(ctx, "ip", "netns", "add", name); err != nil {
		return err
	}
	for _, line := range []string{
		"link set lo up", "tuntap add dev " + tap + " mode tap", "addr add " + planeAddress + "/24 dev " + tap, "link set " + tap + " up",
		"route add 10.244.0.0/24 via " + guestAddress, // route to the pods, for programs on this machine that connect to them
	} {
		if _, err := output(ctx, "ip", append([]string{"-n", name}, strings.Fields(line)...)...); err != nil {
			return errors.Join(err, e.removeNetwork(context.WithoutCancel(ctx))) // the next Up would take an incomplete namespace as complete
		}
	}
	return nil
}

func (e *Env) planePID() string { return e.path("controlplane.pid") }

func (e *Env) startPlane(context.Context) error {
	if _, running := proc.Find(e.planePID()); running {
		return nil
	}
	_ = os.Remove(e.path("controlplane.ready"))
	line := e.inside(e.bin("wherry-controlplane"), "--data-dir="+e.path("controlplane"), "--admin-kubeconfig="+e.Kubeconfig(),
		"--ready-file="+e.path("controlplane.ready"), "--bind-address="+planeAddress, "--advertise-address="+planeAddress, "--proxy=false", "--node-name="+NodeName)
	line = append(line, e.PlaneArgs...)
	_, err := proc.Start(proc.Spec{PIDFile: e.planePID(), Log: e.path("controlplane.log"), Path: line[0], Args: line[1:]})
	if err == nil {
		e.say("control plane started in the network namespace %s", e.namespace())
	}
	return err
}

func (e *Env) awaitPlane(ctx context.Context) error {
	var ended bool
	err := vm.Await(ctx, "the control plane", 4*time.Minute, 200*time.Millisecond, func(context.Context) (bool, string) {
		if _, err := os.Stat(e.path("controlplane.ready")); err == nil {
			return true, ""
		}
		_, running := proc.Find(e.planePID())
		ended = !running
		return ended, "it is starting; " + e.path("controlplane.log")
	})
	if ended {
		err = fmt.Errorf("start the control plane: it has ended; see %s", e.path("controlplane.log"))
	}
	return err
}

// boot boots the guest unless it runs. fresh is true if nothing is installed in the guest yet.
func (e *Env) boot(ctx context.Context, image vm.Image) (fresh bool, err error) {
	payload, err := e.payload(ctx)
	if err != nil {
		return false, err
	}
	if e.Accel == "" {
		if e.Accel = os.Getenv("WHERRY_VM_ACCEL"); e.Accel == "" {
			e.Accel = vm.Accelerator(ctx, image.Kernel)
		}
	}
	e.Machine, err = vm.New(vm.Config{
		Dir: e.path("guest"), Image: image, HostName: NodeName, ReadOnly: []string{payload}, Namespace: e.namespace(), Tap: tap,
		CPUs: cpus(e.Accel), NUMANodes: 2, MemoryMiB: cmp.Or(e.MemoryMiB, 3<<10), DiskMiB: e.DiskMiB, Accel: e.Accel,
	})
	if err != nil {
		return false, err
	}
	_, err = os.Stat(e.installed())
	fresh = err != nil
	if e.Machine.Running() {
		return fresh, nil
	}
	began := time.Now()
	if err := e.Machine.Boot(ctx); err != nil {
		return false, err
	}
	e.say("the guest lives, %.0f s after it got power (%s)", time.Since(began).Seconds(), e.Accel)
	return fresh, nil
}

// cpus returns how many CPUs the guest has: 4, but not more than this machine has if the guest is emulated. Emulated CPUs wait for each other,
// so more of them than real ones make the guest slower.
func cpus(accel string) int {
	if accel == vm.TCG && runtime.NumCPU() < 4 {
		return 2
	}
	return 4
}

// installed returns the path of a file that exists once the guest has joined the cluster as a node.
func (e *Env) installed() string { return e.path("installed") }
