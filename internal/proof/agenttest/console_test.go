package agenttest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/wherry-node/wherry/agent"
	consoleview "github.com/wherry-node/wherry/internal/core/view"
	"github.com/wherry-node/wherry/internal/core/why"
	"github.com/wherry-node/wherry/internal/sim/simcri"
)

// withConsole makes a node that has an API server serve its console.
func withConsole(c *agent.Config) { c.Console = true }

// lookFor looks at the console of the running agent for the time d, with the details of a pod ("NAMESPACE/NAME"; "": of none). It returns
// the documents that the viewer has at the end, and the number of messages that the viewer got.
func (w *World) lookFor(d time.Duration, detail string) (docs map[string]json.RawMessage, messages int) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: w.dialControl}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/console/stream?detail="+url.QueryEscape(detail), nil)
	if err != nil {
		w.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		w.Fatalf("the stream: %s", resp.Status)
	}
	docs = map[string]json.RawMessage{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var m struct {
			Set  map[string]json.RawMessage
			Gone []string
		}
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			w.Fatalf("%v: %s", err, data)
		}
		messages++
		for key, doc := range m.Set {
			docs[key] = doc
		}
		for _, key := range m.Gone {
			delete(docs, key)
		}
	}
	return docs, messages
}

// Nobody looks at the console: then the agent computes nothing for it. Workers take no turn to explain their pods, and nothing is measured,
// neither before the first viewer nor between the last viewer and the next one. Both counts must grow while somebody looks.
func TestConsoleComputesNothingWhileNobodyLooks(t *testing.T) {
	t.Parallel()
	const pods, span = 20, 30 * time.Minute
	r := &reading{reg: prometheus.NewRegistry()}
	Run(t, Config{Agent: withConsole, Deps: func(d *agent.Deps) { d.Metrics = r.reg }}, func(w *World) {
		r.World = w
		names := make([]string, pods)
		for i := range names {
			names[i] = fmt.Sprintf("p%02d", i)
			w.Create(Pod(names[i]))
		}
		w.WaitReady(names...)
		time.Sleep(10 * time.Minute)
		// A watch ends after a random time and begins anew, so the number of watches differs from one span to the next. They do not count.
		requests := func() int {
			n := w.Kube.Total()
			for what, watches := range w.Kube.Counts() {
				if strings.HasPrefix(what, "watch ") {
					n -= watches
				}
			}
			return n
		}
		type work struct{ turns, measured, requests int }
		count := func(f func()) work {
			now := func() work {
				return work{
					turns:    int(r.value("kubelet_pod_worker_duration_seconds", "operation_type", "sync")),
					measured: w.Runtime.Calls("ListPodSandboxStats") + w.Runtime.Calls("ListContainerStats"),
					requests: requests(),
				}
			}
			before := now()
			f()
			after := now()
			return work{after.turns - before.turns, after.measured - before.measured, after.requests - before.requests}
		}
		before := count(func() { time.Sleep(span) })
		for i := range 2 {
			seen := count(func() {
				docs, messages := w.lookFor(time.Minute, Namespace+"/p00")
				rows := 0
				for key := range docs {
					if strings.HasPrefix(key, "row/") {
						rows++
					}
				}
				if rows != pods || messages < 5 {
					t.Errorf("viewer %d got %d rows in %d messages", i, rows, messages)
				}
			})
			if seen.turns < pods || seen.measured < 5 {
				t.Errorf("while viewer %d looked, the agent did %+v, so this test does not see what it computes", i, seen)
			}
			time.Sleep(time.Minute)
			after := count(func() { time.Sleep(span) })
			t.Logf("in %v before the first viewer: %+v; in a minute of viewer %d: %+v; in %v after this viewer: %+v", span, before, i, seen, span, after)
			if after.turns > before.turns || after.measured > before.measured || after.requests > before.requests+2 {
				t.Errorf("in %v after viewer %d the agent did %+v, and before the first viewer %+v", span, i, after, before)
			}
		}
	})
}

// The record of a pod that crashes again and again has lost its first lines. Both the answer of wherry explain and the console say how many,
// and have the oldest line that is left, from which on the record is complete.
func TestARecordSaysWhatItHasLost(t *testing.T) {
	t.Parallel()
	Run(t, Config{Agent: withConsole}, func(w *World) {
		w.Create(Pod("crash", Annotate(simcri.AnnotationExitCode, "3")))
		time.Sleep(3 * time.Hour)
		resp, err := w.askControl("/explain/" + Namespace + "/crash")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var e struct {
			Dropped int
			Records []struct{ At time.Time }
			Answer  why.Answer
		}
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
			t.Fatal(err)
		}
		docs, _ := w.lookFor(10*time.Second, Namespace+"/crash")
		var d consoleview.Detail
		if err := json.Unmarshal(docs["detail/"+Namespace+"/crash/pod"], &d); err != nil {
			t.Fatal(err)
		}
		if e.Dropped < 48 || len(e.Records) == 0 || d.Lost < e.Dropped || len(d.Records) != len(e.Records) {
			t.Fatalf("explain: %d records of which %d were dropped; console: %d of which %d were dropped", len(e.Records), e.Dropped, len(d.Records), d.Lost)
		}
		if age := time.Since(e.Records[0].At); age < time.Minute || age > 2*time.Hour || d.Records[0].At.Before(e.Records[0].At) {
			t.Errorf("the oldest record of explain is %v old, that of the console is from %v", age, d.Records[0].At)
		}
	})
}

// A viewer who wants a pod that the node does not have gets the pods with similar names, and the pod itself when it comes.
func TestConsoleOfAPodThatIsNotHere(t *testing.T) {
	t.Parallel()
	Run(t, Config{Agent: withConsole}, func(w *World) {
		for _, name := range []string{"database", "web", "cache", "queue"} {
			w.Create(Pod(name))
		}
		w.WaitReady("database", "web", "cache", "queue")
		const key = "detail/" + Namespace + "/wbe/"
		docs, _ := w.lookFor(3*time.Second, Namespace+"/wbe")
		var m consoleview.Missing
		if err := json.Unmarshal(docs[key+"missing"], &m); err != nil || len(m.Near) != 3 || m.Near[0] != Namespace+"/web" || docs[key+"pod"] != nil {
			t.Errorf("%v: %+v", err, m)
		}
		go func() {
			time.Sleep(5 * time.Second)
			w.Create(Pod("wbe"))
		}()
		docs, _ = w.lookFor(20*time.Second, Namespace+"/wbe")
		if docs[key+"missing"] != nil || docs[key+"pod"] == nil {
			t.Errorf("the pod has come, and the viewer has %s and %s", docs[key+"missing"], docs[key+"pod"])
		}
		docs, _ = w.lookFor(3*time.Second, "no slash")
		if err := json.Unmarshal(docs["detail/no slash/missing"], &m); err != nil || len(m.Near) != 3 {
			t.Errorf("a name that is none: %v: %+v", err, m)
		}
	})
}
