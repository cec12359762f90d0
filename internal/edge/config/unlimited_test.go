package config_test

import (
	"testing"
	"time"
)

// "0 indicates no timeout": --streaming-connection-idle-timeout. In the file, 0 means the default.
func TestStreamsWithoutATimeout(t *testing.T) {
	t.Parallel()
	cfg, _ := load(t, "--streaming-connection-idle-timeout=0")
	if got := cfg.Kubelet.StreamingConnectionIdleTimeout.Duration; got != 0 {
		t.Errorf("the flag gives %s", got)
	}
	cfg, _ = load(t, "--config="+write(t, t.TempDir(), "c.yaml", "streamingConnectionIdleTimeout: 0s\n"))
	if got := cfg.Kubelet.StreamingConnectionIdleTimeout.Duration; got != 4*time.Hour {
		t.Errorf("the file gives %s", got)
	}
}
