package source

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/pod"
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
	said   map[string]bool // what is wrong and was told
	whole  bool            // it has answered
}

// part is one file, with the objects that were good when they were last read.
type part struct {
	out    *Manifest
	kept   bool // some of it is from an earlier reading
	doubt  bool // it was there when the source first answered, and was never read right
	wrongs []error
}

func newManifests(cfg Config, src pod.Source) *manifests {
	return &manifests{cfg: cfg, source: src, parts: map[string]*part{}, said: map[string]bool{}}
}

// put takes a new text of a part. What the text does not say because something in it is wrong stays as it was: an
// unreadable pod is not a deleted one.
func (m *manifests) put(name string, data []byte) {
	decoded := Decode(m.label(name), data)
	if len(data) == 0 {
		decoded.Errors = append(decoded.Errors, &ManifestError{Manifest: m.label(name), Document: 1, Detail: "empty; remove it if its pods are to end"})
	}
	origin := Origin{Source: m.source, Name: name, NodeName: m.cfg.NodeName, Seen: time.Now()}
	old := m.parts[name]
	if old == nil {
		old = &part{out: &Manifest{}}
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
		p = &part{out: &Manifest{}}
		m.parts[name] = p
	}
	p.wrongs, p.kept = []error{err}, len(p.out.Pods) > 0
}

// drop: the part is gone.
func (m *manifests) drop(name string) { delete(m.parts, name) }

// publish hands on what there is. Of two pods of one name the one in the first part counts. whole says that there is no
// more than this: what the source had before and has no more is gone.
func (m *manifests) publish(whole bool) {
	var pods []*v1.Pod
	var configMaps []*v1.ConfigMap
	var secrets []*v1.Secret
	wrongs := map[string]bool{}
	said := func(err error, kept bool) {
		wrongs[err.Error()] = true
		if m.said[err.Error()] {
			return
		}
		m.cfg.Log.Error("manifest is wrong", "err", err, "lastGoodKept", kept)
		if m.cfg.Wrong != nil {
			m.cfg.Wrong(err)
		}
	}
	doubt, names, uids := false, map[string]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(m.parts)) {
		p := m.parts[name]
		p.doubt = p.doubt || !m.whole && len(p.wrongs) > 0
		doubt = doubt || p.doubt
		for _, e := range p.wrongs {
			said(e, p.kept)
		}
		for _, o := range p.out.Pods {
			full := o.Namespace + "/" + o.Name
			other, twice := names[full]
			if !twice {
				other, twice = uids[string(o.UID)]
			}
			if twice {
				said(&ManifestError{Manifest: m.label(name), Document: 1, Object: "Pod " + full,
					Detail: "a pod of this name or UID is in " + other + " already, which counts; rename one of them"}, false)
				continue
			}
			names[full], uids[string(o.UID)] = m.label(name), m.label(name)
			pods = append(pods, o)
		}
		configMaps = append(configMaps, p.out.ConfigMaps...)
		secrets = append(secrets, p.out.Secrets...)
	}
	m.said, m.whole = wrongs, m.whole || whole
	if m.cfg.Doubt != nil {
		m.cfg.Doubt(m.source, doubt)
	}
	if m.cfg.Objects != nil {
		m.cfg.Objects.Replace(m.source, configMaps, secrets)
	}
	if whole {
		m.cfg.Target.Replace(m.source, pods)
		return
	}
	for _, p := range pods {
		m.cfg.Target.Upsert(m.source, p)
	}
}

// label is what people are told: a URL may hold a password.
func (m *manifests) label(name string) string {
	if m.source == pod.SourceURL {
		return redacted(name)
	}
	return name
}
