package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const hardening = "../../deploy/systemd/kubelet.service.d/20-hardening.conf"

// directives reads a systemd unit. names are the names of all its settings. bare are the names of those settings that no comment explains;
// a comment explains all settings from it to the next empty line or section.
func directives(t *testing.T, file string) (names, bare []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	explained := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "["):
			explained = false
		case strings.HasPrefix(line, "#"):
			explained = true
		default:
			name, _, _ := strings.Cut(line, "=")
			names = append(names, name)
			if !explained {
				bare = append(bare, name)
			}
		}
	}
	return names, bare
}

// In the hardened unit each setting that restricts the agent has a comment with the reason. The unit must not give the agent a mount
// namespace of its own, because the container runtime would not see the mounts of volumes. It must allow the agent to set the set-group-ID
// bit and to use /dev.
func TestHardenedUnitIsOneThatANodeAgentCanBear(t *testing.T) {
	t.Parallel()
	names, bare := directives(t, hardening)
	if len(names) < 10 || len(bare) > 0 {
		t.Errorf("%d lines; without a reason: %q", len(names), bare)
	}
	for _, name := range names {
		for _, prefix := range []string{
			"Protect", "Private", "ReadOnly", "ReadWrite", "Inaccessible", "Bind", "TemporaryFileSystem", "Root", "Mount", "DynamicUser", "User",
			"RestrictSUIDSGID", "UMask", "Device", "IPAddress", "RestrictFileSystems", "NoNewPrivileges", "RuntimeDirectory", "StateDirectory",
		} {
			if strings.HasPrefix(name, prefix) {
				t.Errorf("%s would break mounts, volumes or probes", name)
			}
		}
	}
}

// systemd accepts the units together with their drop-ins. The test is skipped on a machine without systemd-analyze.
func TestUnitsAreValid(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("this machine has no systemd-analyze")
	}
	for _, unit := range []string{"kubelet.service", "wherry-kubelet.service"} {
		dir := t.TempDir()
		put := func(name, from string) {
			t.Helper()
			text, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			// systemd checks that programs exist, so /bin/true stands for them.
			text = []byte(strings.NewReplacer("/usr/bin/kubelet", "/bin/true", "/usr/local/bin/wherry", "/bin/true").Replace(string(text)))
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		put(unit, filepath.Join("../../deploy/systemd", unit))
		put(unit+".d/20-hardening.conf", hardening)
		if unit == "kubelet.service" {
			put(unit+".d/10-kubeadm.conf", "../../deploy/systemd/kubelet.service.d/10-kubeadm.conf")
		}
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", "--recursive-errors=no", filepath.Join(dir, unit))
		cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=warning")
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), dir) {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}
