package source

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/manifest"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// Objects receives the ConfigMaps and Secrets of a source. Calls of one source come one at a time, before its pods.
type Objects interface {
	Replace(src pod.Source, configMaps []*v1.ConfigMap, secrets []*v1.Secret)
}

// Config is what a source of manifests works with.
type Config struct {
	NodeName string
	Target   Target
	// Objects may be nil: then ConfigMaps and Secrets of manifests go nowhere.
	Objects Objects
	// Wrong, when set, is told of everything that is wrong in manifests, once, beside the log.
	Wrong func(err error)
	// Missing, when set, names what a pod refers to and no manifest of this node has, after Objects was told. Such a pod is
	// refused: what it means could only be in the API server, and with the node's identity it would read there what whoever
	// wrote the manifest may not. nil: pods wait for what is missing.
	Missing func(p *v1.Pod) []string
	// Doubt, when set, is told before each answer whether something is wrong that was never read right: what the same
	// manifests said to the agent before this one may be in it.
	Doubt func(src pod.Source, doubt bool)
	Log   *slog.Logger
}

// manifests holds what the parts of one source (the files of a directory; one URL) said last. It is used by one goroutine.
type manifests struct {
	cfg    Config
	source pod.Source
	parts  map[string]*part
	said   map[string]bool    // what is wrong and was told
	whole  bool               // it has answered
	given  map[types.UID]bool // the pods that were handed on last
	misses []*v1.Pod          // the pods that were refused last, for what is missing
}

// part is one file, with the objects that were good when they were last read.
type part struct {
	out    *manifest.Manifest
	kept   bool // some of it is from an earlier reading
	doubt  bool // it was there when the source first answered, and was never read right
	wrongs []error
	misses bool // as doubt, for a pod that was refused ever since for what is missing
}

func newManifests(cfg Config, src pod.Source) *manifests {
	return &manifests{cfg: cfg, source: src, parts: map[string]*part{}, said: map[string]bool{}}
}

// put takes a new text of a part. What the text does not say because something in it is wrong stays as it was: an
// unreadable pod is not a deleted one.
func (m *manifests) put(name string, data []byte) {
	decoded := manifest.Decode(m.label(name), data)
	if len(data) == 0 {
		decoded.Errors = append(decoded.Errors, &manifest.Error{Manifest: m.label(name), Document: 1, Detail: "empty; remove it if its pods are to end"})
	}
	origin := manifest.Origin{Source: m.source, Name: name, NodeName: m.cfg.NodeName, Seen: time.Now()}
	old := m.parts[name]
	if old == nil {
		old = &part{out: &manifest.Manifest{}}
	}
	now := &part{out: decoded, doubt: old.doubt && len(decoded.Errors) > 0}
	for i, p := range decoded.Pods {
		decoded.Pods[i] = origin.Static(p)
		for _, was := range old.out.Pods {
			if was.UID == p.UID && was.Annotations[pod.AnnotationHash] == p.Annotations[pod.AnnotationHash] {
				decoded.Pods[i] = was // it was seen before
			}
		}
	}
	for _, note := range decoded.Notes {
		m.cfg.Log.Info("manifest is taken in part", "what", note.Error())
	}
	for _, e := range decoded.Errors {
		now.wrongs = append(now.wrongs, e)
	}
	if len(decoded.Errors) > 0 {
		now.kept = missing(&decoded.Pods, old.out.Pods)
		now.kept = missing(&decoded.ConfigMaps, old.out.ConfigMaps) || now.kept
		now.kept = missing(&decoded.Secrets, old.out.Secrets) || now.kept
	}
	m.parts[name] = now
}

// missing appends to now what was there before under a name that is not there now.
func missing[T interface {
	GetNamespace() string
	GetName() string
}](now *[]T, before []T) bool {
	n := len(*now)
	for _, o := range before {
		if !slices.ContainsFunc((*now)[:n], func(have T) bool { return have.GetNamespace() == o.GetNamespace() && have.GetName() == o.GetName() }) {
			*now = append(*now, o)
		}
	}
	return len(*now) > n
}

