package agent

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"time"

	authnv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/config"
	"github.com/wherry-node/wherry/internal/edge/push"
	"github.com/wherry-node/wherry/internal/edge/server"
)

// pushes reports whether pods can be pushed to this agent.
func (a *Agent) pushes() bool { return a.deps.Control != nil || a.cfg.PushAPI }

// buildPush makes the source of pushed pods. The node's name is appended to the name of a pushed pod only if there is an API server, in
// which the pod has a mirror.
func (a *Agent) buildPush() {
	dir := ""
	if a.cfg.RootDir != "" && a.deps.Machine.real {
		dir = filepath.Join(a.cfg.RootDir, "pushed")
	}
	a.push = push.New(push.Config{
		Dir: dir, NodeName: a.cfg.NodeName, Suffix: a.deps.Client != nil, Target: a.pods, Objects: a.platform.local, Missing: a.platform.missing,
		Others: a.otherSource, Log: a.log,
	})
}

// otherSource returns the source of a pod of this name that was not pushed; SourceNone: there is no such pod.
func (a *Agent) otherSource(namespace, name string) pod.Source {
	for _, p := range a.pods.List() {
		if p.Namespace != namespace || p.Name != name {
			continue
		}
		if _, src := a.pods.Get(p.UID); src != pod.SourcePush {
			return src
		}
	}
	return pod.SourceNone
}

// finished reports whether a pod has run to its end.
func (a *Agent) finished(uid types.UID) bool {
	p, _ := a.pods.Get(uid)
	if p == nil {
		return false
	}
	phase := a.report.Status(p).Phase
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}

func (a *Agent) view() *podView { return &podView{set: a.pods, cache: a.pleg, report: a.report} }

// buildControl wires the control socket, which every client that can open its file may use. The socket serves the node's HTTP API, and
// also the requests that an API server would serve in a cluster.
func (a *Agent) buildControl() error {
	if a.deps.Control == nil {
		return nil
	}
	view := a.view()
	extra := a.push.Routes(a.finished)
	maps.Copy(extra, map[string]http.Handler{
		"GET /pods/{namespace}/{name}": a.servePod(view),
		"GET /node":                    http.HandlerFunc(a.serveNode),
		"GET /lastknown":               http.HandlerFunc(a.serveLastKnown),
		"GET /pulls":                   http.HandlerFunc(a.servePulls),
	})
	maps.Copy(extra, a.explanations(view))
	if a.events.local != nil {
		extra["GET /events"] = a.events.local
	}
	var err error
	a.control, err = server.New(server.Config{
		NodeName: a.cfg.NodeName, Authenticator: socketUser{}, Authorizer: server.AlwaysAllow{}, Pods: view,
		Runtime: a.streams(), Enable: server.Enable{Debugging: true, Statusz: true},
		Sources: server.Sources{
			Stats: a.stats.Summary(), RunningPods: view.running, Configz: func() any { return config.Masked(a.kubelet()) },
			Version: a.cfg.KubeletVersion, Started: time.Now(), Extra: extra, Console: a.consolePage(),
		},
		Checks: []server.Check{{Name: "syncloop", Func: a.pleg.Healthy}}, Log: a.log,
	})
	return err
}

func (a *Agent) serveControl(ctx context.Context) error {
	return server.Serve(ctx, a.deps.Control, a.control.Handler(), server.ServeOptions{Log: a.log})
}

// socketUser authenticates the clients of the control socket. The socket's file mode limits who can open it. A container may see
// the file through a volume, so the client must also be a process of the machine itself.
type socketUser struct{}

// Authenticate accepts processes of this machine.
func (socketUser) Authenticate(r *http.Request) (*authnv1.UserInfo, error) {
	if err := server.LocalPeer(r.Context()); err != nil {
		return nil, err
	}
	return &authnv1.UserInfo{Username: "wherry:socket", Groups: []string{"system:authenticated"}}, nil
}

// ReasonRemoving is the status reason of a pod that no source has any more and that is not completely removed.
const ReasonRemoving = "Removing"

// servePod answers with one pod. A pod that no source has any more is shown with only its name until nothing of it is left,
// because a client that removes a pod may wait for a 404.
func (a *Agent) servePod(view *podView) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ns, name := r.PathValue("namespace"), r.PathValue("name")
		p, ok := view.Pod(ns, name)
		if !ok && a.loop.Present(ns, name) {
			p, ok = &v1.Pod{
				TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
				Status: v1.PodStatus{Reason: ReasonRemoving},
			}, true
		}
		if !ok {
			http.Error(w, "pod "+ns+"/"+name+" is not on this node", http.StatusNotFound)
			return
		}
		writeObject(w, p)
	})
}

// serveNode answers with the Node from the API, or with the Node that the agent would register.
func (a *Agent) serveNode(w http.ResponseWriter, _ *http.Request) {
	a.refreshNode(context.Background())
	n := a.nodeObject().DeepCopy()
	n.TypeMeta = metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}
	writeObject(w, n)
}

func writeObject(w http.ResponseWriter, obj any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(obj) // an error means that the client is gone
}
