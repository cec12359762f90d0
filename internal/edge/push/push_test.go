package push

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/manifest"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// wantedPods is a fake Target. It records each call as a text that contains the name of the pod.
type wantedPods struct{ calls []string }

func (w *wantedPods) take() []string {
	defer func() { w.calls = nil }()
	return w.calls
}

func (w *wantedPods) Replace(_ pod.Source, pods []*v1.Pod) {
	for _, p := range pods {
		w.calls = append(w.calls, "has "+p.Name+state(p))
	}
	w.calls = append(w.calls, "that is all")
}
func (w *wantedPods) Upsert(_ pod.Source, p *v1.Pod) {
	w.calls = append(w.calls, "wants "+p.Name+state(p))
}
func (w *wantedPods) Delete(_ pod.Source, p *v1.Pod) { w.calls = append(w.calls, "drops "+p.Name) }

func state(p *v1.Pod) string {
	s := ""
	if p.DeletionTimestamp != nil && !leaving(p) {
		s = " stopped"
	}
	if leaving(p) {
		s = " leaving"
	}
	if g := p.DeletionGracePeriodSeconds; g != nil {
		s += fmt.Sprintf(" in %d s", *g)
	}
	return s
}

type wantedObjects struct{ names []string }

func (w *wantedObjects) Replace(_ pod.Source, configMaps []*v1.ConfigMap, secrets []*v1.Secret) {
	w.names = nil
	for _, c := range configMaps {
		w.names = append(w.names, c.Name+"="+c.Data["k"])
	}
	for _, s := range secrets {
		w.names = append(w.names, s.Name+"="+string(s.Data["k"]))
	}
	slices.Sort(w.names)
}

// bench is a Source that stores its pods in dir, with fakes that record its calls.
type bench struct {
	*testing.T
	*Source
	dir      string
	pods     *wantedPods
	objects  *wantedObjects
	finished map[types.UID]bool
	handler  http.Handler
}

