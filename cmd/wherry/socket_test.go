package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/wherry-node/wherry/internal/edge/config"
)

// A node of a cluster has a control socket only if the user configures one. The default path of a control socket is in a directory that
// pods cannot mount.
func TestControlSocketPath(t *testing.T) {
	t.Parallel()
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "wherry.yaml")
		if err := os.WriteFile(path, []byte("apiVersion: wherry.dev/v1alpha1\nkind: WherryConfiguration\ncontrolSocket: "+text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	on, off := file("{enabled: true}"), file("{enabled: false}")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, config.SystemSocket},
		{[]string{"--kubeconfig=/k"}, ""}, // none by default, because a client of the socket may do everything on the node
		{[]string{"--kubeconfig=/k", "--push-socket=/s"}, "/s"},
		{[]string{"--kubeconfig=/k", "--wherry-config=" + on}, config.SystemSocket},
		{[]string{"--kubeconfig=/k", "--wherry-config=" + on, "--push-socket=none"}, ""},
		{[]string{"--wherry-config=" + off}, ""},
		{[]string{"--wherry-config=" + off, "--push-socket=/s"}, "/s"},
		{[]string{"--root-dir=/var/lib/kubelet/"}, config.SystemSocket},
		{[]string{"--root-dir=/r"}, "/run/wherry/wherry-6588117f7b51.sock"}, // not below /r, because pods may mount directories below it
		{[]string{"--push-socket=/s"}, "/s"},
		{[]string{"--push-socket=none"}, ""},
		{[]string{"--container-runtime-endpoint=simulated://", "--kubeconfig=/k", "--root-dir=/r"}, "/r/wherry.sock"}, // simulated pods mount nothing
		{[]string{"--container-runtime-endpoint=simulated://"}, config.SimulatedSocket},
		{[]string{"--container-runtime-endpoint=simulated://", "--push-socket=none"}, ""},
	} {
		cfg, _, err := config.Load(c.args)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := cfg.ControlSocket(); got != c.want {
			t.Errorf("%v: %q, want %q", c.args, got, c.want)
		}
	}
}
