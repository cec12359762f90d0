package push

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/wherry-node/wherry/internal/core/manifest"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// AnnotationStopped marks a pushed pod that was stopped but not removed: its containers stay for their logs.
const AnnotationStopped = pod.AnnotationStopped

// Objects receives the complete ConfigMaps and Secrets of a source with each call.
type Objects interface {
	Replace(src pod.Source, configMaps []*v1.ConfigMap, secrets []*v1.Secret)
}

// Target receives the pods. There is one call at a time.
type Target interface {
	// Replace sets the complete state of the source.
	Replace(src pod.Source, pods []*v1.Pod)
	Upsert(src pod.Source, p *v1.Pod)
	Delete(src pod.Source, p *v1.Pod)
}

// Config configures a Source.
type Config struct {
	// Dir is the directory in which pushed objects are stored for the next agent; "": they are not stored.
	Dir string
	// NodeName is the node's name. If Suffix is set, the names of pushed pods end with the node's name, like the names of other static
	// pods. So pods of several nodes have different names in the API.
	NodeName string
	Suffix   bool
	Target   Target
	Objects  Objects
	// Missing, if set, lists the objects that a pod refers to and that no manifest of this node has: a pod with missing
	// objects is refused.
	Missing func(p *v1.Pod) []string
	// Others returns another source that wants a pod of this name, or pod.SourceNone. Push calls it without holding a
	// lock that Target takes.
	Others func(namespace, name string) pod.Source
	Log    *slog.Logger
}

// Source is the source of the pods that clients push over HTTP, with the ConfigMaps and Secrets to which the pods refer.
//
//	            POST (edited)
//	           ┌────────────┐ a new pod; the old one ends before it begins
//	POST ──► wanted ────────┘
//	           │ │ DELETE
//	      stop │ └───────► leaving ──(nothing of it runs)──► gone
//	           ▼              ▲
//	        stopped ──────────┘ DELETE
//	           └─ POST: a new pod
//
// The kept object shows the state: leaving and stopped pods have a deletion timestamp, and stopped ones also have
// AnnotationStopped. Source writes each change to disk before it acts on it, so that the next agent continues after an agent was
// killed.
type Source struct {
	cfg   Config
	store store

	loaded chan struct{} // closed once the directory has been read
	wake   chan struct{}

	mu      sync.Mutex // held during one request, also while it calls Target and Objects
	records map[string]*record

	endedMu sync.Mutex
	ended   map[types.UID]bool // pods with a deletion timestamp of which nothing runs
}

// record is one pushed object, as it is kept on disk.
type record struct {
	Pod       *v1.Pod       `json:"pod,omitempty"`
	ConfigMap *v1.ConfigMap `json:"configMap,omitempty"`
	Secret    *v1.Secret    `json:"secret,omitempty"`
	// With has the names of the pods that were in the same push as this ConfigMap or Secret. The object is removed with the last of
	// these pods. For an object that was pushed without pods, With is empty, and the object stays until a client deletes it.
	With []string `json:"with,omitempty"`
}

// The kinds of pushed objects, as answers name them.
const (
	kindPod       = "Pod"
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
)

func (r *record) kind() string {
	switch {
	case r.Pod != nil:
		return kindPod
	case r.ConfigMap != nil:
		return kindConfigMap
	}
	return kindSecret
}

func (r *record) meta() *metav1.ObjectMeta {
	switch {
	case r.Pod != nil:
		return &r.Pod.ObjectMeta
	case r.ConfigMap != nil:
		return &r.ConfigMap.ObjectMeta
	case r.Secret != nil:
		return &r.Secret.ObjectMeta
	}
	return nil
}

func recordKey(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

func (r *record) key() string {
	m := r.meta()
	return recordKey(r.kind(), m.Namespace, m.Name)
}

// New returns a Source. It refuses requests until Run has read the stored objects of earlier pushes.
func New(cfg Config) *Source {
	return &Source{
		cfg: cfg, store: store{dir: cfg.Dir}, loaded: make(chan struct{}), wake: make(chan struct{}, 1),
		records: map[string]*record{}, ended: map[types.UID]bool{},
	}
}

// loadAgain is the wait before a directory that could not be read is read again.
const loadAgain = 5 * time.Second

// Run reads the objects that were pushed to earlier agents. Then, until ctx ends, it removes pods that were deleted and have ended.
// A directory that cannot be read does not count as empty: the source gives no answer until it can read it.
func (p *Source) Run(ctx context.Context) error {
	for {
		records, err := p.store.load(p.cfg.Log)
		if err == nil {
			p.begin(records)
			break
		}
		p.cfg.Log.Error("cannot read the pushed pods, will try again; until then no unwanted pod is stopped", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(loadAgain):
		}
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
			p.takeOut()
		}
	}
}

func (p *Source) begin(records []*record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pods []*v1.Pod
	for _, r := range records {
		p.records[r.key()] = r
		if r.Pod != nil {
			pods = append(pods, r.Pod)
		}
	}
	p.tellObjects() // send the ConfigMaps and Secrets before the pods that refer to them
	p.cfg.Target.Replace(pod.SourcePush, pods)
	close(p.loaded)
}