// wrong notes that a part could not be read at all. What it said last stays.
func (m *manifests) wrong(name string, err error) {
	p := m.parts[name]
	if p == nil {
		p = &part{out: &manifest.Manifest{}}
		m.parts[name] = p
	}
	p.wrongs, p.kept = []error{err}, len(p.out.Pods) > 0
}

// drop: the part is gone.
func (m *manifests) drop(name string) { delete(m.parts, name) }

// satisfied reports whether a pod that was refused has now all that it refers to: another source may have brought it.
func (m *manifests) satisfied() bool {
	return slices.ContainsFunc(m.misses, func(p *v1.Pod) bool { return len(m.cfg.Missing(p)) == 0 })
}

// publish passes the objects of all parts on. If two parts have a pod of the same name, the first part wins. whole says that the
// parts are complete: a pod that the source had before and that no part has now is removed.
func (m *manifests) publish(whole bool) {
	if m.cfg.Objects != nil {
		var configMaps []*v1.ConfigMap
		var secrets []*v1.Secret
		for _, name := range slices.Sorted(maps.Keys(m.parts)) {
			configMaps = append(configMaps, m.parts[name].out.ConfigMaps...)
			secrets = append(secrets, m.parts[name].out.Secrets...)
		}
		m.cfg.Objects.Replace(m.source, configMaps, secrets)
	}
	pods, doubt := m.judge()
	m.whole = m.whole || whole
	if m.cfg.Doubt != nil {
		m.cfg.Doubt(m.source, doubt)
	}
	m.given = map[types.UID]bool{}
	for _, p := range pods {
		m.given[p.UID] = true
	}
	if whole {
		m.cfg.Target.Replace(m.source, pods)
		return
	}
	for _, p := range pods {
		m.cfg.Target.Upsert(m.source, p)
	}
}

// judge returns the pods that count, tells what is wrong, and says whether something is wrong that was never read right.
func (m *manifests) judge() (pods []*v1.Pod, doubt bool) {
	wrongs := map[string]bool{}
	names, uids := map[string]string{}, map[string]string{}
	m.misses = nil
	for _, name := range slices.Sorted(maps.Keys(m.parts)) {
		p := m.parts[name]
		p.doubt = p.doubt || !m.whole && len(p.wrongs) > 0
		for _, e := range p.wrongs {
			m.say(wrongs, e, p.kept)
		}
		refused := false
		for _, o := range p.out.Pods {
			full := o.Namespace + "/" + o.Name
			other, twice := names[full]
			if !twice {
				other, twice = uids[string(o.UID)]
			}
			if twice {
				m.say(wrongs, &manifest.Error{Manifest: m.label(name), Document: 1, Object: "Pod " + full,
					Detail: "a pod of this name or UID is in " + other + " already, which counts; rename one of them"}, false)
				continue
			}
			names[full], uids[string(o.UID)] = m.label(name), m.label(name)
			if missing := m.missing(o); len(missing) > 0 {
				refused, m.misses = true, append(m.misses, o)
				m.say(wrongs, &manifest.Error{Manifest: m.label(name), Document: 1, Object: "Pod " + full, Detail: manifest.Unresolved(missing)}, false)
				continue
			}
			pods = append(pods, o)
		}
		p.misses = refused && (p.misses || !m.whole)
		doubt = doubt || p.doubt || p.misses
	}
	m.said = wrongs
	return pods, doubt
}

// missing is what a pod lacks that was not handed on before. One that was goes on without.
func (m *manifests) missing(p *v1.Pod) []string {
	if m.cfg.Missing == nil || m.given[p.UID] {
		return nil
	}
	return m.cfg.Missing(p)
}

// say tells once, until it is right again, what is wrong.
func (m *manifests) say(wrongs map[string]bool, err error, kept bool) {
	wrongs[err.Error()] = true
	if m.said[err.Error()] {
		return
	}
	m.cfg.Log.Error("manifest is wrong", "err", err, "lastGoodKept", kept)
	if m.cfg.Wrong != nil {
		m.cfg.Wrong(err)
	}
}

// label is what people are told: a URL may hold a password.
func (m *manifests) label(name string) string {
	if m.source == pod.SourceURL {
		return redacted(name)
	}
	return name
}
