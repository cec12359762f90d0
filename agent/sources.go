package agent

import (
	"net/http"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/mirror"
	"github.com/wherry-node/wherry/internal/edge/source"
)

// sources returns the configured sources of pods. Until every source has delivered its pods once, the node does not stop a pod just
// because no source has it.
func (a *Agent) sources() []pod.Source {
	var out []pod.Source
	k := &a.cfg.Kubelet
	if a.deps.Client != nil {
		out = append(out, pod.SourceAPI)
	}
	if k.StaticPodPath != "" {
		out = append(out, pod.SourceFile)
	}
	if k.StaticPodURL != "" {
		out = append(out, pod.SourceURL)
	}
	if a.pushes() {
		out = append(out, pod.SourcePush)
	}
	return out
}

// sourceParts returns the sources as parts to run.
func (a *Agent) sourceParts() []part {
	var out []part
	if dir := a.manifestDir(); dir != nil {
		out = append(out, part{name: "static pods", run: dir.Run})
	}
	if url := a.manifestURL(); url != nil {
		out = append(out, part{name: "static pods of a URL", run: url.Run})
	}
	if a.deps.Client != nil {
		api := &source.API{Pods: a.clients.api.Pods(metav1.NamespaceAll), NodeName: a.cfg.NodeName, Target: a.target(), Observe: a.writer.Observe, Contact: a.offline.contact(), Log: a.log,
			Follow: a.followBy(Query{Resource: "pods", Node: a.cfg.NodeName})}
		out = append(out, part{name: "source", begin: api.Begin})
	}
	return out
}

// manifestDir returns the source of staticPodPath; nil if it is not set.
func (a *Agent) manifestDir() *source.Dir {
	k := &a.cfg.Kubelet
	if k.StaticPodPath == "" {
		return nil
	}
	a.staticPods = make(chan source.Location, 1)
	return &source.Dir{
		Config: a.manifests(), Path: k.StaticPodPath, Period: k.FileCheckFrequency.Duration, Watch: a.deps.Machine.watchesManifests(), Locations: a.staticPods,
	}
}

// manifestURL returns the source of staticPodURL; nil if it is not set.
func (a *Agent) manifestURL() *source.URL {
	k := &a.cfg.Kubelet
	if k.StaticPodURL == "" {
		return nil
	}
	return &source.URL{
		Config: a.manifests(), URL: k.StaticPodURL, Header: k.StaticPodURLHeader, Period: k.HTTPCheckFrequency.Duration,
		// Requests are 20 s apart, so keeping a connection open between them is a waste.
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
	}
}

// manifests returns the configuration of every source of static pods.
func (a *Agent) manifests() source.Config {
	return source.Config{NodeName: a.cfg.NodeName, Target: a.target(), Objects: a.platform.local, Wrong: a.wrongManifest, Missing: a.platform.missing, Doubt: a.pods.Doubt, Log: a.log}
}

// wrongManifest records an event about an invalid manifest, on the node, because there is no pod to record it on.
func (a *Agent) wrongManifest(err error) {
	a.events.NodeEvent(v1.EventTypeWarning, "InvalidStaticPod", err.Error())
}

func (a *Agent) buildMirrors() {
	a.mirrors = mirror.New(mirror.Config{
		API: a.clients.mirrorPods, Pods: a.pods, Node: a.heartbeat.Node, Local: a.platform.hasLocal, Gone: a.writer.Forget, Owes: a.writer.Owes, Log: a.log,
		Ends: func(fullName string, but types.UID) bool { return a.loop.Ends(fullName, but) },
	})
	a.pods.OnMirror(a.mirrors.Look)
}

// mirrorUID returns the UID of a static pod's mirror in the API.
func (a *Agent) mirrorUID(p *v1.Pod) types.UID {
	if m := a.pods.Mirror(p); pod.IsStatic(p) && m != nil {
		return m.UID
	}
	return ""
}
