package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// The agent accepts the command lines of the systemd units in deploy/, with the environment variables that kubeadm and administrators set.
func TestUnits(t *testing.T) {
	t.Parallel()
	environment := regexp.MustCompile(`(?m)^Environment="(\w+)=(.*)"$`)
	exec := regexp.MustCompile(`(?m)^ExecStart=(\S+.*)$`)
	file := t.TempDir() + "/config.yaml"
	if err := os.WriteFile(file, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, unit := range []string{"kubelet.service.d/10-kubeadm.conf", "wherry-kubelet.service"} {
		data, err := os.ReadFile("../../deploy/systemd/" + unit)
		if err != nil {
			t.Fatal(err)
		}
		vars := map[string]string{
			"KUBELET_KUBEADM_ARGS": "--container-runtime-endpoint=unix:///run/containerd/containerd.sock --pod-infra-container-image=registry.k8s.io/pause:3.10",
			"KUBELET_EXTRA_ARGS":   "--fail-swap-on=false -v 3",
		}
		for _, m := range environment.FindAllStringSubmatch(string(data), -1) {
			vars[m[1]] = m[2]
		}
		line := exec.FindStringSubmatch(string(data))[1]
		line = os.Expand(line, func(name string) string { return vars[name] })
		line = strings.ReplaceAll(line, "/var/lib/kubelet/config.yaml", file)
		args := commandLine(strings.Fields(line))
		if args[0] != "kubelet" {
			t.Fatalf("%s runs %q", unit, line)
		}
		cfg, notices, err := config.Load(args[1:])
		if err != nil {
			t.Fatalf("%s: %v", unit, err)
		}
		if cfg.Kubeconfig != "/etc/kubernetes/kubelet.conf" || cfg.BootstrapKubeconfig == "" || cfg.Verbosity() != 3 || *cfg.Kubelet.FailSwapOn {
			t.Errorf("%s: %q read as %+v", unit, line, cfg)
		}
		var subjects []string
		for _, n := range notices {
			subjects = append(subjects, n.Subject)
		}
		if want := []string{"--pod-infra-container-image", "defaults of Kubernetes"}; !slices.Equal(subjects, want) {
			t.Errorf("%s: a start says something about %q, want %q", unit, subjects, want)
		}
	}
}
