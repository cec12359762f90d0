package agenttest

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/sim/simcri"
	"github.com/wherry-node/wherry/internal/sim/simkube"
)

// atOnce is how many pods of the crowd exist at the same time.
const atOnce = 40

// crowd is a node on which any number of pods come and go. Other tests have a Witness that observes the node. A
// crowd has none, because a Witness remembers all pods.
type crowd struct {
	*testing.T
	kube    *simkube.Kube
	runtime *simcri.Runtime
	cri     runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	admin   kubernetes.Interface
	disk    agent.Disk
	dir     string // directory of the static pods' manifests
	control *http.Client
	agent   *agent.Agent

	next atomic.Int64
}

// runCrowd runs f in a synctest bubble with an agent that has every source of pods, a control socket and a directory for pull records.
func runCrowd(t *testing.T, disk agent.Disk, f func(c *crowd)) {
	t.Helper()
	dir, records := t.TempDir(), t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{T: t, dir: dir, disk: disk}
		c.kube = simkube.New(simkube.Config{History: 256})
		c.runtime = simcri.New(simcri.Config{Latency: latencies(), RuntimeHandlers: []string{"runc"}})
		defer c.runtime.Close()
		c.cri, c.images = c.runtime.Clients()
		var err error
		if c.admin, err = kubernetes.NewForConfig(c.kube.RESTConfig("admin")); err != nil {
			t.Fatal(err)
		}
		listener := bufconn.Listen(1 << 16)
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.DialContext(ctx) }}
		c.control = &http.Client{Transport: transport}
		kubelet := agent.DefaultConfiguration()
		kubelet.EnableServer = new(false)
		kubelet.StaticPodPath, kubelet.FileCheckFrequency.Duration = dir, time.Second
		c.agent, err = agent.New(agent.Config{NodeName: NodeName, Kubelet: kubelet, StartSlots: 10}, agent.Deps{
			Client: c.kube.RESTConfig(agentName), Runtime: c.cri, Images: c.images, Dialer: c.runtime, Control: timerless{listener},
			Machine: agent.SimulatedMachine(agent.Shape{Disk: disk, PullRecords: records, PollManifests: true}), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.agent.Run(ctx) }()
		f(c)
		transport.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	})
}

// timerless is a listener that stops the deadline timers of closed connections. Otherwise bufconn would keep these timers, with the buffers
// of the connections, until the deadlines.
type timerless struct{ net.Listener }

func (l timerless) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return timerlessConn{conn}, err
}

type timerlessConn struct{ net.Conn }

func (c timerlessConn) Close() error {
	_ = c.SetDeadline(time.Time{})
	return c.Conn.Close()
}

// live creates and deletes pods until the number of pods that have existed is until.
func (c *crowd) live(until int) {
	var wg sync.WaitGroup
	for slot := range atOnce {
		wg.Go(func() {
			for i := c.next.Add(1); i <= int64(until) && !c.Failed(); i = c.next.Add(1) {
				c.one(int(i), slot)
			}
			c.next.Add(-1)
		})
	}
	wg.Wait()
}

// settle waits until nothing of any pod is left, and then until everything that the agent keeps for a limited time has expired.
func (c *crowd) settle() {
	c.until("nothing is left of any pod", 10*time.Minute, func() bool {
		list, err := c.cri.ListPodSandbox(c.Context(), &runtimeapi.ListPodSandboxRequest{})
		return err == nil && len(list.Items) == 0 && len(c.kube.Pods()) == 0 && len(c.disk.UIDs()) == 0
	})
	time.Sleep(30 * time.Minute)
	c.ask(http.MethodGet, "/stats/summary", "", true) // the agent keeps the rates of containers until the next request for them
	c.kube.ExpireEvents()
	c.control.CloseIdleConnections()
	time.Sleep(30 * time.Minute)
	synctest.Wait()
}

// ownImage is the name of a kind of pods (see lives). Each pod of this kind has an image that no other pod has.
const ownImage = "own-image"

func imageOf(i int) string { return fmt.Sprintf("registry.example/app%d:1", i) }

