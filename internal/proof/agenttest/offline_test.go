package agenttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// record is the directory of the record from which an agent starts offline. Each agent gets its own copy of the directory of the agent
// before it, because the goroutines of a killed agent still write for a moment.
type record struct {
	t     *testing.T
	certs string
	dir   string
	// forgets is set if the runtime forgets all containers and sandboxes when the machine reboots.
	forgets bool
}

// offline changes the configuration of a World so that agents may start without the API server, from a record on disk.
func offline(t *testing.T, cfg Config) (Config, *record) {
	r := &record{t: t, certs: t.TempDir(), dir: t.TempDir()}
	cfg.Record = true
	before := cfg.Agent
	cfg.Agent = func(c *agent.Config) {
		if before != nil {
			before(c)
		}
		c.CertDir, c.OfflineStart = r.certs, agent.OfflineStart{Enabled: true, Dir: r.dir}
	}
	return cfg, r
}

// reboot ends the machine as a power cut does and starts it again.
func (r *record) reboot(w *World) {
	w.Helper()
	next := r.t.TempDir()
	if err := os.CopyFS(next, os.DirFS(r.dir)); err != nil {
		r.t.Fatal(err)
	}
	r.dir = next
	w.CrashAgent(false)
	w.KillSandboxes()
	if r.forgets {
		for _, id := range w.Witness.Sandboxes() {
			if _, err := w.Runtime.RemovePodSandbox(context.Background(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	w.StartAgent()
}

// cutOff cuts the agents off from the API server until restore is called. Administrators still reach it.
func (w *World) cutOff() (restore func()) {
	restore = w.Kube.Inject(simkube.Fault{Agent: agentName, Effect: simkube.Break})
	w.Kube.CutWatches()
	return restore
}

// executes returns how many of the named pods have a running container.
func (w *World) executes(names ...string) (n int) {
	for _, name := range names {
		if w.running(name) != "" {
			n++
		}
	}
	return n
}

// asks sends a GET request for path to the agent's control socket, and decodes the answer into the value into.
func (w *World) asks(path string, into any) {
	w.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return w.control.DialContext(ctx)
	}}}
	resp, err := client.Get("http://agent" + path)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		w.Fatalf("%s: %s: %v", path, resp.Status, err)
	}
}

// since returns when the API server last answered, according to the agent; nil: the agent does not run from a record.
func (w *World) since() *time.Time {
	var out struct{ Since *time.Time }
	w.asks("/lastknown", &out)
	return out.Since
}

// withObjects makes a pod use a ConfigMap, a Secret, an optional ConfigMap that does not exist, and a token.
func withObjects(p *v1.Pod) {
	optional := true
	p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: "settings"}, Key: "a"}}}}
	p.Spec.Volumes = []v1.Volume{
		{Name: "key", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "key"}}},
		{Name: "maybe", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "absent"}, Optional: &optional}}},
		{Name: "token", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}}}}},
	}
	for _, v := range p.Spec.Volumes {
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: v.Name, MountPath: "/" + v.Name})
	}
}

// createObjects creates what withObjects refers to.
func (w *World) createObjects() {
	w.Helper()
	ctx := context.Background()
	if _, err := w.Admin.CoreV1().ConfigMaps(Namespace).Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"a": "1"}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	if _, err := w.Admin.CoreV1().Secrets(Namespace).Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}, Data: map[string][]byte{"k": []byte("hidden")}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// story creates pods, reboots the machine twice without an API server, changes pods in the API meanwhile, and then lets the agent reach the
