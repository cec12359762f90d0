package agent

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/cert"
)

// Prepare performs the steps of Run that come before the start of the parts, except those that change this machine. api
// replaces the listener of the HTTPS port. free closes what Prepare has opened.
func (a *Agent) Prepare(ctx context.Context, api net.Listener) (free func(), err error) {
	for _, step := range []func(context.Context) error{a.openRuntime, a.openClient, a.openServing, a.protectLoopback} {
		if err := step(ctx); err != nil {
			return a.close, err
		}
	}
	if *a.cfg.Kubelet.EnableServer {
		a.deps.API = api
	}
	return a.close, a.build()
}

// Build builds the parts, as Run does.
func (a *Agent) Build() error { return a.build() }

// MakeParts creates the parts, as Run does before it runs them, and allows Reconfigure. It applies the configuration to the parts once, so
// that a difference that a test sees later can come only from a changed configuration.
func (a *Agent) MakeParts() error {
	a.parts()
	a.live.begin()
	return a.follow(a.kubelet(), nil)
}

// Opened returns what Prepare has opened, and the ports and the serving certificate's configuration, which Run would use.
func (a *Agent) Opened() []any {
	serving, err := a.servingConfig()
	return []any{a.deps, a.ports(), len(a.opened.parts), a.opened.client, serving, err}
}

// WriteIdentity writes a kubeconfig with a token, and two files that each contain a certificate and its key.
func WriteIdentity(t *testing.T, dir string) {
	t.Helper()
	kubeconfig := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"https://127.0.0.1:1\"}}]\n" +
		"users: [{name: u, user: {token: t}}]\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\n"
	certificate, key, err := cert.GenerateSelfSignedCertKey("flip", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"kubeconfig": []byte(kubeconfig), "a.crt": certificate, "b.crt": certificate, "a.key": key, "b.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
