package agenttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/agent"
)

// rereads is how often the agent reads its manifests. In a bubble the kernel does not notify the agent of changes.
const rereads = 10 * time.Second

// staticPods are the manifests of static pods in one run of the simulation, by the name of the pod.
type staticPods struct {
	dir   string
	next  int
	texts map[string]string // content of each file now; of a removed file, its last content
	pods  map[string]*v1.Pod
	there map[string]bool
	torn  map[string]bool // only half of the file is written
}

// withStatics makes the agents of a run read manifests from the directory dir.
func withStatics(cfg *Config, dir string) *staticPods {
	also := cfg.Agent
	cfg.Agent = func(c *agent.Config) {
		also(c)
		c.Kubelet.StaticPodPath = dir
		c.Kubelet.FileCheckFrequency.Duration = rereads
	}
	return &staticPods{dir: dir, texts: map[string]string{}, pods: map[string]*v1.Pod{}, there: map[string]bool{}, torn: map[string]bool{}}
}

func (s *sim) file(name, text string) {
	path := filepath.Join(s.statics.dir, name+".json")
	err := os.Remove(path)
	if text != "" {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		s.Fatal(err)
	}
}

// changeManifest changes a random manifest or mirror.
func (s *sim) changeManifest() {
	st, name := s.statics, fmt.Sprintf("s%d", s.rng.IntN(3))
	full := name + "-" + NodeName
	s.logf("manifest %s", name)
	switch n := s.rng.IntN(10); {
	case st.torn[name]: // writes the rest of the file
		s.putManifest(name)
	case !st.there[name] && st.pods[name] != nil && n < 5:
		s.tally.count("manifest: put back")
		s.putManifest(name)
	case !st.there[name]:
		s.tally.count("manifest: new")
		s.newManifest(name)
	case n < 3:
		s.tally.count("manifest: edited")
		s.newManifest(name)
	case n < 5:
		s.tally.count("manifest: removed")
		st.there[name] = false
		s.file(name, "")
		s.Witness.manifest(Namespace+"/"+full, nil)
	case n < 6:
		s.tally.count("manifest: half written")
		st.torn[name] = true
		s.file(name, st.texts[name][:len(st.texts[name])/2])
		s.Witness.tear(Namespace+"/"+full, true)
	default:
		if p := s.Kube.Pod(Namespace, full); p != nil && !s.out {
			s.tally.count("mirror: deleted")
			s.Delete(full, one(s, int64(-1), 0, 1))
		}
	}
}

// newManifest writes a manifest with this name and a new random pod.
func (s *sim) newManifest(name string) {
	s.statics.next++
	p := s.pod(name)
	p.Annotations[annotationVersion] = fmt.Sprint(s.statics.next)
	p.Spec.NodeName = ""
	portProbes(&p.Spec)
	p.Spec.ActiveDeadlineSeconds = nil
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{} // a static pod with requests could preempt other pods
	p.Spec.RestartPolicy = v1.RestartPolicyAlways
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": p.Spec,
		"metadata": map[string]any{"name": name, "namespace": Namespace, "annotations": p.Annotations}})
	if err != nil {
		s.Fatal(err)
	}
	s.statics.texts[name], s.statics.pods[name] = string(text), p
	s.putManifest(name)
	s.tally.pods++
}

// putManifest writes the whole content of a manifest, which is in statics.texts, to its file.
func (s *sim) putManifest(name string) {
	st := s.statics
	s.file(name, st.texts[name])
	if full := Namespace + "/" + name + "-" + NodeName; st.torn[name] && st.there[name] {
		s.Witness.tear(full, false)
	} else {
		s.Witness.manifest(full, st.pods[name])
	}
	st.there[name], st.torn[name] = true, false
}

// settleManifests completes every manifest that is half written.
func (s *sim) settleManifests() {
	for _, name := range sorted(s.statics.torn) {
		s.putManifest(name)
	}
}

// removeManifests removes all manifests.
func (s *sim) removeManifests() {
	for _, name := range sorted(s.statics.there) {
		s.statics.there[name] = false
		s.file(name, "")
		s.Witness.manifest(Namespace+"/"+name+"-"+NodeName, nil)
	}
}

// sorted returns the names whose value is true, in an order that is the same whenever the seed runs.
func sorted(set map[string]bool) (names []string) {
	for name, in := range set {
		if in {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