func newBench(t *testing.T, dir string) *bench {
	b := &bench{T: t, dir: dir, pods: &wantedPods{}, objects: &wantedObjects{}, finished: map[types.UID]bool{}}
	b.Source = New(Config{
		Dir: dir, NodeName: "n", Target: b.pods, Objects: b.objects, Log: slog.New(slog.DiscardHandler),
		Others: func(ns, name string) pod.Source {
			if ns == "default" && name == "of-a-file" {
				return pod.SourceFile
			}
			return pod.SourceNone
		},
	})
	mux := http.NewServeMux()
	for pattern, h := range b.Routes(func(uid types.UID) bool { return b.finished[uid] }) {
		mux.Handle(pattern, h)
	}
	b.handler = mux
	records, err := b.store.load(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.begin(records)
	return b
}

func (b *bench) send(method, path, body string) (int, Answer) {
	b.Helper()
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	var a Answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil && w.Code < 300 {
		b.Errorf("%s %s: answer %q: %v", method, path, w.Body, err)
	}
	return w.Code, a
}

func (b *bench) push(body string) string {
	b.Helper()
	code, a := b.send("POST", "/pods", body)
	if code != 200 {
		b.Fatalf("push: %d %+v", code, a)
	}
	var out []string
	for _, i := range a.Items {
		out = append(out, i.Name+" "+i.Result)
	}
	return strings.Join(out, ", ")
}

func (b *bench) uid(name string) types.UID {
	b.Helper()
	r := b.records[recordKey(kindPod, "default", name)]
	if r == nil {
		b.Fatalf("no record of %s", name)
	}
	return r.Pod.UID
}

func (b *bench) is(what string, got, want any) {
	b.Helper()
	if d := cmp.Diff(want, got); d != "" {
		b.Errorf("%s (-want +got):\n%s", what, d)
	}
}

const pushedPod = `apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 7
  containers: [{name: main, image: IMAGE}]
`

func podOf(image string) string { return strings.ReplaceAll(pushedPod, "IMAGE", image) }

// An edited manifest makes a new pod: the source removes the old pod before it adds the new one. The same manifest
// changes nothing.
func TestPushLife(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.is("before", b.pods.take(), []string{"that is all"})
	b.is("first", b.push(podOf("a:1")), "web created")
	first := b.uid("web")
	b.is("again", b.push("# the same, written differently\n"+podOf(`"a:1"`)), "web unchanged")
	b.is("asked for", b.pods.take(), []string{"wants web"})
	b.is("edited", b.push(podOf("a:2")), "web configured")
	if b.uid("web") == first {
		t.Error("an edited manifest is the same pod")
	}
	b.is("asked for", b.pods.take(), []string{"drops web", "wants web"})

	b.finished[b.uid("web")] = true
	b.is("the same, after its end", b.push(podOf("a:2")), "web restarted")
	b.is("asked for", b.pods.take(), []string{"drops web", "wants web"})

	if code, _ := b.send("DELETE", "/pods/default/web", ""); code != http.StatusAccepted {
		t.Errorf("delete: %d", code)
	}
	b.takeOut()
	b.is("asked for", b.pods.take(), []string{"wants web leaving in 7 s"})
	b.send("DELETE", "/pods/default/web?gracePeriodSeconds=3", "")
	b.send("DELETE", "/pods/default/web?gracePeriodSeconds=5", "")
	b.is("a shorter grace counts, a longer does not", b.pods.take(), []string{"wants web leaving in 3 s", "wants web leaving in 3 s"})
	b.Ended(b.uid("web"))
	b.takeOut()
	b.is("asked for", b.pods.take(), []string{"drops web"})
	if code, _ := b.send("DELETE", "/pods/default/web", ""); code != http.StatusNotFound {
		t.Errorf("delete what is gone: %d", code)
	}
	b.is("files", filesIn(t, b.dir), []string(nil))
}

// A stopped pod stays until it is removed or pushed again. A stop does not undo a removal.
func TestPushStop(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.push(podOf("a:1"))
	b.send("POST", "/pods/default/web/stop?gracePeriodSeconds=1", "")
	b.Ended(b.uid("web"))
	b.takeOut()
	b.is("asked for", b.pods.take(), []string{"that is all", "wants web", "wants web stopped in 1 s"})
	b.is("pushed again", b.push(podOf("a:1")), "web restarted")
	b.is("asked for", b.pods.take(), []string{"drops web", "wants web"})
	b.send("POST", "/pods/default/web/stop", "")
	b.Ended(b.uid("web"))
	b.send("DELETE", "/pods/default/web", "")
	b.is("asked for", b.pods.take(), []string{"wants web stopped in 7 s", "drops web"})
	b.push(podOf("a:1"))
	b.send("DELETE", "/pods/default/web", "")
	b.send("POST", "/pods/default/web/stop", "")
	b.is("asked for", b.pods.take(), []string{"wants web", "wants web leaving in 7 s", "wants web leaving in 7 s"})
}

const configMapOf = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {k: VALUE}
---
`

// After a restart the agent has the same pods as before, and continues to end the pods that were ending.
func TestPushIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := newBench(t, dir)
	b.push(strings.ReplaceAll(configMapOf, "VALUE", "one") + podOf("a:1"))
	b.push(strings.ReplaceAll(podOf("a:1"), "web", "other"))
	b.push(strings.ReplaceAll(podOf("a:1"), "web", "third"))
	b.send("DELETE", "/pods/default/other", "")
	b.send("POST", "/pods/default/third/stop", "")
	uid := b.uid("web")
	if err := os.WriteFile(filepath.Join(dir, "pod_torn.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pod_torn.json.new"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	next := newBench(t, dir)
	b.is("pods", next.pods.take(), []string{"has other leaving in 7 s", "has third stopped in 7 s", "has web", "that is all"})
	b.is("objects", next.objects.names, []string{"settings=one"})
	b.is("identity", next.uid("web"), uid)
	b.is("the same again", next.push(strings.ReplaceAll(configMapOf, "VALUE", "one")+podOf("a:1")), "settings unchanged, web unchanged")
	if !slices.Contains(filesIn(t, dir), "pod_torn.json.bad") || slices.Contains(filesIn(t, dir), "pod_torn.json.new") {
		t.Errorf("files: %v", filesIn(t, dir))
	}
	for _, f := range filesIn(t, dir) {
		if i, err := os.Stat(filepath.Join(dir, f)); err != nil || i.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600: %v", f, i.Mode(), err)
		}
	}
}

// A ConfigMap or Secret is removed with the last of the pods that were pushed together with it. One that was pushed without pods
// stays.
func TestPushedObjects(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	remove := func(name string) {
		t.Helper()
		b.send("DELETE", "/pods/default/"+name, "")
		b.Ended(b.uid(name))
		b.takeOut()
	}
	other := strings.ReplaceAll(podOf("a:1"), "web", "other")
	alone := strings.ReplaceAll(strings.ReplaceAll(configMapOf, "VALUE", "x"), "settings", "alone")
	b.is("first", b.push(strings.ReplaceAll(configMapOf, "VALUE", "one")+podOf("a:1")), "settings created, web created")
	b.is("second", b.push(strings.ReplaceAll(configMapOf, "VALUE", "two")+other), "settings configured, other created")
	b.is("alone", b.push(alone+"{apiVersion: v1, kind: Secret, metadata: {name: key}, stringData: {k: s}}"), "alone created, key created")
	b.is("objects", b.objects.names, []string{"alone=x", "key=s", "settings=two"})
	remove("web")
	b.is("one user is left", b.objects.names, []string{"alone=x", "key=s", "settings=two"})
	remove("other")
	b.is("none is left", b.objects.names, []string{"alone=x", "key=s"})
	if code, _ := b.send("DELETE", "/configmaps/default/alone", ""); code != 200 {
		t.Errorf("delete configmap: %d", code)
	}
	if code, _ := b.send("DELETE", "/secrets/default/nokey", ""); code != 404 {
		t.Errorf("delete a secret that is not there: %d", code)
	}
	b.is("objects", b.objects.names, []string{"key=s"})
	_, a := b.send("GET", "/pushed", "")
	b.is("pushed", a.Items, []Pushed{{Kind: "Secret", Namespace: "default", Name: "key"}})
}

// Bad input gets an error that names line and field, and changes nothing.
func TestPushRefuses(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.pods.take()
	two := podOf("a:1") + "---\n" + podOf("a:1")
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		want                     Error
	}{
		{"empty", "POST", "/pods", "# nothing\n", 400, Error{Message: "it is empty"}},
		{"no YAML", "POST", "/pods", "a: [", 400, Error{Document: 1, Message: "not YAML or JSON"}},
		{"unknown field", "POST", "/pods?name=web.yaml", podOf("a:1") + "---\n" + strings.ReplaceAll(podOf("a:1"), "image:", "imagee:"), 400,
			Error{Document: 2, Line: 13, Object: "Pod default/web", Field: "spec.containers[0].imagee", Message: "web.yaml:13: document 2, Pod default/web"}},
		{"a kind that nodes do not run", "POST", "/pods", "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}", 400, Error{Document: 1, Line: 1, Field: "kind", Message: "Deployment"}},
		{"twice the same", "POST", "/pods", two, 400, Error{Message: "Pod default/web is in the manifest twice"}},
		{"too big", "POST", "/pods", strings.Repeat("#", manifest.MaxBytes+1), 413, Error{Message: "split it"}},
		{"another name", "PUT", "/pods/default/other", podOf("a:1"), 400, Error{Message: "it must have one Pod, default/other"}},
		{"of another source", "POST", "/pods", strings.ReplaceAll(podOf("a:1"), "web", "of-a-file"), 409, Error{Message: "from another source (file)"}},
		{"end one of another source", "DELETE", "/pods/default/of-a-file", "", 409, Error{Message: "comes from source file"}},
		{"end one that is not here", "POST", "/pods/default/nobody/stop", "", 404, Error{Message: "pod default/nobody is not on this node"}},
		{"negative grace", "DELETE", "/pods/default/web?gracePeriodSeconds=-1", "", 400, Error{Message: "gracePeriodSeconds"}},
	} {
		code, a := b.send(c.method, c.path, c.body)
		if code != c.status || len(a.Errors) == 0 || len(a.Items) > 0 {
			t.Errorf("%s: %d %+v, want %d", c.name, code, a, c.status)
			continue
		}
		got := a.Errors[len(a.Errors)-1]
		if !strings.Contains(got.Message, c.want.Message) {
			t.Errorf("%s: message %q, want one with %q", c.name, got.Message, c.want.Message)
		}
		got.Message = c.want.Message
		if c.want.Line == 0 && c.want.Field == "" {
			got.Line = 0
		}
		b.is(c.name, got, c.want)
	}
	b.is("asked for", b.pods.take(), []string(nil))
	if code, a := b.send("PUT", "/pods/default/web", podOf("a:1")); code != 200 {
		t.Errorf("put: %d %+v", code, a)
	}
}

// A pushed pod that refers to objects that no manifest has is refused on a node that could read them from the API
// server.
func TestPushRefusesWhatRefersToTheAPI(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.cfg.Missing = func(p *v1.Pod) []string {
		if len(b.objects.names) == 0 {
			return []string{"configmap default/settings"}
		}
		return nil
	}
	code, a := b.send("POST", "/pods", podOf("a:1"))
	if code != 422 || len(a.Errors) != 1 || !strings.Contains(a.Errors[0].Message, "pod default/web: it refers to configmap default/settings") {
		t.Errorf("without the ConfigMap: %d %+v", code, a)
	}
	b.is("with it", b.push(strings.ReplaceAll(configMapOf, "VALUE", "one")+podOf("a:1")), "settings created, web created")
}

// If one pod of a push is refused, none of its pods is taken, and the ConfigMaps and Secrets that only these pods would have used are removed
// again. An object that was here before stays, and so does a pod.
func TestARefusedPushLeavesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	before := strings.ReplaceAll(configMapOf, "VALUE", "one") + podOf("a:1")
	b.push(before)
	b.push("{apiVersion: v1, kind: Secret, metadata: {name: alone}, stringData: {k: s}}")
	b.pods.take()
	files := filesIn(t, b.dir)
	b.cfg.Missing = func(p *v1.Pod) []string {
		if strings.HasPrefix(p.Name, "last") {
			return []string{"secret default/key"}
		}
		return nil
	}
	another := strings.ReplaceAll(configMapOf, "settings", "another") + "{apiVersion: v1, kind: Secret, metadata: {name: alone}, stringData: {k: s}}\n---\n"
	code, a := b.send("POST", "/pods", before+"---\n"+another+strings.ReplaceAll(podOf("a:1"), "web", "first")+"---\n"+strings.ReplaceAll(podOf("a:1"), "web", "last"))
	if code != 422 || len(a.Errors) != 1 || !strings.Contains(a.Errors[0].Message, "pod default/last: it refers to secret default/key") {
		t.Errorf("%d %+v", code, a)
	}
	b.is("asked for", b.pods.take(), []string(nil))
	b.is("objects", b.objects.names, []string{"alone=s", "settings=one"})
	b.is("files", filesIn(t, b.dir), files)
	b.is("items of the answer", len(a.Items), 0)
	b.cfg.Missing = nil
	b.send("DELETE", "/pods/default/web", "")
	b.Ended(b.uid("web"))
	b.takeOut()
	b.is("after the one pod that was here", b.objects.names, []string{"alone=s"})
}

// A push, a removal or a stop that cannot be written to disk is refused. The pods that were pushed before stay unchanged.
func TestPushThatCannotBeKept(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pushed")
	b := newBench(t, dir)
	b.push(podOf("a:1"))
	b.pods.take()
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][3]string{
		{"POST", "/pods", podOf("a:2")}, {"POST", "/pods", strings.ReplaceAll(configMapOf, "VALUE", "one")},
		{"DELETE", "/pods/default/web", ""}, {"POST", "/pods/default/web/stop", ""},
	} {
		if code, a := b.send(c[0], c[1], c[2]); code != 500 || len(a.Errors) != 1 || !strings.Contains(a.Errors[0].Message, "keep ") {
			t.Errorf("%s %s: %d %+v, want 500", c[0], c[1], code, a)
		}
	}
	b.is("asked for", b.pods.take(), []string(nil))
	b.is("objects", b.objects.names, []string(nil))
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	b.is("the old one is here", b.push(podOf("a:1")), "web unchanged")
}

// With an API server, the names of pods end with the node's name; requests may leave out this suffix.
func TestPushSuffix(t *testing.T) {
	t.Parallel()
	b := newBench(t, "")
	b.Source.cfg.Suffix = true
	b.is("name", b.push(podOf("a:1")), "web-n created")
	if code, _ := b.send("DELETE", "/pods/default/web", ""); code != http.StatusAccepted {
		t.Errorf("delete without the node's name: %d", code)
	}
}

// FuzzPush sends any request: no request causes a panic, each answer is JSON, and a refused request changes nothing.
func FuzzPush(f *testing.F) {
	f.Add(0, "", podOf("a:1"))
	f.Add(0, "", strings.ReplaceAll(configMapOf, "VALUE", "v")+podOf("a:1"))
	f.Add(1, "default/web", podOf("a:1"))
	f.Add(2, "default/web?gracePeriodSeconds=1", "")
	f.Add(3, "default/web", "")
	f.Add(0, "", `{"apiVersion":"v1","kind":"List","items":[{"kind":"Pod"}]}`)
	f.Fuzz(func(t *testing.T, what int, name, body string) {
		methods := []string{"POST", "PUT", "DELETE", "POST"}
		what = (what%len(methods) + len(methods)) % len(methods)
		paths := []string{"/pods", "/pods/" + name, "/pods/" + name, "/pods/" + name + "/stop"}
		req, err := http.NewRequest(methods[what], "http://x"+paths[what], strings.NewReader(body))
		if err != nil {
			t.Skip()
		}
		b := newBench(&testing.T{}, "")
		b.push(podOf("a:1"))
		b.pods.take()
		w := httptest.NewRecorder()
		b.handler.ServeHTTP(w, req)
		if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: answer %q", req.Method, req.URL, w.Body)
		}
		if asked := b.pods.take(); w.Code >= 400 && len(asked) > 0 {
			t.Errorf("%s %s: %d, and %v", req.Method, req.URL, w.Code, asked)
		}
		for _, r := range b.records {
			if r.Pod != nil && !pod.RefOf(r.Pod).Plausible() {
				t.Errorf("pod %+v was taken in", pod.RefOf(r.Pod))
			}
		}
	})
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// If Ended is called for a pod that the source does not have (a pod of another source, or one that the source has removed), the source
// does not remember the pod's end.
func TestEndsOfOtherPodsAreForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t, t.TempDir())
	b.push(podOf("i"))
	web := b.uid("web")
	b.Ended(web)
	for i := range 1000 {
		b.Ended(types.UID(fmt.Sprint("other-", i)))
		b.takeOut()
	}
	if len(b.ended) != 1 || !b.hasEnded(web) {
		t.Errorf("%d ends are kept, want that of the one pod", len(b.ended))
	}
}
