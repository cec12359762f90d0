package plane

import (
	"net"
	"os"
	"strings"
	"testing"
)

func TestBadConfigurationNamesTheFlag(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no data directory", func(c *Config) { c.DataDir = "" }, "--data-dir"},
		{"service range", func(c *Config) { c.ServiceCIDR = "10.96.0.0" }, "--service-cidr"},
		{"pod range", func(c *Config) { c.ClusterCIDR = "fd00::/64" }, "--cluster-cidr"},
		{"bind address", func(c *Config) { c.BindAddress = "localhost" }, "--bind-address"},
		{"token", func(c *Config) { c.BootstrapToken = "abc" }, "--bootstrap-token"},
		{"extra arguments", func(c *Config) { c.ExtraArgs = map[string][]string{"kubelet": {"a=b"}} }, "kubelet"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := Config{DataDir: t.TempDir(), Executable: "/bin/true"}
			if err := c.fill(); err != nil {
				t.Fatalf("good configuration: %v", err)
			}
			test.change(&c)
			err := c.fill()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v does not name %s", err, test.want)
			}
		})
	}
}

func TestRecallKeepsTokenAndFreePorts(t *testing.T) {
	t.Parallel()
	first := Config{DataDir: t.TempDir(), Executable: "/bin/true"}
	if err := first.recall(); err != nil {
		t.Fatal(err)
	}
	if !tokenForm.MatchString(first.BootstrapToken) {
		t.Errorf("bootstrap token %q", first.BootstrapToken)
	}
	again := Config{DataDir: first.DataDir, Executable: "/bin/true"}
	if err := again.recall(); err != nil {
		t.Fatal(err)
	}
	if again.SecurePort != first.SecurePort || again.EtcdPort != first.EtcdPort || again.BootstrapToken != first.BootstrapToken {
		t.Errorf("second run has %d %d %s, first had %d %d %s", again.SecurePort, again.EtcdPort, again.BootstrapToken,
			first.SecurePort, first.EtcdPort, first.BootstrapToken)
	}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	taken := Config{DataDir: first.DataDir, SecurePort: listener.Addr().(*net.TCPAddr).Port}
	if err := taken.recall(); err == nil || !strings.Contains(err.Error(), "--secure-port") {
		t.Errorf("a port that is taken: %v", err)
	}
}

func TestRecallSurvivesHalfWrittenFile(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: t.TempDir()}
	if err := os.WriteFile(c.path("plane.json"), []byte(`{"securePort": 12`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.recall(); err != nil {
		t.Fatal(err)
	}
	if c.SecurePort == 0 || c.BootstrapToken == "" {
		t.Errorf("port %d, token %q", c.SecurePort, c.BootstrapToken)
	}
}