// Ended records that nothing of a pod with a deletion timestamp runs any more. It does not block and may be repeated.
func (p *Source) Ended(uid types.UID) {
	p.endedMu.Lock()
	known := p.ended[uid]
	p.ended[uid] = true
	p.endedMu.Unlock()
	if known {
		return
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Source) hasEnded(uid types.UID) bool {
	p.endedMu.Lock()
	defer p.endedMu.Unlock()
	return p.ended[uid]
}

func (p *Source) forget(uid types.UID) {
	p.endedMu.Lock()
	defer p.endedMu.Unlock()
	delete(p.ended, uid)
}

// takeOut removes the pods that were being removed and have ended. It also calls forgetOthers, because a worker's turn that began
// before its pod was removed may report the end of that pod once more.
func (p *Source) takeOut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.forgetOthers()
	for _, r := range p.sorted(kindPod) {
		if leaving(r.Pod) && p.hasEnded(r.Pod.UID) {
			if err := p.drop(r); err != nil {
				p.cfg.Log.Error("cannot remove the file of a pushed pod that has ended; the pod stays", "pod", pod.RefOf(r.Pod), "err", err)
			}
		}
	}
}

// forgetOthers forgets the ends of pods that the source does not have. The lock is held.
func (p *Source) forgetOthers() {
	here := make(map[types.UID]bool, len(p.records))
	for _, r := range p.records {
		if r.Pod != nil {
			here[r.Pod.UID] = true
		}
	}
	p.endedMu.Lock()
	defer p.endedMu.Unlock()
	maps.DeleteFunc(p.ended, func(uid types.UID, _ bool) bool { return !here[uid] })
}

// leaving reports whether a pod is being removed, and not only stopped.
func leaving(p *v1.Pod) bool {
	return p.DeletionTimestamp != nil && p.Annotations[AnnotationStopped] == ""
}

// sorted lists the records of a kind by name. The lock is held, as in all functions below.
func (p *Source) sorted(kind string) []*record {
	var out []*record
	for _, r := range p.records {
		if r.kind() == kind {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *record) int { return cmp.Compare(a.key(), b.key()) })
	return out
}

// drop removes a pod, and the ConfigMaps and Secrets that were pushed with this pod and with no other pod.
func (p *Source) drop(r *record) error {
	if err := p.store.remove(r); err != nil {
		return err
	}
	delete(p.records, r.key())
	p.forget(r.Pod.UID)
	p.cfg.Target.Delete(pod.SourcePush, r.Pod)
	changed := false
	for _, o := range slices.Concat(p.sorted(kindConfigMap), p.sorted(kindSecret)) {
		if o.meta().Namespace != r.Pod.Namespace || !slices.Contains(o.With, r.Pod.Name) {
			continue
		}
		less := *o
		less.With = slices.DeleteFunc(slices.Clone(o.With), func(name string) bool { return name == r.Pod.Name })
		if len(less.With) > 0 {
			if err := p.store.save(&less); err != nil {
				p.cfg.Log.Error("pushed object not updated", "object", o.key(), "err", err)
			}
			p.records[o.key()] = &less
			continue
		}
		if err := p.store.remove(o); err != nil {
			p.cfg.Log.Error("pushed object not removed", "object", o.key(), "err", err)
			continue
		}
		delete(p.records, o.key())
		changed = true
	}
	if changed {
		p.tellObjects()
	}
	return nil
}

func (p *Source) tellObjects() {
	if p.cfg.Objects == nil {
		return
	}
	var configMaps []*v1.ConfigMap
	var secrets []*v1.Secret
	for _, r := range p.records {
		switch {
		case r.ConfigMap != nil:
			configMaps = append(configMaps, r.ConfigMap)
		case r.Secret != nil:
			secrets = append(secrets, r.Secret)
		}
	}
	p.cfg.Objects.Replace(pod.SourcePush, configMaps, secrets)
}

// The results of a push for one object.
const (
	Created    = "created"
	Configured = "configured" // the pushed manifest differs from the stored one
	Unchanged  = "unchanged"
	Restarted  = "restarted" // the pushed manifest equals the stored one, and its pod had ended or been stopped
)

// Pushed is the result for one object of a request.
type Pushed struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid,omitempty"`
	Result    string    `json:"result"`
}

// errOther is the error for a pushed pod if another source has a pod of the same name.
type errOther struct{ text string }

func (e errOther) Error() string { return e.text }

// errMissing is the error for a pod that refers to objects that no manifest has.
type errMissing struct{ text string }

func (e errMissing) Error() string { return e.text }

