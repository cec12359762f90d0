package config_test

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// The verbosity of a logger in use can be changed, as PUT /debug/flags/v does.
func TestSetVerbosity(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		cfg, _ := load(t, "--logging-format="+format, "-v=1")
		level := cfg.Level()
		log := cfg.NewLoggerAt(&out, level).With("node", "n1")
		for _, c := range []struct {
			value string
			ok    bool
			shown bool
		}{{"", false, false}, {"4", true, true}, {"-1", false, true}, {"x", false, true}, {"99999999999", false, true}, {"3", true, false}, {"0", true, false}} {
			if err := config.SetVerbosity(level, c.value); (err == nil) != c.ok {
				t.Errorf("%s: set %q: %v", format, c.value, err)
			}
			out.Reset()
			log.Debug("at four")
			if (out.Len() > 0) != c.shown {
				t.Errorf("%s: after %q: %q", format, c.value, out.String())
			}
		}
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	cfg, _ := load(t, "--config", write(t, t.TempDir(), "c.yaml", "logging: {verbosity: 2, format: text}\n"))
	log := cfg.NewLogger(&out).With("node", "n1").WithGroup("pod")
	log.Info("Started\n", "name", "a b", "attempt", 3)
	log.Log(t.Context(), slog.Level(-2), "shown")
	log.Log(t.Context(), slog.Level(-3), "hidden")
	log.Error("Failed", "err", errors.New("boom"))
	want := regexp.MustCompile(`^I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ log_test\.go:\d+\] "Started\\n" node="n1" pod\.name="a b" pod\.attempt=3
I.*\] "shown" node="n1"
E.*\] "Failed" node="n1" pod\.err="boom"
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("lines:\n%s\nwant: %s", out.String(), want)
	}
	out.Reset()
	cfg, _ = load(t, "--logging-format=json", "-v=1")
	cfg.NewLogger(&out).Info("Started", "name", "a")
	if !regexp.MustCompile(`^\{"ts":\d+\.?\d*(e\+\d+)?,"v":0,"caller":"log_test.go:\d+","msg":"Started","name":"a"\}\n$`).MatchString(out.String()) {
		t.Errorf("JSON line: %s", out.String())
	}
}
