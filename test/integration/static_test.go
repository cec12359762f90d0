package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// etcdClient is a manifest that many users know (git.io/etcdclient.yaml), with another image.
const etcdClient = `apiVersion: v1
kind: Pod
metadata:
  creationTimestamp: null
  labels:
    component: etcdclient
    tier: debug
  name: etcdclient
  namespace: %s
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - command: [sh, -c, 'echo hello; sleep 9999d']
    image: %s
    imagePullPolicy: IfNotPresent
    name: etcdclient
    resources: {}
    volumeMounts:
    - mountPath: /var/lib/etcd
      name: etcd-data
      readOnly: false
    env:
    - name: ETCDCTL_API
      value: "%s"
  hostNetwork: true
  volumes:
  - hostPath:
      path: %s
      type: DirectoryOrCreate
    name: etcd-data
`

// handMade is a node whose static pods come from a directory and from a URL.
type handMade struct {
	*space
	n    *node
	dir  string
	page atomic.Value // answer of the URL, a string; "": the server answers with an error
}

func newHandMade(t *testing.T) *handMade {
	h := &handMade{space: newSpace(t)}
	rt := filepath.Join(h.env.dir, "rt-hand")
	h.env.addRuntime(rt)
	if err := h.env.runtimeUp(rt, h.env.subnet(rt)); err != nil {
		t.Fatal(err)
	}
	h.dir = filepath.Join(h.env.dir, "hand-manifests") // the directory does not exist yet
	h.page.Store("")
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := h.page.Load().(string)
		if text == "" || r.Header.Get("X-Node") != "hand" {
			http.Error(w, "not today", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(site.Close)
	var err error
	h.n, err = h.env.startNode(nodeConfig{Name: "hand", Runtime: rt, Config: fmt.Sprintf(
		"registerWithTaints: [{key: hand, effect: NoSchedule}]\nstaticPodPath: %s\nstaticPodURL: %s/pods\nstaticPodURLHeader: {X-Node: [hand]}\nhttpCheckFrequency: 1s\n", h.dir, site.URL)})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.n.waitReady(patience); err != nil {
		t.Fatal(err)
	}
	return h
}

// file writes a manifest into the directory by a rename. If text is "", it removes the manifest.
func (h *handMade) file(name, text string) {
	h.Helper()
	path := filepath.Join(h.dir, name)
	if err := os.MkdirAll(h.dir, 0o755); err != nil {
		h.Fatal(err)
	}
	if text == "" {
		if err := os.Remove(path); err != nil {
			h.Fatal(err)
		}
		return
	}
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		h.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		h.Fatal(err)
	}
}

// container returns the ID of the only running container with this name.
func (h *handMade) container(name string) string {
	h.Helper()
	out, err := h.n.crictl("ps", "-q", "--name", "^"+name+"$")
	if ids := strings.Fields(out); err != nil || len(ids) != 1 {
		h.Fatalf("containers %s that run: %q, %v; want one", name, out, err)
	}
	return strings.TrimSpace(out)
}

// If a client deletes the mirror of a static pod, a new mirror appears and the container keeps running. If the manifest changes, a new pod
// replaces the old one. If the manifest is removed, the pod ends.
func TestStaticPods(t *testing.T) {
	h := newHandMade(t)
	data := filepath.Join(h.env.dir, "hand-etcd")
	text := func(api string) string { return fmt.Sprintf(etcdClient, h.name, busybox, api, data) }
	h.file("etcdclient.yaml", text("3"))
	p := h.ready("etcdclient-hand")
	id := h.container("etcdclient")
	obj, err := h.client().CoreV1().Nodes().Get(context.Background(), h.n.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if o := p.OwnerReferences; len(o) != 1 || o[0].UID != obj.UID || o[0].Controller == nil || !*o[0].Controller {
		t.Errorf("owners %+v", o)
	}
	hash := p.Annotations["kubernetes.io/config.mirror"]
	if hash == "" || hash != p.Annotations["kubernetes.io/config.hash"] || hash == string(p.UID) || p.Spec.ServiceAccountName != "" {
		t.Errorf("mirror %s: %v", p.UID, p.Annotations)
	}
	h.same("exec", h.kubectl("exec", "etcdclient-hand", "--", "sh", "-c", "echo $ETCDCTL_API"), "3\n")
	h.logged("etcdclient-hand", "hello\n")
	h.contains("describe", h.kubectl("describe", "pod", "etcdclient-hand"), "Controlled By:  Node/hand", "Started", "Priority Class Name:  system-node-critical")
	h.contains("/pods", h.kubectl("get", "--raw", "/api/v1/nodes/hand/proxy/pods"), `"name":"etcdclient-hand"`, `"uid":"`+hash)

	for _, force := range [][]string{{"--wait=true"}, {"--grace-period=0", "--force"}} {
		h.kubectl(append([]string{"delete", "pod", "etcdclient-hand"}, force...)...)
		again := h.until("etcdclient-hand", "remade", func(o *v1.Pod) bool { return o.UID != p.UID && isTrue(o, v1.PodReady) })
		h.same("container", h.container("etcdclient"), id)
		h.same("its ID in the mirror", again.Status.ContainerStatuses[0].ContainerID, p.Status.ContainerStatuses[0].ContainerID)
		if !again.CreationTimestamp.After(p.Status.ContainerStatuses[0].State.Running.StartedAt.Time) || !again.Status.StartTime.Equal(p.Status.StartTime) {
			t.Errorf("created %v, started %v, was started %v", again.CreationTimestamp, again.Status.StartTime, p.Status.StartTime)
		}
		p = again
	}

	h.file("etcdclient.yaml", "apiVersion: v1\nkind: Pod\nspec:\n  containerz: []\n")
	h.eventually("an event about the manifest", func() error {
		out, _, err := h.try("get", "events", "-n", "default", "--field-selector", "involvedObject.name=hand,reason=InvalidStaticPod")
		if err == nil && !strings.Contains(out, `etcdclient.yaml:4: document 1, Pod: spec.containerz: unknown field; did you mean "containers"?`) {
			err = errorf("events %q", out)
		}
		return err
	})
	h.same("container", h.container("etcdclient"), id)

	h.file("etcdclient.yaml", text("2"))
	next := h.until("etcdclient-hand", "edited", func(o *v1.Pod) bool {
		return o.Annotations["kubernetes.io/config.mirror"] != hash && isTrue(o, v1.PodReady)
	})
	if h.container("etcdclient") == id || next.UID == p.UID {
		t.Errorf("container %s, mirror %s as before", id, next.UID)
	}
	h.same("exec", h.kubectl("exec", "etcdclient-hand", "--", "sh", "-c", "echo $ETCDCTL_API"), "2\n")
	h.file("etcdclient.yaml", "")
	h.gone("etcdclient-hand")

	h.conf(t)
	h.url(t)
	h.eventually("nothing to be left", func() error { return h.n.checkNothingLeft() })
}

// conf checks that static pods can use ConfigMaps and Secrets from manifests in the same directory. Their mirrors do not mention these
// objects, because the API server refuses a mirror that refers to them.
func (h *handMade) conf(t *testing.T) {
	h.file("conf.yaml", strings.NewReplacer("NS", h.name, "IMAGE", busybox).Replace(`apiVersion: v1
kind: Pod
metadata: {name: conf, namespace: NS}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: conf
    image: IMAGE
    command: [sh, -c, 'sleep 9999d']
    env: [{name: KEY, valueFrom: {secretKeyRef: {name: key, key: k}}}]
    volumeMounts: [{name: c, mountPath: /c}, {name: p, mountPath: /p}]
  volumes:
  - {name: c, configMap: {name: conf}}
  - {name: p, projected: {sources: [{secret: {name: key}}]}}
---
{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf", "namespace": "NS"}, "data": {"a": "from a file"}}
---
apiVersion: v1
kind: Secret
metadata: {name: key, namespace: NS}
stringData: {k: hidden}
`))
	p := h.ready("conf-hand")
	if got := p.Annotations["wherry.dev/mirror-omits"]; got != "configmap/conf,secret/key" {
		t.Errorf("omits %q", got)
	}
	h.same("exec", h.kubectl("exec", "conf-hand", "--", "sh", "-c", "echo $KEY $(cat /c/a /p/k)"), "hidden from a filehidden\n")
	h.file("conf.yaml", "")
	h.gone("conf-hand")
}

// url checks that the pods from the URL stay when a request for the URL fails.
func (h *handMade) url(t *testing.T) {
	h.page.Store(strings.NewReplacer("NS", h.name, "IMAGE", busybox).Replace(`{"apiVersion": "v1", "kind": "PodList", "items": [
		{"metadata": {"name": "far", "namespace": "NS"}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "far", "image": "IMAGE", "command": ["sleep", "9999d"]}]}}]}`))
	p := h.ready("far-hand")
	h.same("source", p.Annotations["kubernetes.io/config.source"], "http")
	id := h.container("far")
	h.page.Store("")
	h.eventually("the log to say so", func() error {
		if log := readFile(h.space, h.n.process.log); !strings.Contains(log, "cannot read the static pods' URL") {
			return errorf("it does not")
		}
		return nil
	})
	h.same("container", h.container("far"), id)
	h.page.Store(`{"apiVersion": "v1", "kind": "PodList", "items": []}`)
	h.gone("far-hand")
}
