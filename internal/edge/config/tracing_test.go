package config_test

import (
	"strings"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// Rates and endpoints that upstream's kubelet refuses are errors here, too.
func TestTracingIsChecked(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"{samplingRatePerMillion: 1000000}":               "",
		"{endpoint: \"localhost:4317\"}":                  "",
		"{endpoint: \"dns:///collector:4317\"}":           "",
		"{endpoint: \"unix:///run/otel.sock\"}":           "",
		"{samplingRatePerMillion: -1}":                    "tracing.samplingRatePerMillion",
		"{samplingRatePerMillion: 1000001}":               "tracing.samplingRatePerMillion",
		"{endpoint: \"http://localhost:4318/v1/traces\"}": "tracing.endpoint",
	} {
		_, _, err := config.Load([]string{"--config", write(t, t.TempDir(), "c.yaml", "tracing: "+body+"\n")})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %q", body, err, want)
		}
	}
}