// removeImage removes the image of a pod, as an administrator would. The agent's own image collection begins only when the disk is nearly
// full.
func (c *crowd) removeImage(name string) {
	if _, err := c.images.RemoveImage(c.Context(), &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: name}}); err != nil {
		c.Error(err)
	}
}

// until waits until ok returns true, at most for d. That may take long while many pods start or end.
func (c *crowd) until(what string, d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d); !ok(); time.Sleep(300 * time.Millisecond) {
		if time.Now().After(end) {
			c.Errorf("after %s not: %s", d, what)
			return false
		}
	}
	return true
}

// life describes a kind of pod: its spec, and how long a pod exists.
type life struct {
	name string
	spec func(i int, p *v1.Pod)
	stay time.Duration
	// grace is the grace period, in seconds, with which the pod is deleted; negative: that of the pod's spec.
	grace int64
	// objects is true if a ConfigMap and a Secret with the pod's name exist for as long as the pod exists.
	objects bool
}

// lives returns the kinds of pods. Every text, exit code and name that can be chosen freely is different in each pod. So if the agent keeps
// such a text after the pod is gone, its memory grows, and the test fails.
func lives() []life {
	never := func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever }
	always := v1.ContainerRestartPolicyAlways
	note := func(p *v1.Pod, key string, format string, args ...any) {
		p.Annotations[key] = fmt.Sprintf(format, args...)
	}
	return []life{
		{name: "plain", stay: 3 * time.Second, grace: -1},
		{name: "ends", stay: 4 * time.Second, grace: -1, spec: func(i int, p *v1.Pod) {
			never(p)
			note(p, simcri.AnnotationRunFor, "1s")
			note(p, simcri.AnnotationExitCode, "%d", i)
			note(p, simcri.AnnotationMessage, "last words of %d", i)
		}},
		{name: "oom", stay: 4 * time.Second, grace: -1, spec: func(i int, p *v1.Pod) {
			never(p)
			note(p, simcri.AnnotationExitCode, "%d", i%8)
			note(p, simcri.AnnotationExitReason, "%s", []string{"OOMKilled", fmt.Sprint("Reason", i)}[i%2])
		}},
		{name: "crashes", stay: 15 * time.Second, grace: 0, spec: func(i int, p *v1.Pod) {
			note(p, simcri.AnnotationExitCode, "%d", -i)
		}},
		{name: "probed", stay: 8 * time.Second, grace: -1, spec: func(i int, p *v1.Pod) {
			c := &p.Spec.Containers[0]
			c.ReadinessProbe, c.LivenessProbe, c.StartupProbe = httpProbe(1, 1), httpProbe(2, 1), httpProbe(1, 3)
			note(p, simcri.AnnotationFailAfter, "3s")
		}},
		{name: "refers", stay: 3 * time.Second, grace: -1, objects: true},
		{name: "refused", stay: 2 * time.Second, grace: -1, spec: func(i int, p *v1.Pod) {
			p.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceName(fmt.Sprint("example.com/device-", i)): resource.MustParse("1")}
			p.Spec.Containers[0].Resources.Requests = p.Spec.Containers[0].Resources.Limits
		}},
		{name: "hasty", grace: 0},
		{name: "hasty2", stay: 200 * time.Millisecond, grace: -1},
		{name: "lost", stay: 12 * time.Second, grace: -1, spec: func(i int, p *v1.Pod) {
			p.Spec.Containers[0].Image = fmt.Sprintf("registry%d.invalid/app:1", i)
		}},
		{name: ownImage, stay: 3 * time.Second, grace: -1, spec: func(i int, p *v1.Pod) {
			p.Spec.Containers[0].Image = imageOf(i)
		}},
		{name: "initial", stay: 6 * time.Second, grace: -1, spec: func(i int, p *v1.Pod) {
			exec := func(command string) *v1.LifecycleHandler {
				return &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", command}}}
			}
			p.Spec.InitContainers = []v1.Container{
				{Name: "one", Image: "i:1", Command: []string{"sh", "-c", "sleep 1"}}, {Name: "side", Image: "i:1", RestartPolicy: &always},
			}
			p.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: exec("true"), PreStop: exec(fmt.Sprintf("echo %d >&2; exit 3", i))}
		}},
		{name: "expires", stay: 6 * time.Second, grace: -1, spec: func(_ int, p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(3)) }},
		{name: "start-error", stay: 5 * time.Second, grace: -1, spec: func(i int, p *v1.Pod) {
			note(p, simcri.AnnotationStartError, "exec format error %d", i)
		}},
		{name: "own-users", stay: 3 * time.Second, grace: -1, spec: func(_ int, p *v1.Pod) { p.Spec.HostUsers = new(false) }},
		{name: "slow", stay: 3 * time.Second, grace: 1, spec: func(_ int, p *v1.Pod) { note(p, simcri.AnnotationStopAfter, "never") }},
	}
}

