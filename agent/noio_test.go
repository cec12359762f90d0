package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/wherry-node/wherry/agent"
)

// New does no IO. The test calls it with a configuration whose files do not exist, in a process that the kernel kills at its
// first attempt to open a file or a connection. The test also calls Run, which the kernel has to kill: this shows that the filter
// works.
func TestNewDoesNoIO(t *testing.T) {
	const env = "WHERRY_TEST_NO_IO"
	if do := os.Getenv(env); do != "" {
		withoutIO(do)
	}
	t.Parallel()
	for _, do := range []string{"new", "run"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestNewDoesNoIO$")
		cmd.Env = append(os.Environ(), env+"="+do)
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGSYS
		switch {
		case strings.Contains(string(out), "no filter"):
			t.Skipf("%s", out)
		case killed != (do == "run") || do == "new" && err != nil:
			t.Errorf("%s: killed for a system call %t: %v\n%s", do, killed, err, out)
		}
	}
}

// withoutIO calls New under the filter of forbidIO; if do is "run", it also calls Run. It ends the process.
func withoutIO(do string) {
	kubelet := agent.DefaultConfiguration()
	kubelet.StaticPodPath, kubelet.TLSCertFile, kubelet.TLSPrivateKeyFile = "/nowhere/manifests", "/nowhere/crt", "/nowhere/key"
	kubelet.Authentication.X509.ClientCAFile, kubelet.ContainerRuntimeEndpoint = "/nowhere/ca", "unix:///nowhere/containerd.sock"
	cfg := agent.Config{
		NodeName: "n", Kubelet: kubelet, RootDir: "/nowhere/root", Kubeconfig: "/nowhere/kubeconfig", BootstrapKubeconfig: "/nowhere/bootstrap",
		CertDir: "/nowhere/pki", Listen: true, ControlSocket: "/nowhere/socket",
	}
	deps := agent.Deps{Machine: agent.RealMachine(), Log: slog.New(slog.DiscardHandler)}
	if err := forbidIO(); err != nil {
		println("no filter:", err.Error())
		os.Exit(2)
	}
	a, err := agent.New(cfg, deps)
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	if do == "run" {
		_ = a.Run(context.Background())
	}
	os.Exit(0)
}

// forbidIO makes the kernel kill this process when one of its threads opens, looks up or creates a file or connection.
func forbidIO() error {
	forbidden := []uint32{
		unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_NEWFSTATAT, unix.SYS_STATX, unix.SYS_STATFS, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_READLINKAT,
		unix.SYS_MKDIRAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT, unix.SYS_RENAMEAT2, unix.SYS_GETDENTS64, unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_MOUNT,
		unix.SYS_UNAME, unix.SYS_SYSINFO,
	}
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the number of the system call
	for i, n := range forbidden {
		filter = append(filter, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(forbidden) - i), K: n})
	}
	filter = append(filter,
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_KILL_PROCESS},
	)
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return errno
	}
	return nil
}
