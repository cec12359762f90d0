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

// rereads is how often the agent reads its manifests. A bubble gets no notice of changes from the kernel.
const rereads = 10 * time.Second

// staticPods are the manifests of a seed, by name of the pod.
type staticPods struct {
	dir   string
	next  int
	texts map[string]string // the current or last content of the file
	pods  map[string]*v1.Pod
	there map[string]bool
	torn  map[string]bool // only half of the file is written
}

// withStatics makes the agents of a seed read manifests from a directory.
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

// changeManifest performs one random change of a manifest or of a mirror.
func (s *sim) changeManifest() {
	st, name := s.statics, fmt.Sprintf("s%d", s.rng.IntN(3))
	full := name + "-" + NodeName
	s.logf("manifest %s", name)
	switch n := s.rng.IntN(10); {
	case st.torn[name]: // write the rest of the file
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

// newManifest writes another pod with this name.
func (s *sim) newManifest(name string) {
	s.statics.next++
	p := s.pod(name)
	p.Annotations[annotationVersion] = fmt.Sprint(s.statics.next)
	p.Spec.NodeName = ""
	portProbes(&p.Spec)
	p.Spec.ActiveDeadlineSeconds = nil
	p.Spec.Containers[0].Resources = v1.ResourceRequirements{} // a static pod with requests could preempt others
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

// putManifest writes the current or last content of a manifest.
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

// settleManifests completes every half-written manifest.
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

// sorted returns the names in a set, in an order that a seed repeats.
func sorted(set map[string]bool) (names []string) {
	for name, in := range set {
		if in {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
