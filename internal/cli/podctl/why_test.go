package podctl

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/core/why"
)

// The command asks the pod's node through the API server. If that fails, it says what is missing.
func TestWhyInACluster(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces/ns/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		p := v1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: r.PathValue("name")}}
		switch p.Name {
		case "wbe", "secret":
			code, reason := http.StatusNotFound, metav1.StatusReasonNotFound
			if p.Name == "secret" {
				code, reason = http.StatusForbidden, metav1.StatusReasonForbidden
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: reason, Code: int32(code), Message: "no"})
			return
		}
		if p.Name == "unscheduled" {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "0/3 nodes are available"}}
		} else {
			p.Spec.NodeName = p.Name + "-node"
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p)
	})
	mux.HandleFunc("GET /api/v1/namespaces/ns/pods", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []v1.Pod{
			{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "database"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}},
		}})
	})
	answers := map[string]struct {
		code int
		body string
	}{
		"forbidden": {403, `{"kind":"Status","message":"nodes \"x\" is forbidden"}`},
		"other":     {404, "404 page not found\n"},
		"away":      {503, "connection refused"},
		"gone":      {404, "pod ns/gone is not on this node"},
		"broken":    {200, "{"},
	}
	mux.HandleFunc("GET /api/v1/nodes/{node}/proxy/explain/ns/{name}", func(w http.ResponseWriter, r *http.Request) {
		if a, ok := answers[r.PathValue("name")]; ok {
			w.WriteHeader(a.code)
			_, _ = w.Write([]byte(a.body))
			return
		}
		_ = json.NewEncoder(w).Encode(explanation{Namespace: "ns", Name: "web", Answer: why.Answer{
			Cause: why.CrashLoop, Level: why.Trouble, Line: "container \"app\" ended", NextAt: time.Now().Add(time.Hour), Next: "it starts again",
		}})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	for _, c := range []struct{ pod, says, err string }{
		{"web", "CrashLoop", ""},
		{"unscheduled", "0/3 nodes are available", ""},
		{"forbidden", "", "kubectl create clusterrole"},
		{"other", "", "does not run Wherry"},
		{"away", "", "cannot be reached"},
		{"gone", "", "not on this node"},
		{"wbe", "", "there is no pod ns/wbe; the namespace has ns/web, ns/database"},
		{"secret", "", "kubectl create rolebinding read-pods -n ns --clusterrole=view"},
		{"broken", "", "read the answer of node broken-node"},
	} {
		var out bytes.Buffer
		err := (&Why{Config: &rest.Config{Host: server.URL}, Namespace: "ns"}).Run(t.Context(), Streams{Out: &out}, c.pod)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: %v, want %q\n%s", c.pod, err, c.err, out.String())
		}
	}
}

// An answer has at most 12 lines, and no control characters of a container reach the terminal.
func TestWriteAnswer(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	a := why.Answer{Cause: why.CrashLoop, Line: "it ended \x1b[31m", Since: now.Add(-time.Minute), NextAt: now.Add(15 * time.Second), Next: "it starts"}
	for range 20 {
		a.Facts, a.Do = append(a.Facts, "last words: a\x1b]0;b"), append(a.Do, "look")
	}
	var b bytes.Buffer
	if err := writeAnswer(&b, explanation{Namespace: "ns", Name: "web", Answer: a}, now); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(b.String(), "\n"); n > 12 || strings.Contains(b.String(), "\x1b") || !strings.Contains(b.String(), "in 15s: it starts") || !strings.Contains(b.String(), "60s ago") {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
}

// writeNode prints first what is wrong with the node, then its conditions, the requests of its pods, and how many pods are well.
func TestWriteNode(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	since := metav1.NewTime(now.Add(-time.Hour))
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: v1.NodeSpec{Unschedulable: true, Taints: []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoSchedule}, {Key: "b", Effect: v1.TaintEffectNoExecute}}}, Status: v1.NodeStatus{
		Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourcePods: resource.MustParse("110")},
		Conditions: []v1.NodeCondition{
			{Type: v1.NodeMemoryPressure, Status: v1.ConditionTrue, Reason: "KubeletHasInsufficientMemory", LastTransitionTime: since, Message: "short"},
			{Type: v1.NodeReady, Status: v1.ConditionTrue, LastTransitionTime: since},
		},
	}}
	request := v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("500m")}}
	pods := []v1.Pod{
		{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: request}, {Resources: request}}}},
		{Spec: v1.PodSpec{Containers: []v1.Container{{Resources: request}}}, Status: v1.PodStatus{Phase: v1.PodSucceeded}},
	}
	answers := []explanation{{Answer: why.Answer{Level: why.Trouble}}, {}}
	var b bytes.Buffer
	changes := []why.Change{{
		Condition: v1.NodeMemoryPressure, Status: v1.ConditionTrue, Line: "it ends if this stays so", At: now.Add(3 * time.Minute), Do: []string{"wait"},
	}}
	if err := writeNode(&b, &explainedNode{*n, changes}, pods, answers, now); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"node n1: MemoryPressure is True (KubeletHasInsufficientMemory)", "a:NoSchedule             the scheduler places no pods here", "b:NoExecute              pods that do not tolerate it are refused, and ended", "since 60m", "cpu 1 of 4, pods 1 of 110", "kubectl uncordon n1",
		"pods: 1 well, 0 on their way, 1 in trouble", "  next          in 3m      it ends if this stays so", "  do                       wait",
	} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("no %q in\n%s", part, b.String())
		}
	}
}

// failJob runs pod "job" on a node. Its container writes four lines and ends with exit code 3.
func failJob(t *testing.T, at Target) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "pod.yaml")
	const manifest = `
apiVersion: v1
kind: Pod
metadata: {name: job}
spec:
  restartPolicy: Never
  containers: [{name: main, image: registry.example/job:1, command: [sh, -c, "echo one; echo two; echo three; echo cannot read /etc/app.conf; exit 3"]}]
`
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	run := Run{Files: []string{file}, Detach: true, Wait: true, Timeout: time.Minute, Grace: -1, Quiet: true}
	run.Agent.Socket = at.Socket
	_ = run.Run(t.Context(), Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}) // the pod fails
}

// The answer for a container that has failed without a termination message has the last lines of its log. The answer for a pod that the
// node does not have names similar pods.
func TestExplainShowsTheLastOutput(t *testing.T) {
	t.Parallel()
	at := Target{Socket: startNode(t)}
	failJob(t, at)
	var out bytes.Buffer
	if err := (&Explain{Target: at}).Run(t.Context(), Streams{Out: &out}, "job"); err != nil ||
		!strings.Contains(out.String(), "last output  cannot read /etc/app.conf\n") || strings.Contains(out.String(), "one") || strings.Count(out.String(), "\n") > 12 {
		t.Errorf("%v\n%s", err, out.String())
	}
	err := (&Explain{Target: at}).Run(t.Context(), Streams{Out: &out}, "jbo")
	if err == nil || !strings.Contains(err.Error(), "pod default/jbo is not on this node; the pods of this node with the most similar names: default/job") {
		t.Errorf("an unknown pod: %v", err)
	}
}
