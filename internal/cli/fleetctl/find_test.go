package fleetctl

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// A command without a name finds the fleet "fleet" or the only one that runs, and without a shard the only process of the fleet. If it is not clear
// which one is meant, or another one is named than those that run, the error names those that run. The socket of a process that was killed does not count.
func TestFind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		run               []string // FLEET or FLEET.SHARD
		killed            []string
		fleet, shard      string
		want, complaining string // the socket, or a part of the error
	}{
		"nothing runs":                      {want: "fleet-fleet.sock"},
		"nothing runs under the name":       {fleet: "a", shard: "x", want: "fleet-a.x.sock"},
		"the only fleet":                    {run: []string{"a"}, want: "fleet-a.sock"},
		"the only fleet beside a dead one":  {run: []string{"a"}, killed: []string{"b", "a.x", "fleet"}, want: "fleet-a.sock"},
		"the only shard":                    {run: []string{"a.x"}, want: "fleet-a.x.sock"},
		"the only shard of the fleet":       {run: []string{"a.x", "b.x"}, fleet: "b", want: "fleet-b.x.sock"},
		"a fleet without a name of its own": {run: []string{"a", "fleet", "g"}, want: "fleet-fleet.sock"},
		"the named one":                     {run: []string{"a", "fleet", "g"}, fleet: "g", want: "fleet-g.sock"},
		"the named shard":                   {run: []string{"a.x", "a.y"}, shard: "y", want: "fleet-a.y.sock"},
		"no shard beside shards":            {run: []string{"a.x", "a"}, fleet: "a", want: "fleet-a.sock"},
		"two fleets":                        {run: []string{"b", "a"}, complaining: "this machine runs the fleet a and the fleet b: choose one with --name"},
		"two shards":                        {run: []string{"a.y", "a.x"}, complaining: "this machine runs the shard x of the fleet a and the shard y of the fleet a: choose one with --shard"},
		"a wrong name":                      {run: []string{"a"}, fleet: "b", complaining: "no fleet runs under this name; this machine runs the fleet a"},
		"a wrong shard":                     {run: []string{"a.x"}, fleet: "a", shard: "y", complaining: "no fleet runs under this name; this machine runs the shard x of the fleet a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			listen := func(process string) *net.UnixListener {
				fleet, shard, _ := strings.Cut(process, ".")
				l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, socketName(fleet, shard)), Net: "unix"})
				if err != nil {
					t.Fatal(err)
				}
				l.SetUnlinkOnClose(false) // as when the process is killed
				t.Cleanup(func() { _ = l.Close() })
				return l
			}
			for _, p := range c.run {
				listen(p)
			}
			for _, p := range c.killed {
				_ = listen(p).Close()
			}
			path, err := find(dir, c.fleet, c.shard)
			switch {
			case c.complaining != "" && (err == nil || !strings.Contains(err.Error(), c.complaining)):
				t.Errorf("found %q, %v; want the error %q", path, err, c.complaining)
			case c.complaining == "" && (err != nil || filepath.Base(path) != c.want):
				t.Errorf("found %q, %v; want %q", path, err, c.want)
			}
		})
	}
}

// What the fleet prints for its users names the kubeconfig for any directory.
func TestKubeconfigForAnyDirectory(t *testing.T) { //nolint:paralleltest // it changes the directory
	_, kubeconfig := cluster(t)
	t.Chdir(filepath.Dir(kubeconfig))
	r := Run{Kubeconfig: filepath.Base(kubeconfig), Yes: true}
	if c, err := r.cluster(t.Context(), 1, nil); err != nil || c.kubeconfig != kubeconfig {
		t.Errorf("the kubeconfig is %q, %v; want %q", c.kubeconfig, err, kubeconfig)
	}
}