// one creates pod number i, of one of the kinds, and deletes it.
func (c *crowd) one(i, slot int) {
	lives := lives()
	switch kind := i % (len(lives) + 5); kind {
	default:
		l := lives[kind]
		c.apiPod(i, fmt.Sprintf("%s-%d", l.name, i), &l)
		if l.name == ownImage {
			c.removeImage(imageOf(i))
		}
	case len(lives):
		name := fmt.Sprint("same-", slot)
		c.apiPod(i, name, &life{stay: 2 * time.Second, grace: 0, spec: func(_ int, p *v1.Pod) { p.Annotations[simcri.AnnotationStopAfter] = "2s" }})
		c.apiPod(i, name, &life{stay: 2 * time.Second, grace: -1})
	case len(lives) + 1:
		c.staticPod(i)
	case len(lives) + 2:
		c.pushedPod(i)
	case len(lives) + 3:
		c.ownNamespace(i)
	case len(lives) + 4:
		c.lostSandbox(i)
	}
	if i%1000 == 0 {
		c.kube.ExpireEvents()
	}
	if i%25 == 0 {
		c.ask(http.MethodGet, "/stats/summary", "", true)
	}
}

// apiPod creates a pod in the API, deletes it, and returns when it is gone from the API.
func (c *crowd) apiPod(i int, name string, l *life) {
	p := Pod(name)
	if l.spec != nil {
		l.spec(i, p)
	}
	if l.objects {
		defer c.objects(p)()
	}
	portProbes(&p.Spec)
	c.create(p)
	time.Sleep(l.stay)
	if i%7 == 0 {
		c.ask(http.MethodGet, "/explain/"+p.Namespace+"/"+p.Name, "", false)
	}
	c.remove(p.Namespace, name, l.grace)
}

func (c *crowd) create(p *v1.Pod) {
	if _, err := c.admin.CoreV1().Pods(p.Namespace).Create(c.Context(), p, metav1.CreateOptions{}); err != nil {
		c.Errorf("create pod %s: %v", p.Name, err)
	}
}

// remove deletes a pod and waits until it is gone from the API. A negative grace means the grace period of the pod.
func (c *crowd) remove(namespace, name string, grace int64) {
	var o metav1.DeleteOptions
	if grace >= 0 {
		o.GracePeriodSeconds = &grace
	}
	if err := c.admin.CoreV1().Pods(namespace).Delete(c.Context(), name, o); err != nil {
		c.Errorf("delete pod %s: %v", name, err)
	}
	c.until("pod "+name+" is gone", 5*time.Minute, func() bool { return c.kube.Pod(namespace, name) == nil })
}

// objects creates a ConfigMap and a Secret for a pod, and makes the pod refer to them and to a token. The function remove deletes them.
func (c *crowd) objects(p *v1.Pod) (remove func()) {
	api, name := c.admin.CoreV1(), p.Name
	if _, err := api.ConfigMaps(Namespace).Create(c.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": name}}, metav1.CreateOptions{}); err != nil {
		c.Error(err)
	}
	if _, err := api.Secrets(Namespace).Create(c.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"b": []byte(name)}}, metav1.CreateOptions{}); err != nil {
		c.Error(err)
	}
	from := v1.LocalObjectReference{Name: name}
	p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: from}}}
	p.Spec.ImagePullSecrets = []v1.LocalObjectReference{from}
	p.Spec.Volumes = []v1.Volume{{Name: "all", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: from}}, {Secret: &v1.SecretProjection{LocalObjectReference: from}},
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", Audience: name}},
	}}}}}
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "all", MountPath: "/all"}}
	return func() {
		if err := api.ConfigMaps(Namespace).Delete(c.Context(), name, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
		if err := api.Secrets(Namespace).Delete(c.Context(), name, metav1.DeleteOptions{}); err != nil {
			c.Error(err)
		}
	}
}

