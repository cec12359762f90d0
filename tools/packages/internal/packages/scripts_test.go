package packages

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// machine is a directory in which a package's scripts run as if it were the root of a machine with systemd.
type machine struct {
	t    *testing.T
	root string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir()}
	m.write("run/systemd/system/here", "")
	m.write("proc/self/mountinfo", "1 1 0:1 / / rw - ext4 /dev/vda rw\n")
	return m
}

func (m *machine) write(path, text string) {
	m.t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) has(path string) bool {
	_, err := os.Lstat(filepath.Join(m.root, path))
	return err == nil
}

// run runs a package's script with its paths below root. It returns the script's calls of systemctl, except daemon-reload. enabled is what
// `systemctl is-enabled` answers.
func (m *machine) run(script string, enabled bool, args ...string) (calls []string) {
	m.t.Helper()
	text, err := sample().script(script, takingUnit)
	if err != nil {
		m.t.Fatal(err)
	}
	// Every absolute path in the script is replaced by one below root, so that the test cannot change this machine.
	paths := regexp.MustCompile(`(^|[\s"'=])/(run|proc|etc|usr|var|sys)/`)
	moved := paths.ReplaceAllString(string(text), "${1}"+m.root+"/${2}/")
	for _, path := range regexp.MustCompile(`/(run|proc|etc|usr|var|sys)/`).FindAllStringIndex(moved, -1) {
		if !strings.HasSuffix(moved[:path[0]], m.root) {
			m.t.Fatalf("%s has a path of the machine: %q", script, moved[path[0]:min(len(moved), path[1]+20)])
		}
	}
	log := filepath.Join(m.root, "calls")
	_ = os.Remove(log)
	m.write("bin/systemctl", fmt.Sprintf("#!/bin/sh\necho \"$*\" >> %s\ncase \"$*\" in *is-enabled*) exit %d;; esac\n", log, map[bool]int{true: 0, false: 1}[enabled]))
	if err := os.Chmod(filepath.Join(m.root, "bin/systemctl"), 0o755); err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.CommandContext(m.t.Context(), "sh", append([]string{"-s"}, args...)...)
	cmd.Stdin = strings.NewReader(moved)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(m.root, "bin")+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		m.t.Fatalf("%s %q: %v: %s", script, args, err, out)
	}
	asked, _ := os.ReadFile(log)
	for line := range strings.Lines(string(asked)) {
		if line = strings.TrimSpace(line); line != "daemon-reload" && !strings.Contains(line, "is-enabled") {
			calls = append(calls, line)
		}
	}
	return calls
}

// An upgrade restarts the agent only if it was running. A first installation starts the agent only if it replaces an enabled kubelet. Only
// the removal of the package stops the agent.
func TestWhatTheScriptsAskOfSystemd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		script  string
		enabled bool
		args    []string
		want    string
	}{
		{"postinst", false, []string{"configure", ""}, ""},
		{"postinst", true, []string{"configure", ""}, "start kubelet.service"},
		{"postinst", true, []string{"configure", "0.0.9"}, "try-restart kubelet.service"},
		{"postinst", false, []string{"configure", "0.0.9"}, "try-restart kubelet.service"},
		{"postinst", true, []string{"abort-upgrade", "0.0.9"}, ""},
		{"postinst", false, []string{"1"}, ""},
		{"postinst", true, []string{"1"}, "start kubelet.service"},
		{"postinst", true, []string{"2"}, "try-restart kubelet.service"},
		{"prerm", true, []string{"upgrade", "0.2.0"}, ""},
		{"prerm", true, []string{"1"}, ""},
		{"prerm", true, []string{"remove"}, "stop kubelet.service"},
		{"prerm", true, []string{"remove", "in-favour", "kubelet", "1.36"}, "stop kubelet.service"},
		{"prerm", true, []string{"0"}, "disable --now kubelet.service"},
		{"postrm", true, []string{"upgrade", "0.2.0"}, ""},
		{"postrm", true, []string{"remove"}, ""},
		{"postrm", true, []string{"0"}, ""},
		{"postrm", true, []string{"purge"}, "reset-failed kubelet.service"},
	} {
		if got := strings.Join(newMachine(t).run(c.script, c.enabled, c.args...), "; "); got != c.want {
			t.Errorf("%s %q, enabled %t: asks systemctl to %q, want %q", c.script, c.args, c.enabled, got, c.want)
		}
	}
}

// A purge removes the node's state, unless pods still exist or another kubelet is installed.
func TestPurge(t *testing.T) {
	t.Parallel()
	const link = "etc/systemd/system/multi-user.target.wants/kubelet.service"
	for _, c := range []struct {
		name             string
		before           func(*machine)
		keeps, keepsLink bool
	}{
		{"a drained node", func(*machine) {}, false, false},
		{"a node with a pod", func(m *machine) { m.write("var/lib/kubelet/pods/1/etc-hosts", "") }, true, false},
		{"a node with a mount", func(m *machine) {
			m.write("proc/self/mountinfo", "2 1 0:5 / "+m.root+"/var/lib/kubelet/pods/1/volumes/x rw - tmpfs tmpfs rw\n")
		}, true, false},
		{"another kubelet's package", func(m *machine) { m.write("usr/lib/systemd/system/kubelet.service", "") }, true, true},
		{"a unit of the administrator", func(m *machine) { m.write("etc/systemd/system/kubelet.service", "") }, true, true},
	} {
		m := newMachine(t)
		m.write("var/lib/kubelet/config.yaml", "")
		m.write("var/lib/other/file", "")
		m.write("etc/kubernetes/kubelet.conf", "")
		m.write("etc/kubernetes/pki/ca.crt", "")
		m.write(link, "")
		c.before(m)
		m.run("postrm", true, "purge")
		if got := m.has("var/lib/kubelet/config.yaml"); got != c.keeps {
			t.Errorf("%s: the state is kept: %t, want %t", c.name, got, c.keeps)
		}
		if got := m.has("etc/kubernetes/kubelet.conf"); got != c.keeps {
			t.Errorf("%s: the identity is kept: %t, want %t", c.name, got, c.keeps)
		}
		if got := m.has(link); got != c.keepsLink {
			t.Errorf("%s: the unit stays enabled: %t, want %t", c.name, got, c.keepsLink)
		}
		if !m.has("etc/kubernetes/pki/ca.crt") || !m.has("var/lib/other/file") {
			t.Errorf("%s: what is not the agent's has gone", c.name)
		}
	}
}

// On a machine where the node's directory is a file system of its own, a purge empties it and does not fail.
func TestPurgeOfAFileSystem(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.write("var/lib/kubelet/old", "")
	dir := filepath.Join(m.root, "var/lib/kubelet")
	if err := syscall.Mount("none", dir, "tmpfs", 0, ""); err == nil { // only root may mount; without, the directory stands for a file system
		t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	}
	m.write("proc/self/mountinfo", "2 1 0:5 / "+dir+" rw - ext4 /dev/vdb rw\n")
	m.write("var/lib/kubelet/pki/kubelet.key", "")
	m.write("etc/kubernetes/kubelet.conf", "")
	m.run("postrm", true, "purge")
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 || m.has("etc/kubernetes/kubelet.conf") {
		t.Errorf("left %v, %v; the identity is kept: %t", left, err, m.has("etc/kubernetes/kubelet.conf"))
	}
}
