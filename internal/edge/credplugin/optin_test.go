package credplugin

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"
)

// A plugin does not run for a service account that lacks a required annotation. Workloads opt in to a plugin in this way, so this is no
// error and no warning, as in upstream's kubelet (isRequiredAnnotationNotFoundError in pkg/credentialprovider/plugin).
func TestAnAccountThatHasNotOptedIn(t *testing.T) {
	t.Parallel()
	s := newSite(t, answering(`"cacheKeyType":"Global",`+auth), fmt.Sprintf(tokenFields, true, "Token", "role, absent"))
	var log bytes.Buffer
	s.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	got, err := s.load().Credentials(t.Context(), podOf("p1", "a"), "a.example.com/x")
	if err != nil || len(got) != 0 || s.runs() != 0 || s.tokens != 0 || log.Len() != 0 {
		t.Errorf("%d credentials, %v, %d runs, %d tokens, want none of them; the log: %s", len(got), err, s.runs(), s.tokens, log.String())
	}
}
