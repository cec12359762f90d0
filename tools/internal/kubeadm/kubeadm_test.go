package kubeadm

import (
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/wherry-node/wherry/tools/internal/build"
	"github.com/wherry-node/wherry/tools/internal/proc"
)

func cluster(t *testing.T) *Cluster {
	t.Helper()
	c, err := New(Options{Checkout: "/checkout", Dir: t.TempDir(), Agent: "wherry", Progress: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Each document of kubeadm's configuration has its kind, and the configuration names the node, its runtime and its cgroup.
func TestConfigurationsNameTheNode(t *testing.T) {
	t.Parallel()
	c := cluster(t)
	n := c.nodes[1]
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	more := map[string]any{"Token": "abcdef.0123456789abcdef", "Server": c.first().address, "CAHash": "sha256:00"}
	for kind, want := range map[string][]string{
		"init": {"kubernetesVersion: " + build.KubernetesVersion, "advertiseAddress: \"10.78.0.12\"", "serverTLSBootstrap: true", "mode: nftables"},
		"join": {"apiServerEndpoint: \"10.78.0.11:6443\"", "caCertHashes: [\"sha256:00\"]"},
	} {
		config := initConfig
		if kind == "join" {
			config = joinConfig
		}
		file, err := n.configure(config, more)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(string(data), "---\n") {
			if !strings.Contains(part, "apiVersion: ") || !strings.Contains(part, "\nkind: ") {
				t.Errorf("%s has a document without a kind:\n%s", kind, part)
			}
		}
		for _, text := range append(want, "name: two", "criSocket: unix://"+n.containerd().Socket(), n.cgroup(), "abcdef.0123456789abcdef") {
			if !strings.Contains(string(data), text) {
				t.Errorf("%s lacks %s", kind, text)
			}
		}
	}
}

func TestTokensHaveTheFormThatKubeadmWants(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
	if a, b := newToken(), newToken(); !form.MatchString(a) || a == b {
		t.Errorf("tokens %s, %s", a, b)
	}
}

func TestContainersOfCrictl(t *testing.T) {
	t.Parallel()
	got, err := parseContainers(`{"containers":[{"id":"1","metadata":{"name":"etcd"},"labels":{"io.kubernetes.pod.name":"etcd-one"}}]}`)
	if err != nil || !maps.Equal(got, map[string]string{"etcd-one/etcd": "1"}) || !isStatic("etcd-one/etcd") || isStatic("web-1/web") {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseContainers("no JSON"); err == nil {
		t.Error("text that is no JSON is no error")
	}
}

// A program never enters the namespaces of the machine itself: it would mount over the machine's directories.
func TestNamespacesOfTheMachineAreRefused(t *testing.T) {
	t.Parallel()
	s := spaces{pidFile: filepath.Join(t.TempDir(), "pid"), kinds: []string{"mount"}}
	if _, err := s.inside("true"); err == nil {
		t.Error("without a holder there is no error")
	}
	holder, err := proc.Start(proc.Spec{PIDFile: s.pidFile, Log: s.pidFile + ".log", Path: "/bin/sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Kill(context.Background()) })
	if _, err := s.inside("true"); err == nil {
		t.Error("a holder in the namespaces of the machine is no error")
	}
}

func TestOtherAgentsAreRefused(t *testing.T) {
	t.Parallel()
	if _, err := New(Options{Agent: "other"}); err == nil {
		t.Error("an unknown node agent is no error")
	}
	if _, err := cluster(t).On(t.Context(), "three", "true"); err == nil {
		t.Error("an unknown node is no error")
	}
}
