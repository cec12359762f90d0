package agent

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"
)

// The configuration's fields about shutdowns reach the policy, except those whose feature gate is off.
func TestShutdownPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		edit func(*Config)
		want string
	}{
		{"nothing is said", func(*Config) {}, "[] 0s"},
		{"two classes of pods", func(c *Config) {
			c.Kubelet.ShutdownGracePeriod, c.Kubelet.ShutdownGracePeriodCriticalPods = metav1.Duration{Duration: 30 * time.Second}, metav1.Duration{Duration: 10 * time.Second}
		}, "[{0 20s} {2000000000 10s}] 30s"},
		{"shutdownGracePeriodByPodPriority", byPriority, "[{0 3s} {1000 5s}] 8s"},
		{"by priority, with its gate off", func(c *Config) {
			byPriority(c)
			c.Kubelet.FeatureGates = map[string]bool{"GracefulNodeShutdownBasedOnPodPriority": false}
		}, "[] 0s"},
		{"with the gate off", func(c *Config) {
			byPriority(c)
			c.Kubelet.FeatureGates = map[string]bool{"GracefulNodeShutdown": false}
		}, "[] 0s"},
	} {
		cfg := &Config{}
		c.edit(cfg)
		p := shutdownPolicy(cfg)
		if got := fmt.Sprint([]any{p, p.Whole()}...); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func byPriority(c *Config) {
	c.Kubelet.ShutdownGracePeriodByPodPriority = []kubelet.ShutdownGracePeriodByPodPriority{
		{Priority: 1000, ShutdownGracePeriodSeconds: 5}, {Priority: 0, ShutdownGracePeriodSeconds: 3},
	}
}