// put stores the objects of a manifest, ConfigMaps and Secrets before pods, and returns the result of each. If it refuses a pod, or cannot
// store the first one, it stores nothing. If it cannot store another one, it returns the error together with the results of what it has
// stored before.
func (p *Source) put(m *manifest.Manifest, finished func(types.UID) bool) ([]Pushed, error) {
	now := time.Now()
	pods := make([]*v1.Pod, len(m.Pods))
	for i, d := range m.Pods {
		pods[i] = p.own(d.DeepCopy(), now)
		if src := p.other(pods[i].Namespace, pods[i].Name); src != pod.SourceNone {
			return nil, errOther{fmt.Sprintf("pod %s/%s already comes from another source (%s): choose another name, or remove it there", pods[i].Namespace, pods[i].Name, src)}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	before := maps.Clone(p.records)
	out, err := p.putObjects(m, pods)
	objects := len(out)
	results := make([]string, len(pods))
	for i := 0; i < len(pods) && err == nil; i++ {
		results[i], err = p.decide(pods[i], finished)
	}
	for i := 0; i < len(pods) && err == nil; i++ {
		var one Pushed
		if one, err = p.putPod(pods[i], results[i]); err == nil {
			out = append(out, one)
		}
	}
	if err != nil && len(out) == objects {
		p.restore(before)
		out = nil
	}
	return out, err
}

func (p *Source) other(namespace, name string) pod.Source {
	if p.cfg.Others == nil {
		return pod.SourceNone
	}
	return p.cfg.Others(namespace, name)
}

// own turns a decoded manifest into a pod of this node. Each push of a changed or ended pod makes a new pod. So the UID is random and
// stored, not computed from the manifest.
func (p *Source) own(d *v1.Pod, now time.Time) *v1.Pod {
	name := d.Name
	d.UID = uuid.NewUUID()
	d = manifest.Origin{Source: pod.SourcePush, NodeName: p.cfg.NodeName, Seen: now}.Static(d)
	if !p.cfg.Suffix {
		d.Name = name
	}
	d.CreationTimestamp = metav1.NewTime(now.Truncate(time.Second))
	d.DeletionTimestamp, d.DeletionGracePeriodSeconds = nil, nil
	delete(d.Annotations, AnnotationStopped)
	return d
}

func (p *Source) putObjects(m *manifest.Manifest, pods []*v1.Pod) ([]Pushed, error) {
	var records []*record
	for _, c := range m.ConfigMaps {
		records = append(records, &record{ConfigMap: c})
	}
	for _, s := range m.Secrets {
		records = append(records, &record{Secret: s})
	}
	if len(records) == 0 {
		return nil, nil
	}
	var out []Pushed
	defer p.tellObjects()
	for _, r := range records {
		for _, n := range pods {
			if n.Namespace == r.meta().Namespace {
				r.With = append(r.With, n.Name)
			}
		}
		old := p.records[r.key()]
		result := Created
		if old != nil {
			result = Configured
			if sameObject(old, r) {
				result = Unchanged
			}
			if len(old.With) == 0 || len(r.With) == 0 {
				r.With = nil // the object was pushed without pods, now or before, so it stays until a client deletes it
			} else {
				r.With = append(r.With, old.With...)
			}
		}
		slices.Sort(r.With)
		r.With = slices.Compact(r.With)
		if result != Unchanged || !slices.Equal(old.With, r.With) {
			if err := p.store.save(r); err != nil {
				return out, err
			}
			p.records[r.key()] = r
		}
		out = append(out, Pushed{Kind: r.kind(), Namespace: r.meta().Namespace, Name: r.meta().Name, Result: result})
	}
	return out, nil
}

func sameObject(a, b *record) bool {
	x, y := *a, *b
	x.With, y.With = nil, nil
	return string(encodeRecord(&x)) == string(encodeRecord(&y))
}

// decide returns the result that a push has for a pod, or the reason why the pod is refused.
func (p *Source) decide(n *v1.Pod, finished func(types.UID) bool) (result string, err error) {
	result = Created
	if old := p.records[recordKey(kindPod, n.Namespace, n.Name)]; old != nil {
		same := old.Pod.Annotations[pod.AnnotationHash] == n.Annotations[pod.AnnotationHash]
		switch {
		case !same:
			result = Configured
		case old.Pod.DeletionTimestamp != nil || finished(old.Pod.UID):
			result = Restarted
		default:
			return Unchanged, nil
		}
	}
	if p.cfg.Missing != nil {
		if missing := p.cfg.Missing(n); len(missing) > 0 {
			return "", errMissing{fmt.Sprintf("pod %s/%s: %s", n.Namespace, n.Name, manifest.Unresolved(missing))}
		}
	}
	return result, nil
}

// putPod stores a pod, unless it is unchanged.
func (p *Source) putPod(n *v1.Pod, result string) (Pushed, error) {
	r := &record{Pod: n}
	old := p.records[r.key()]
	if result == Unchanged {
		return Pushed{kindPod, n.Namespace, n.Name, old.Pod.UID, Unchanged}, nil
	}
	if err := p.store.save(r); err != nil {
		return Pushed{}, err
	}
	p.records[r.key()] = r
	if old != nil {
		p.forget(old.Pod.UID)
		p.cfg.Target.Delete(pod.SourcePush, old.Pod)
	}
	p.cfg.Target.Upsert(pod.SourcePush, n)
	return Pushed{kindPod, n.Namespace, n.Name, n.UID, result}, nil
}
