package config

import (
	"encoding/json"
	"strings"
	"testing"
)

// The configuration and the flags that a reader can see contain no credential.
func TestCredentialsAreMasked(t *testing.T) {
	t.Parallel()
	cfg, _, err := Load([]string{
		"--manifest-url=https://user-secret:word-secret@host/pods?token=secret#secret", "--manifest-url-header=Authorization:Bearer secret,X-Key:secret",
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(Masked(&cfg.Kubelet))
	if err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]string{"configuration": string(text), "flags": cfg.Flags["manifest-url"] + " " + cfg.Flags["manifest-url-header"]} {
		if strings.Contains(got, "secret") {
			t.Errorf("%s: a secret is shown: %s", what, got)
		}
		if !strings.Contains(got, "https://REDACTED@host/pods?REDACTED") || !strings.Contains(got, "X-Key") {
			t.Errorf("%s: a value that is no secret is hidden too: %s", what, got)
		}
	}
	if cfg.Kubelet.StaticPodURLHeader["X-Key"][0] != "secret" || !strings.Contains(cfg.Kubelet.StaticPodURL, "word-secret") {
		t.Error("the configuration in use was changed")
	}
	for raw, want := range map[string]string{"": "", "https://host/pods": "https://host/pods", "https://ho st/secret": masked} {
		if got := maskURL(raw); got != want {
			t.Errorf("%q: %q, want %q", raw, got, want)
		}
	}
}