// API server again. It returns a text for each mistake of the agent.
func story(w *World, r *record) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	w.createObjects()
	w.bindClaim(w.createClaim("data"))
	steady := []string{"plain", "probed", "objects", "db"}
	w.Create(Pod("plain"))
	w.Create(Pod("probed", func(p *v1.Pod) {
		p.Spec.Containers[0].ReadinessProbe, p.Spec.Containers[0].LivenessProbe = httpProbe(5, 2), httpProbe(10, 3)
	}))
	w.Create(Pod("objects", withObjects))
	w.Create(Pod("db", withClaim("data")))
	done := w.Create(Pod("done", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }))
	w.Create(Pod("changes", cpu("100m")))
	for _, name := range []string{"removed", "leaves"} {
		w.Create(Pod(name))
	}
	w.WaitReady(append(steady, "removed", "leaves", "changes", "done")...)
	w.Kill("done", "main", 0, "")
	w.WaitPhase("done", v1.PodSucceeded)
	time.Sleep(time.Minute)
	last := time.Now()

	restore := w.cutOff()
	time.Sleep(time.Minute)
	for range 2 { // the second reboot finds the same record
		r.reboot(w)
		began := time.Now()
		w.Await("all pods run again", time.Minute, func() bool { return w.executes(append(steady, "removed", "leaves", "changes")...) == 7 })
		if took := time.Since(began); took > 15*time.Second {
			complain("the pods ran after %v", took)
		}
	}
	if n := len(w.Witness.StartsOf(done, "main")); n != 1 {
		complain("the pod that had ended was started %d times", n)
	}
	if at := w.since(); at == nil || last.Sub(*at) > 6*time.Minute || at.After(last.Add(time.Second)) {
		complain("the agent says that the API server last answered at %v, it was %v", at, last)
	}
	w.Kill("plain", "main", 1, "")
	w.Await("a container that crashed offline runs again", time.Minute, func() bool { return w.executes("plain") == 1 })

	w.Delete("removed", 0)
	w.Delete("leaves", 30)
	w.resize("changes", "1")
	before := w.ids()
	time.Sleep(10 * time.Minute)
	for name, id := range before {
		if w.ids()[name] != id {
			complain("while the node was offline, %s went from %s to %s", name, id, w.ids()[name])
		}
	}
	restore()
	w.WaitGone("removed", "leaves")
	w.Await("the changed pod is resized", time.Minute, func() bool { return w.shares("changes") == 1024 })
	w.WaitReady(append(steady, "changes")...)
	w.WaitConverged(5 * time.Minute)
	for _, name := range append(steady, "changes") {
		if got, was := w.ids()[name+"/main"], before[name+"/main"]; got != was {
			complain("when the API server answered, %s went from %s to %s", name, was, got)
		}
	}
	if n := restarts(w.Kube.Pod(Namespace, "plain")); n < 3 {
		complain("the API shows %d restarts of a container that was started again 3 times while the node was offline", n)
	}
	if at := w.since(); at != nil {
		complain("the API server answers, and the agent says that the pods are as last known at %v", at)
	}
	return wrong
}

func restarts(p *v1.Pod) int32 {
	if p == nil || len(p.Status.ContainerStatuses) != 1 {
		return -1
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// A machine that boots without its API server runs the pods that the API server last listed. Nothing is stopped before the API server
// answers. After that, only the pods that were deleted or changed in the API end or change.
func TestOfflineStart(t *testing.T) {
	t.Parallel()
	for name, forgetful := range map[string]bool{"checkpoints": false, "nothing else kept": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, r := offline(t, Config{Forgetful: forgetful})
			Run(t, cfg, func(w *World) {
				for _, s := range story(w, r) {
					w.Error(s)
				}
			})
		})
	}
}

