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

// Objects receives the ConfigMaps and Secrets of a source, before its pods. A source makes one call at a time.
type Objects interface {
	Replace(src pod.Source, configMaps []*v1.ConfigMap, secrets []*v1.Secret)
}

// Config configures a source of manifests.
type Config struct {
	NodeName string
	Target   Target
	// Objects may be nil: then the ConfigMaps and Secrets of manifests are ignored.
	Objects Objects
	// Wrong, if set, gets each error in the manifests once, in addition to the log.
	Wrong func(err error)
	// Missing, if set, lists the objects that a pod refers to and that no manifest of this node has. It is called after Objects
	// has the new state. A pod with missing objects is refused: with the node's identity, it could read objects of the API server
	// that the author of the manifest may not read. nil: a pod waits for its missing objects.
	Missing func(p *v1.Pod) []string
	// Doubt, if set, is called before each answer. doubt is true if a manifest has errors, or a pod that was refused for missing
	// objects, and the source has never accepted a version of this manifest. An earlier agent may have run pods of this manifest.
	Doubt func(src pod.Source, doubt bool)
	Log   *slog.Logger
}

// manifests holds the last content of each part of one source: of each file of a directory, or of one URL. Only one goroutine uses it.
type manifests struct {
	cfg    Config
	source pod.Source
	parts  map[string]*part
	said   map[string]bool    // the errors that were reported
	whole  bool               // the source has given a complete answer
	given  map[types.UID]bool // the pods that were published last
	misses []*v1.Pod          // the pods that were refused last for missing objects
}

// part is one file, or the answer of the URL, with the objects from the last reading in which they were correct.
type part struct {
	out    *manifest.Manifest
	kept   bool // some objects are from an earlier reading
	doubt  bool // before the source's first complete answer the part had errors or a refused pod, and it has had one or the other ever since
	wrongs []error
}

func newManifests(cfg Config, src pod.Source) *manifests {
	return &manifests{cfg: cfg, source: src, parts: map[string]*part{}, said: map[string]bool{}}
}

// put stores the new content of a part. If the content has errors, objects that it does not contain stay as they were, because a pod
// that cannot be read does not count as deleted.
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
	now := &part{out: decoded, doubt: old.doubt} // collect ends the doubt if the new content has no error and no refused pod
	for i, p := range decoded.Pods {
		decoded.Pods[i] = origin.Static(p)
		for _, was := range old.out.Pods {
			if was.UID == p.UID && was.Annotations[pod.AnnotationHash] == p.Annotations[pod.AnnotationHash] {
				decoded.Pods[i] = was // the old object keeps the time when the pod was first seen
			}
		}
	}
	for _, note := range decoded.Notes {
		m.cfg.Log.Info("left out a part of a manifest", "what", note.Error())
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

// missing appends to the new list (now) the objects of the old list (before) whose names the new list lacks. It reports whether it
// appended any.
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

// wrong records that a part could not be read at all. Its last content stays.
func (m *manifests) wrong(name string, err error) {
	p := m.parts[name]
	if p == nil {
		p = &part{out: &manifest.Manifest{}}
		m.parts[name] = p
	}
	p.wrongs, p.kept = []error{err}, len(p.out.Pods) > 0
}

// drop forgets a part that is gone.
func (m *manifests) drop(name string) { delete(m.parts, name) }

// satisfied reports whether a pod that was refused for missing objects could be accepted now, because another source has added all of
// these objects.
func (m *manifests) satisfied() bool {
	return slices.ContainsFunc(m.misses, func(p *v1.Pod) bool { return len(m.cfg.Missing(p)) == 0 })
}

// publish passes the objects of all parts on. If two parts have a pod of the same name, the first part wins. If whole is true, all
// parts are known, and so a pod that was published before and that no part contains now is removed.
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
	pods, doubt := m.collect()
	m.whole = m.whole || whole
	if m.cfg.Doubt != nil {
		if doubt {
			m.cfg.Doubt(m.source, true)
		} else { // only once the set has the pods that the doubt was about: between the two they would be without a source, and stopped
			defer m.cfg.Doubt(m.source, false)
		}
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

// collect returns the pods to publish, except pods whose name or UID another pod has, and pods with missing objects. It reports the
// errors, and returns whether the source is in doubt: whether it has a part that it has never been able to accept.
func (m *manifests) collect() (pods []*v1.Pod, doubt bool) {
	wrongs := map[string]bool{}
	names, uids := map[string]string{}, map[string]string{}
	m.misses = nil
	for _, name := range slices.Sorted(maps.Keys(m.parts)) {
		p := m.parts[name]
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
		p.doubt = (p.doubt || !m.whole) && (refused || len(p.wrongs) > 0)
		doubt = doubt || p.doubt
	}
	m.said = wrongs
	return pods, doubt
}

// missing returns the objects that a pod refers to and that no manifest has. A pod that was published before continues without
// them, so for it the result is nil.
func (m *manifests) missing(p *v1.Pod) []string {
	if m.cfg.Missing == nil || m.given[p.UID] {
		return nil
	}
	return m.cfg.Missing(p)
}

// say logs an error, unless the last call of collect already found the same error. It adds the error to wrongs.
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

// label returns the name of a part for messages. It removes secrets, because a URL may contain a password.
func (m *manifests) label(name string) string {
	if m.source == pod.SourceURL {
		return redacted(name)
	}
	return name
}
