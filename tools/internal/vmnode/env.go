package vmnode

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/wherry-node/wherry/tools/internal/proc"
	"github.com/wherry-node/wherry/tools/internal/vm"
)

// These are the IP addresses of the control plane and of the guest on the tap device tap. The address of the guest is also a part of the
// image.
const (
	planeAddress = "10.77.0.1"
	guestAddress = "10.77.0.2"
	tap          = "tap0"
)

// NodeName is the name of the Node, and the guest's host name.
const NodeName = "wherry-vm"

// Options configure the environment.
type Options struct {
	Checkout string
	// Dir is the directory of all files; "": .wherry/vm in the checkout.
	Dir string
	// Cache is the directory of images; "": wherry/vm in the user's cache directory.
	Cache string
	// Accel is vm.KVM or vm.TCG; "": KVM if guests can run under it on this machine.
	Accel string
	// MemoryMiB is the guest's memory in MiB; 0: 3072. DiskMiB is the size of its disk in MiB; 0: that of the image (6 GiB).
	MemoryMiB, DiskMiB int
	// PlaneArgs are additional arguments of the control plane.
	PlaneArgs []string
	// NoBuild uses the programs in bin/ without building them. The packages are built in any case.
	NoBuild  bool
	Progress io.Writer
}

// Env is the virtual machine of one checkout, with its control plane. Only the method Kubectl may be called concurrently.
type Env struct {
	Options
	// Machine is the guest; nil until Up has found or booted it.
	Machine *vm.Machine
	began   time.Time
}

// New checks the options and sets their defaults. It starts nothing.
func New(o Options) (*Env, error) {
	if o.Dir == "" {
		o.Dir = filepath.Join(o.Checkout, ".wherry", "vm")
	}
	if o.Cache == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a directory for images: %w", err)
		}
		o.Cache = filepath.Join(cache, "wherry", "vm")
	}
	return &Env{Options: o, began: time.Now()}, nil
}

func (e *Env) path(elem ...string) string {
	return filepath.Join(append([]string{e.Dir}, elem...)...)
}

func (e *Env) bin(name string) string { return filepath.Join(e.Checkout, "bin", name) }

// Kubeconfig returns the path of the administrator's kubeconfig. Its server can be reached only from the network namespace.
func (e *Env) Kubeconfig() string { return e.path("admin.kubeconfig") }

// namespace returns the name of the network namespace. It depends on the directory of the environment.
func (e *Env) namespace() string {
	sum := sha256.Sum256([]byte(e.Dir))
	return "wherry-vm-" + hex.EncodeToString(sum[:4])
}

// inside returns a command line that runs the command args in the network namespace.
func (e *Env) inside(args ...string) []string {
	return append([]string{"nsenter", "--net=/run/netns/" + e.namespace(), "--"}, args...)
}

// Command returns a command that runs in the network namespace.
func (e *Env) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	line := e.inside(append([]string{name}, args...)...)
	return exec.CommandContext(ctx, line[0], line[1:]...), nil
}

// Listen listens at a TCP port of the network namespace. It returns the address at which the guest reaches that port, too.
func (e *Env) Listen(port int) (listener net.Listener, address string, err error) {
	address = fmt.Sprintf("%s:%d", planeAddress, port)
	listener, err = proc.Listen("/run/netns/"+e.namespace(), address)
	return listener, address, err
}

func (e *Env) say(format string, args ...any) {
	fmt.Fprintf(e.Progress, "%6.1f s  %s\n", time.Since(e.began).Seconds(), fmt.Sprintf(format, args...))
}

// Agent returns the guest agent of the guest, even if another process booted the guest.
func (e *Env) Agent() *vm.Agent { return vm.NewAgent(e.path("guest", "agent.sock")) }

// Running reports whether the guest runs, even if another process booted it.
func (e *Env) Running() bool {
	_, ok := proc.Find(e.path("guest", "qemu.pid"))
	return ok
}

// lock makes sure that no other Up or Down of this environment runs at the same time. If one does, lock returns an error. The lock file is
// beside the directory, because Down removes the directory.
func (e *Env) lock() (unlock func(), err error) {
	return proc.Lock(e.Dir+".lock", "another make vm, make vm-down or make test-vm is at work in this checkout")
}

// Kubectl runs kubectl with the administrator's kubeconfig and returns its output.
func (e *Env) Kubectl(ctx context.Context, args ...string) (string, error) {
	return e.KubectlApply(ctx, "", args...)
}

// KubectlHere runs kubectl with the administrator's kubeconfig. It uses the standard input and output of this program.
func (e *Env) KubectlHere(ctx context.Context, args ...string) error {
	cmd := e.kubectl(ctx, args)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

func (e *Env) kubectl(ctx context.Context, args []string) *exec.Cmd {
	line := e.inside(append([]string{e.bin("kubectl"), "--kubeconfig", e.Kubeconfig()}, args...)...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env, cmd.WaitDelay = append(os.Environ(), "KUBECACHEDIR="+e.path("cache", "kubectl")), 10*time.Second
	return cmd
}

// KubectlApply runs kubectl as Kubectl does, with input as its standard input.
func (e *Env) KubectlApply(ctx context.Context, input string, args ...string) (string, error) {
	cmd := e.kubectl(ctx, args)
	cmd.Stdin = strings.NewReader(input)
	return proc.Output(cmd, proc.Line("kubectl", args...))
}

// output runs a program and returns its standard output. If the program fails, the error contains its standard error.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = 10 * time.Second
	return proc.Output(cmd, proc.Line(name, args...))
}