// A planted bug replaces the error of an unreachable API server by an empty list of pods, so that the agent ends every pod. The Witness
// must report that.
func TestOfflineStartFindsAPlantedBug(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	cfg, r := offline(t, Config{Plant: &Bug{API: func(w *World, req *http.Request, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		resp, err := do(req)
		if err == nil || !listsPods(req) || req.URL.Query().Get("watch") != "" || !down.Load() {
			return resp, err
		}
		body := `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
	}}})
	found := runPlanted(t, cfg, func(w *World) {
		w.Create(Pod("plain"))
		w.WaitReady("plain")
		time.Sleep(time.Minute)
		w.cutOff()
		down.Store(true)
		r.reboot(w)
		w.Await("the pod runs again", time.Minute, func() bool { return w.executes("plain") == 1 })
	})
	if len(found) == 0 {
		t.Error("the bug was not found")
	}
}

// The API server comes back soon after a reboot: the agent does not start a deleted pod from its record on disk. The API server answers but
// refuses the node: the agent starts no pod from the record until the API server accepts the node again.
func TestOfflineStartWaitsForTheAPIServersWord(t *testing.T) {
	t.Parallel()
	cfg, r := offline(t, Config{})
	Run(t, cfg, func(w *World) {
		uid := w.Create(Pod("removed"))
		w.WaitReady("removed")
		time.Sleep(time.Minute)
		restore := w.cutOff()
		r.reboot(w)
		time.Sleep(3 * time.Second)
		w.Delete("removed", 0)
		restore()
		time.Sleep(time.Minute)
		if n := len(w.Witness.StartsOf(uid, "main")); n != 1 {
			t.Errorf("a pod that was deleted was started %d times", n)
		}
		uid = w.Create(Pod("refused"))
		w.WaitReady("refused")
		time.Sleep(time.Minute)
		remove := w.Kube.Inject(simkube.Fault{Agent: agentName, Effect: simkube.Refuse, Err: apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", fmt.Errorf("the node is not authorized"))})
		r.reboot(w)
		time.Sleep(10 * time.Minute)
		if n := len(w.Witness.StartsOf(uid, "main")); n != 1 {
			t.Errorf("a node that the API server refuses has started a pod")
		}
		var out struct{ Problem string }
		if w.asks("/lastknown", &out); !strings.Contains(out.Problem, "refuses this node") {
			t.Errorf("the agent says %q", out.Problem)
		}
		remove()
		w.WaitReady("refused")
	})
}

// A network that swallows packets delays an offline start no more than one that refuses connections.
func TestOfflineStartWhenRequestsHang(t *testing.T) {
	t.Parallel()
	cfg, r := offline(t, Config{})
	Run(t, cfg, func(w *World) {
		w.createObjects()
		w.bindClaim(w.createClaim("data"))
		w.Create(Pod("objects", withObjects))
		w.Create(Pod("db", withClaim("data")))
		w.WaitReady("objects", "db")
		time.Sleep(time.Minute)
		remove := w.Kube.Inject(simkube.Fault{Agent: agentName, Effect: simkube.Hang})
		w.Kube.CutWatches()
		r.reboot(w)
		began := time.Now()
		w.Await("the pods run again", time.Minute, func() bool { return w.executes("objects", "db") == 2 })
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("the pods ran after %v", took)
		}
		ids := w.ids()
		remove()
		w.Await("the API server's word counts", 5*time.Minute, func() bool { return w.since() == nil })
		w.WaitReady("objects", "db")
		if got := w.ids(); got["objects/main"] != ids["objects/main"] || got["db/main"] != ids["db/main"] {
			t.Errorf("the containers changed from %v to %v", ids, got)
		}
	})
}

// On a node that is offline, a pod starts with an expired token, and the agent's explanation of the pod names the token. The token is
// renewed as soon as the API server answers.
func TestOfflineStartWithAnExpiredToken(t *testing.T) {
	t.Parallel()
	cfg, r := offline(t, Config{})
	Run(t, cfg, func(w *World) {
		w.createObjects()
		uid := w.Create(Pod("objects", withObjects))
		w.WaitReady("objects")
		time.Sleep(time.Minute)
		restore := w.cutOff()
		r.reboot(w)
		w.Await("the pod runs with its last token", time.Minute, func() bool { return w.executes("objects") == 1 })
		if text := expiredOf(w, uid); len(text) != 0 {
			t.Errorf("a valid token is said to be expired: %q", text)
		}
		time.Sleep(2 * time.Hour)
		r.reboot(w)
		w.Await("the pod runs with an expired token", time.Minute, func() bool { return w.executes("objects") == 1 })
		if text := expiredOf(w, uid); len(text) != 1 || !strings.Contains(text[0], "service account default expired at") {
			t.Errorf("explain says %q", text)
		}
		id := w.running("objects")
		asked := w.Kube.Count("create serviceaccounts/token")
		restore()
		w.Await("the token is renewed", time.Minute, func() bool { return w.Kube.Count("create serviceaccounts/token") > asked })
		time.Sleep(time.Minute)
		if text := expiredOf(w, uid); len(text) != 0 {
			t.Errorf("after the renewal explain says %q", text)
		}
		w.Await("an event about the expired token", time.Minute, func() bool { return w.events("ServiceAccountTokenExpired") > 0 })
		if w.running("objects") != id {
			t.Error("the container was restarted")
		}
	})
}

func expiredOf(w *World, uid types.UID) []string {
	var all []struct {
		UID     types.UID
		Expired []string
	}
	w.asks("/explain", &all)
	for _, e := range all {
		if e.UID == uid {
			return e.Expired
		}
	}
	return nil
}

// A node that is offline fails no pod: a pod that the last known Node would not admit waits until the API server answers.
func TestOfflineNodeRefusesNoPod(t *testing.T) {
	t.Parallel()
	cfg, r := offline(t, Config{Forgetful: true})
	r.forgets = true // so that the pod has to be admitted again
	Run(t, cfg, func(w *World) {
		label := func(value string) {
			patch := fmt.Sprintf(`{"metadata":{"labels":{"disk":%q}}}`, value)
			if _, err := w.Admin.CoreV1().Nodes().Patch(context.Background(), NodeName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		label("ssd")
		time.Sleep(time.Minute)
		w.Create(Pod("picky", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"disk": "ssd"} }))
		w.WaitReady("picky")
		time.Sleep(10 * time.Minute)
		restore := w.cutOff()
		r.reboot(w)
		w.Await("the last known Node admits the pod", time.Minute, func() bool { return w.executes("picky") == 1 })
		restore()
		label("none")
		time.Sleep(10 * time.Minute)
		restore = w.cutOff()
		r.reboot(w)
		time.Sleep(10 * time.Minute)
		if n := w.executes("picky"); n != 0 {
			t.Error("the pod runs on a node that it does not match")
		}
		var pods v1.PodList
		if w.asks("/pods", &pods); len(pods.Items) != 1 || pods.Items[0].Status.Phase == v1.PodFailed {
			t.Errorf("the agent shows %+v", pods.Items)
		}
		label("ssd")
		restore()
		w.WaitReady("picky")
	})
}

// All files of the record on disk are damaged, except the head, which has the time of the API server's last answer. A node that starts
// without the API server runs none of the pods. When the API server answers, all of them run again.
func TestOfflineStartWithDamagedFiles(t *testing.T) {
	t.Parallel()
	cfg, r := offline(t, Config{})
	Run(t, cfg, func(w *World) {
		for i := range 5 {
			w.Create(Pod(fmt.Sprint("p", i)))
		}
		w.WaitReady("p0", "p1", "p2", "p3", "p4")
		time.Sleep(time.Minute)
		files, err := filepath.Glob(filepath.Join(r.dir, "*.known"))
		if err != nil {
			t.Fatal(err)
		}
		restore := w.cutOff()
		for _, f := range files {
			if filepath.Base(f) == "head.known" {
				continue
			}
			if err := os.Truncate(f, 100); err != nil {
				t.Fatal(err)
			}
		}
		r.reboot(w)
		time.Sleep(time.Minute)
		if w.since() == nil || w.executes("p0", "p1", "p2", "p3", "p4") != 0 {
			t.Error("pods of damaged files run, or the agent does not say that it is offline")
		}
		restore()
		w.WaitReady("p0", "p1", "p2", "p3", "p4")
	})
}

// One file of the record is damaged, each file in turn. Offline, the agent then runs all pods that do not need the file, and logs the file's
// name and what is wrong with it. One file has the Services of the pods' namespace, which all pods need for their environment variables. When
// the API server answers, all pods run again.
func TestOfflineStartWithOneDamagedFile(t *testing.T) {
	t.Parallel()
	cfg, r := offline(t, Config{})
	Run(t, cfg, func(w *World) {
		names := []string{"p0", "p1", "p2"}
		for _, name := range names {
			w.Create(Pod(name))
		}
		w.WaitReady(names...)
		time.Sleep(time.Minute)
		hurt, shared := 0, 0
		for i := 0; ; i++ {
			files, err := filepath.Glob(filepath.Join(r.dir, "*.known"))
			if err != nil {
				t.Fatal(err)
			}
			files = slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == "head.known" })
			if len(files) < len(names) {
				t.Fatalf("the record has the files %v", files)
			}
			if i == len(files) {
				break
			}
			restore := w.cutOff()
			if err := os.Truncate(files[i], 100); err != nil {
				t.Fatal(err)
			}
			r.reboot(w)
			time.Sleep(time.Minute)
			switch n := w.executes(names...); n {
			case len(names):
			case len(names) - 1:
				hurt++
			case 0:
				shared++
			default:
				t.Errorf("%d of %d pods run, and %s is damaged", n, len(names), files[i])
			}
			if !slices.ContainsFunc(strings.Split(w.log.String(), "\n"), func(line string) bool {
				return strings.Contains(line, "a file of the record of what the API server last said is not used") && strings.Contains(line, filepath.Base(files[i])+": ") && strings.Contains(line, "torn")
			}) {
				t.Errorf("the log does not name %s:\n%s", filepath.Base(files[i]), w.log)
			}
			restore()
			w.WaitReady(names...)
			time.Sleep(11 * time.Minute) // after ten minutes the reboots do not count as crashes any more
		}
		if hurt != len(names) || shared != 1 {
			t.Errorf("%d times one of %d pods was missing, and %d times all were", hurt, len(names), shared)
		}
	})
}