// staticPod writes a manifest, waits for its static pod, and removes the manifest.
func (c *crowd) staticPod(i int) {
	name := fmt.Sprint("static-", i)
	file := filepath.Join(c.dir, name+".yaml")
	if err := os.WriteFile(file, []byte(manifest(name, "registry.example/static:1")), 0o600); err != nil {
		c.Error(err)
	}
	c.until("there is the mirror of "+name, time.Minute, func() bool { return c.kube.Pod(Namespace, name+"-"+NodeName) != nil })
	time.Sleep(3 * time.Second)
	if err := os.Remove(file); err != nil {
		c.Error(err)
	}
	c.until("the mirror of "+name+" is gone", time.Minute, func() bool { return c.kube.Pod(Namespace, name+"-"+NodeName) == nil })
}

// pushedPod pushes a pod with a ConfigMap over the control socket, stops it, and removes it.
func (c *crowd) pushedPod(i int) {
	name := fmt.Sprint("pushed-", i)
	text := strings.NewReplacer("name: web", "name: "+name, "name: settings", "name: settings-"+name).Replace(lonePod)
	c.ask(http.MethodPost, "/pods", text, true)
	time.Sleep(3 * time.Second)
	path := "/pods/default/" + name + "-" + NodeName
	if i%2 == 0 {
		c.ask(http.MethodPost, path+"/stop", "", true)
		time.Sleep(7 * time.Second)
	}
	c.ask(http.MethodDelete, path+"?gracePeriodSeconds=1", "", true)
	c.until(name+" is gone", time.Minute, func() bool { return c.ask(http.MethodGet, path, "", false) == 404 })
}

// ownNamespace creates a pod in a new namespace, and deletes both.
func (c *crowd) ownNamespace(i int) {
	name := fmt.Sprint("space-", i)
	api := c.admin.CoreV1()
	if _, err := api.Namespaces().Create(c.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		c.Error(err)
	}
	p := Pod(name)
	p.Namespace = name
	c.create(p)
	time.Sleep(3 * time.Second)
	c.remove(name, name, -1)
	c.kube.RemoveNamespace(name)
}

// lostSandbox runs a pod whose sandbox dies. The creation of its next sandbox fails with an error text that no other pod has.
func (c *crowd) lostSandbox(i int) {
	name := fmt.Sprint("loses-", i)
	c.create(Pod(name))
	time.Sleep(2 * time.Second)
	remove := c.runtime.Inject(simcri.Fault{Method: "RunPodSandbox", Pod: name, Err: status.Errorf(codes.Unknown, "no network for %s", name)})
	list, err := c.cri.ListPodSandbox(c.Context(), &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"io.kubernetes.pod.name": name}}})
	if err != nil {
		c.Error(err)
	}
	for _, s := range list.GetItems() {
		c.runtime.KillSandbox(s.Id)
	}
	time.Sleep(4 * time.Second)
	remove()
	c.remove(Namespace, name, -1)
}

// ask sends a request over the control socket and returns the status code. If well is true, a failure fails the test.
func (c *crowd) ask(method, path, body string, well bool) int {
	req, err := http.NewRequestWithContext(c.Context(), method, "http://agent"+path, strings.NewReader(body))
	if err != nil {
		c.Error(err)
		return 0
	}
	resp, err := c.control.Do(req)
	if err != nil {
		c.Error(err)
		return 0
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || well && resp.StatusCode/100 != 2 {
		c.Errorf("%s %s: %d %s, %v", method, path, resp.StatusCode, text, err)
	}
	return resp.StatusCode
}
