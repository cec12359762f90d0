package agenttest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// lone is an agent that has a control socket and no API server.
type lone struct {
	*testing.T
	runtime *simcri.Runtime
	http    *http.Client
}

// runAlone runs f in a synctest bubble with an agent that has no API server.
func runAlone(t *testing.T, f func(l *lone)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := simcri.New(simcri.Config{})
		defer r.Close()
		runtimes, images := r.Clients()
		runAloneOn(t, r, runtimes, images, f)
	})
}

// runAloneOn runs f with an agent that has no API server and reaches the runtime r through two clients. It is called in a synctest bubble.
func runAloneOn(t *testing.T, r *simcri.Runtime, runtimes runtimeapi.RuntimeServiceClient, images runtimeapi.ImageServiceClient, f func(l *lone)) {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	kubelet := agent.DefaultConfiguration()
	kubelet.EnableServer = new(false)
	log := &tail{}
	a, err := agent.New(agent.Config{NodeName: NodeName, Kubelet: kubelet}, agent.Deps{
		Runtime: runtimes, Images: images, Dialer: r, Machine: agent.SimulatedMachine(agent.Shape{}), Control: listener,
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) }}
	f(&lone{T: t, runtime: r, http: &http.Client{Transport: transport}})
	transport.CloseIdleConnections()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	if t.Failed() {
		t.Logf("the end of the agent's log:\n%s", log)
	}
}

// ask sends a request to the control socket and returns the status code. It decodes a successful answer into the value into, unless that is
// nil.
func (l *lone) ask(method, path, body string, into any) int {
	l.Helper()
	code, text := l.send(method, path, body)
	if into != nil && code < 300 {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			l.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	return code
}

// send sends a request to the control socket and waits until the agent is idle again. It returns the status code and the body.
func (l *lone) send(method, path, body string) (int, string) {
	l.Helper()
	req, err := http.NewRequestWithContext(l.Context(), method, "http://agent"+path, strings.NewReader(body))
	if err != nil {
		l.Fatal(err)
	}
	resp, err := l.http.Do(req)
	if err != nil {
		l.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		l.Fatal(err)
	}
	if resp.StatusCode >= 500 {
		l.Errorf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	time.Sleep(3 * time.Second)
	return resp.StatusCode, string(text)
}

func (l *lone) pod(name string) *v1.Pod {
	l.Helper()
	var p v1.Pod
	if code := l.ask("GET", "/pods/default/"+name, "", &p); code != 200 {
		l.Fatalf("get pod %s: %d", name, code)
	}
	return &p
}

const lonePod = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: Pod
metadata: {name: web, annotations: {wherry.dev/sim-stop-after: 5s}}
spec:
  containers:
  - name: main
    image: registry.example/app:1
    envFrom: [{configMapRef: {name: settings}}]
`

// A pod is pushed to the agent, runs, is edited, stopped, run again and removed. Two pods of one name never run at the same time.
func TestStandalonePod(t *testing.T) {
	t.Parallel()
	runAlone(t, func(l *lone) {
		time.Sleep(time.Second)
		if code := l.ask("POST", "/pods", lonePod, nil); code != 200 {
			t.Fatalf("push: %d", code)
		}
		first := l.pod("web")
		if first.Status.Phase != v1.PodRunning || !isReadyPod(first) {
			t.Errorf("after the push: %+v", first.Status)
		}
		l.ask("POST", "/pods", strings.ReplaceAll(lonePod, "app:1", "app:2"), nil)
		second := l.pod("web")
		if second.UID == first.UID || len(second.Status.ContainerStatuses) > 0 && second.Status.ContainerStatuses[0].State.Running != nil {
			t.Errorf("the edited pod runs while the old one ends: %+v", second.Status)
		}
		time.Sleep(10 * time.Second)
		if second = l.pod("web"); second.Status.Phase != v1.PodRunning || second.Status.ContainerStatuses[0].Image != "registry.example/app:2" {
			t.Errorf("after the old one has ended: %+v", second.Status)
		}

		l.ask("POST", "/pods/default/web/stop", "", nil)
		time.Sleep(10 * time.Second)
		if p := l.pod("web"); p.Status.ContainerStatuses[0].State.Terminated == nil || p.UID != second.UID {
			t.Errorf("after stop: %+v", p.Status)
		}
		l.ask("POST", "/pods", strings.ReplaceAll(lonePod, "app:1", "app:2"), nil)
		if p := l.pod("web"); p.Status.Phase != v1.PodRunning || p.UID == second.UID {
			t.Errorf("pushed again after stop: %+v", p.Status)
		}

		l.ask("DELETE", "/pods/default/web?gracePeriodSeconds=2", "", nil)
		time.Sleep(5 * time.Second)
		if code := l.ask("GET", "/pods/default/web", "", nil); code != 404 {
			t.Errorf("after delete: %d, want 404", code)
		}
		var events v1.EventList
		l.ask("GET", "/events", "", &events)
		reasons := map[string]int32{}
		for _, e := range events.Items {
			reasons[e.Reason] += e.Count
		}
		if reasons["Started"] != 3 || reasons["Killing"] < 2 {
			t.Errorf("events: %v", reasons)
		}
	})
}

// If a pod needs a token or a ConfigMap that this node does not have, the pod is refused or gets an event that names what is missing.
func TestStandaloneSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: needy}
spec:
  containers: [{name: main, image: "registry.example/app:1", volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, VOLUME}]
`
	for name, c := range map[string]struct {
		volume string
		status int
		want   string
	}{
		"token":  {"projected: {sources: [{serviceAccountToken: {path: token}}]}", 400, "tokens come from the API server"},
		"absent": {"configMap: {name: absent}", 200, `configmap \"absent\" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runAlone(t, func(l *lone) {
				time.Sleep(time.Second)
				code, text := l.send("POST", "/pods", strings.ReplaceAll(pod, "VOLUME", c.volume))
				if code == 200 {
					_, text = l.send("GET", "/events", "")
				}
				if code != c.status || !strings.Contains(text, c.want) {
					l.Errorf("%d, %s; want %d and a text with %q", code, text, c.status, c.want)
				}
			})
		})
	}
}

func isReadyPod(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
