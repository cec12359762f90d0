package podctl

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/agent/simulated"
)

const manifests3 = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: main, image: registry.example/web:1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: job}
spec: {restartPolicy: Never, containers: [{name: main, image: registry.example/job:1, command: [exit, "3"]}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: b}
`

// startNode runs a simulated node until the test ends, and returns its control socket.
func startNode(t *testing.T) string {
	t.Helper()
	return startNodeWith(t, simulated.Config{Logs: true})
}

func startNodeWith(t *testing.T, cfg simulated.Config) string {
	t.Helper()
	dir := t.TempDir()
	socket := filepath.Join(dir, "wherry.sock")
	n := simulated.New(cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kubelet := agent.DefaultConfiguration()
	*kubelet.EnableServer = false
	kubelet.PodLogsDir = filepath.Join(dir, "logs")
	deps := n.Deps()
	deps.Log = slog.New(slog.DiscardHandler)
	a, err := agent.New(agent.Config{NodeName: "n1", Kubelet: kubelet, ControlSocket: socket, Console: true}, deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- a.Run(ctx) }()
	go func() { ended <- n.ServeStreams(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Errorf("the node ended with %v", err)
		}
		n.Close()
	})
	for range 200 {
		if _, err := findSocket(ctx, socket); err == nil {
			return socket
		}
		if err := sleep(t.Context(), 25*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("nothing listens on the control socket")
	return ""
}

// Each command works on a whole node behind its socket.
func TestCommandsOnANode(t *testing.T) {
	t.Parallel()
	at := Target{Socket: startNode(t)}
	file := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(file, []byte(manifests3), 0o600); err != nil {
		t.Fatal(err)
	}
	run := Run{Files: []string{file}, Detach: true, Wait: true, Timeout: time.Minute, Grace: -1}
	run.Agent.Socket = at.Socket
	for _, c := range []struct {
		name string
		do   func(s Streams) error
		says []string // parts of the command's output, on either stream
		err  string
	}{
		{"run", func(s Streams) error { return run.Run(t.Context(), s) }, []string{"pod/web created", "pod/job created", "configmap/settings created", "exit code 3"}, ""},
		{"ps", func(s Streams) error { return (&Ps{Target: at}).Run(t.Context(), s, nil) }, []string{"web", "1/1", "Running", "job", "Error"}, ""},
		{"ps of one, as YAML", func(s Streams) error { return (&Ps{at, "yaml"}).Run(t.Context(), s, []string{"web"}) }, []string{"kind: PodList", "name: web"}, ""},
		{"ps in a format that is none", func(s Streams) error { return (&Ps{at, "xml"}).Run(t.Context(), s, nil) }, nil, "--output"},
		{"exec", func(s Streams) error {
			return (&Session{Target: at}).Exec(t.Context(), s, "web", []string{"echo", "hello"})
		}, []string{"hello"}, ""},
		{"exec that fails", func(s Streams) error {
			return (&Session{Target: at}).Exec(t.Context(), s, "web", []string{"exit", "7"})
		}, nil, "exit status 7"},
		{"attach with input to a container without", func(s Streams) error { return (&Session{Target: at, Stdin: true}).Attach(t.Context(), s, "web") }, nil, "no stdin: true"},
		{"logs", func(s Streams) error { return (&Logs{Target: at, Tail: -1}).Run(t.Context(), s, "web") }, nil, ""},
		{"logs of no such container", func(s Streams) error { return (&Logs{Target: at, Tail: -1, Container: "x"}).Run(t.Context(), s, "web") }, nil, `"x" is not in pod`},
		{"events", func(s Streams) error { return (&Events{Target: at}).Run(t.Context(), s, "web") }, []string{"Started", "pod/web"}, ""},
		{"explain", func(s Streams) error { return (&Explain{Target: at}).Run(t.Context(), s, "web") }, []string{"everything is as the spec says"}, ""},
		{"explain --all", func(s Streams) error { return (&Explain{Target: at, All: true}).Run(t.Context(), s, "web") }, []string{"Running", "start-container", "the container has not been started"}, ""},
		{"explain --watch of a pod that is well", func(s Streams) error { return (&Explain{Target: at, Watch: true}).Run(t.Context(), s, "web") }, []string{"everything is as the spec says"}, ""},
		{"explain without a pod", func(s Streams) error { return (&Explain{Target: at}).Run(t.Context(), s, "") }, []string{"default/job", "Failed", "exit code 3"}, ""},
		{"explain of a namespace without pods", func(s Streams) error {
			return (&Explain{Target: Target{Socket: at.Socket, Namespace: "other"}}).Run(t.Context(), s, "")
		}, []string{`no pods of namespace "other"`}, ""},
		{"explain of the node", func(s Streams) error { return (&Explain{Target: at}).Run(t.Context(), s, "node") }, []string{"pods: 1 well, 0 on their way, 1 in trouble"}, ""},
		{"explain as JSON", func(s Streams) error { return (&Explain{Target: at, Format: "json"}).Run(t.Context(), s, "job") }, []string{`"cause": "Failed"`, `"level": "trouble"`}, ""},
		{"explain --watch without a pod", func(s Streams) error { return (&Explain{Target: at, Watch: true}).Run(t.Context(), s, "") }, nil, "need a pod"},
		{"explain --export", func(s Streams) error { return (&Explain{Target: at, Export: true}).Run(t.Context(), s, "web") }, []string{`"kind": "WherryTurn"`, `"name": "web"`, "= active"}, ""},
		{"explain --export with --all", func(s Streams) error {
			return (&Explain{Target: at, Export: true, All: true}).Run(t.Context(), s, "web")
		}, nil, "--export excludes"},
		{"rm of a pod that runs, which removes nothing else either", func(s Streams) error {
			return (&Rm{Target: at, Grace: -1}).Run(t.Context(), s, []string{"web", "configmap/settings"})
		}, nil, "--force"},
		{"rm of nothing", func(s Streams) error { return (&Rm{Target: at}).Run(t.Context(), s, nil) }, nil, "--all"},
		{"stop", func(s Streams) error { return (&Stop{Target: at, Grace: 1}).Run(t.Context(), s, []string{"web"}) }, []string{"web"}, ""},
		{"rm", func(s Streams) error {
			return (&Rm{Target: at, Grace: -1}).Run(t.Context(), s, []string{"web", "configmap/settings"})
		}, []string{"web", "configmap/settings"}, ""},
		{"rm --all", func(s Streams) error { return (&Rm{Target: at, Grace: -1, All: true}).Run(t.Context(), s, nil) }, []string{"job"}, ""},
		{"ps of an empty node", func(s Streams) error { return (&Ps{Target: at}).Run(t.Context(), s, nil) }, []string{"No pods."}, ""},
		{"logs of a pod that is gone", func(s Streams) error { return (&Logs{Target: at}).Run(t.Context(), s, "web") }, nil, "which has no pods"},
	} {
		var out, errOut bytes.Buffer // two buffers, because two goroutines write at the same time
		err := c.do(Streams{In: strings.NewReader(""), Out: &out, Err: &errOut})
		out.Write(errOut.Bytes())
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Fatalf("%s: %v, want %q\n%s", c.name, err, c.err, out.String())
		}
		for _, part := range c.says {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s prints no %q:\n%s", c.name, part, out.String())
			}
		}
	}
}
