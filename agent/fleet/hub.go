package fleet

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/wherry-node/wherry/agent"
	"github.com/wherry-node/wherry/internal/base/kubeclient"
	"github.com/wherry-node/wherry/internal/edge/objects"
)

// hub lists and watches objects once for all nodes of a fleet, and passes them on to the agents. It has one lock, which it holds also while
// it passes objects on, so that each follower gets the changes in order.
//
// It keeps every object that it watches, for nodes that begin to follow the object later. The agents keep the same objects in memory,
// so this costs little. Of Services it keeps only the fields that the agents use, and all agents share the whole set.
type hub struct {
	api  *kubeclient.Client
	mine *regexp.Regexp // the names that nodes of the fleet can have

	mu     sync.Mutex
	ctx    context.Context // the context of the hub's watches; nil: the hub does not run yet
	group  sync.WaitGroup
	pods   source                      // each part has the pods of one node, by the node's name
	nodes  source                      // each part has one Node, by its name
	others map[agent.Query]*sharedNeed // services, and single ConfigMaps and Secrets
}

// source is a set of objects that one watch covers, divided into parts, and the followers of each part.
type source struct {
	synced    bool
	parts     map[string]map[types.UID]runtime.Object
	services  *objects.Services // all Services; nil: the source has other objects, which are in parts
	followers map[string][]*follower
}

func newSource() source {
	return source{parts: map[string]map[types.UID]runtime.Object{}, followers: map[string][]*follower{}}
}

// follower is one node that follows a part of a source.
type follower struct {
	to    agent.Follower
	link  *link
	leave func() // removes the follower from the hub; the caller must not hold the lock
	done  bool   // the follower gets no more changes
	left  bool   // leave was called
	old   bool   // the follower missed changes during a partition, so its objects are out of date
}

func newHub(api *kubeclient.Client, mine *regexp.Regexp) *hub {
	return &hub{api: api, mine: mine, pods: newSource(), nodes: newSource(), others: map[agent.Query]*sharedNeed{}}
}

// namesOf returns a regular expression that matches the names that nodes of the groups can have.
func namesOf(groups []Group) (*regexp.Regexp, error) {
	var all []string
	for i := range groups {
		all = append(all, patternOf(groups[i].NodeName))
	}
	return regexp.Compile("^(?:" + strings.Join(all, "|") + ")$")
}

// patternOf returns the regular expression for the names of one group's nodes.
func patternOf(nodeName string) string {
	var b strings.Builder
	last := 0
	for _, at := range placeholder.FindAllStringIndex(nodeName, -1) {
		b.WriteString(regexp.QuoteMeta(nodeName[last:at[0]]) + `[a-zA-Z0-9_.-]*`)
		last = at[1]
	}
	return b.String() + regexp.QuoteMeta(nodeName[last:])
}

// of returns the feed of one node, for agent.Deps.
func (h *hub) of(l *link) agent.Feed { return feedOf{h, l} }

type feedOf struct {
	hub  *hub
	link *link
}

// Follow passes on objects to one agent until ctx ends or f is done. It needs no goroutine.
func (o feedOf) Follow(ctx context.Context, q agent.Query, f agent.Follower) (join func()) {
	h := o.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	from, part, release := h.find(q)
	me := &follower{to: f, link: o.link}
	me.leave = func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if me.done = true; !me.left {
			me.left = true
			from.drop(part, me)
			release()
		}
	}
	from.followers[part] = append(from.followers[part], me)
	if from.synced {
		from.replace(part, me)
	}
	context.AfterFunc(ctx, me.leave)
	return me.leave
}

// find returns the source that has the objects of a query, and the part of the source that the query selects. The caller calls release when
// the follower no longer needs the source. The caller holds the lock during both calls.
func (h *hub) find(q agent.Query) (from *source, part string, release func()) {
	switch q.Resource {
	case "pods":
		return &h.pods, q.Node, func() {}
	case "nodes":
		return &h.nodes, q.Name, func() {}
	}
	need := h.others[q]
	if need == nil {
		need = &sharedNeed{hub: h, query: q, source: newSource()}
		h.others[q] = need
		h.begin(need)
	}
	need.users++
	return &need.source, "", func() {
		if need.users--; need.users == 0 {
			if need.stop != nil {
				need.stop()
			}
			delete(h.others, q)
		}
	}
}

// begin starts the watch of the objects of need, if the hub runs. The caller holds the lock.
func (h *hub) begin(need *sharedNeed) {
	if h.ctx == nil || h.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(h.ctx)
	need.stop = cancel
	h.group.Go(func() { kubeclient.Follow(ctx, need, followRetry) })
}

// run lets the hub follow objects until ctx ends. When run returns, all its watches have ended.
func (h *hub) run(ctx context.Context) {
	h.mu.Lock()
	h.ctx = ctx
	for _, need := range h.others {
		h.begin(need)
	}
	h.mu.Unlock()
	<-ctx.Done()
	h.mu.Lock() // waits for callers of begin that have the lock; later calls of begin start no watch, because ctx has ended
	//lint:ignore SA2001 a barrier, not a critical section
	h.mu.Unlock()
	h.group.Wait()
}

// cut calls Failed of the followers of a node whose partition begins, because their objects may be old from now on.
func (h *hub) cut(l *link) {
	h.each(l, func(_ *source, _ string, f *follower) {
		f.old = true
		f.to.Failed(errPartition)
	})
}

// heal passes the present objects on to the followers of a node whose partition has ended.
func (h *hub) heal(l *link) {
	h.each(l, func(s *source, part string, f *follower) {
		if f.old && s.synced {
			s.replace(part, f)
		}
	})
}

// each calls do for each follower of a node that is not done.
func (h *hub) each(l *link, do func(s *source, part string, f *follower)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	sources := []*source{&h.pods, &h.nodes}
	for _, need := range h.others {
		sources = append(sources, &need.source)
	}
	for _, s := range sources {
		for part, all := range s.followers {
			for _, f := range all {
				if f.link == l && !f.done {
					do(s, part, f)
				}
			}
		}
	}
}

// replace passes all objects of a part on to one follower.
func (s *source) replace(part string, f *follower) {
	if f.done {
		return
	}
	if f.old = f.link.partitioned(); f.old {
		return
	}
	if s.services == nil {
		f.ends(f.to.Replace(slices.Collect(maps.Values(s.parts[part]))))
	} else if to, ok := f.to.(sharer); ok {
		f.ends(to.Share(s.services))
	} else {
		f.ends(f.to.Replace(s.services.Objects()))
	}
}

// sharer is a follower of Services that takes all of them as one value, which others may have, too. Its method Share then replaces
// Replace and Apply.
type sharer interface {
	Share(all *objects.Services) (done bool)
}

// ends ends the following if done is true, the result of a method of agent.Follower: the follower needs no further changes.
func (f *follower) ends(done bool) {
	if done && !f.done {
		f.done = true
		go f.leave() // in another goroutine, because the caller holds the lock and iterates over the followers
	}
}

// drop removes a follower of a part.
func (s *source) drop(part string, f *follower) {
	s.followers[part] = slices.DeleteFunc(s.followers[part], func(g *follower) bool { return g == f })
	if len(s.followers[part]) == 0 {
		delete(s.followers, part)
	}
}

// set replaces all objects of the source, and passes them on to the followers.
func (s *source) set(parts map[string]map[types.UID]runtime.Object) {
	s.parts = parts
	s.setAll()
}

// setServices replaces all Services of the source, and passes them on to the followers.
func (s *source) setServices(all *objects.Services) {
	s.services = all
	s.setAll()
}

// setAll passes all objects on to the followers.
func (s *source) setAll() {
	s.synced = true
	for part, all := range s.followers {
		for _, f := range all {
			s.replace(part, f)
		}
	}
}

// apply stores one change, and passes it on to the followers of the part.
func (s *source) apply(part string, uid types.UID, event watch.EventType, obj runtime.Object) {
	if event == watch.Deleted {
		delete(s.parts[part], uid)
		if len(s.parts[part]) == 0 {
			delete(s.parts, part)
		}
	} else {
		if s.parts[part] == nil {
			s.parts[part] = map[types.UID]runtime.Object{}
		}
		s.parts[part][uid] = obj
	}
	for _, f := range s.followers[part] {
		switch {
		case f.done:
		case f.link.partitioned():
			f.old = true
		case f.old: // the partition has just ended
			s.replace(part, f)
		default:
			f.ends(f.to.Apply(event, obj))
		}
	}
}

// failed calls Failed of all followers, because their objects may be old.
func (s *source) failed(err error) {
	for _, all := range s.followers {
		for _, f := range all {
			if !f.done {
				f.to.Failed(err)
			}
		}
	}
}

// slim removes the fields that no agent needs from an object, and returns the object's identity.
func slim(obj runtime.Object) (m metav1.Object, ok bool) {
	if m, ok = obj.(metav1.Object); ok && m.GetManagedFields() != nil {
		m.SetManagedFields(nil)
	}
	return m, ok
}

// podPart returns the name of a pod's node, if a node of the fleet can have this name.
func (h *hub) podPart(obj runtime.Object) (node string, ok bool) {
	p, ok := obj.(*v1.Pod)
	if !ok || !h.mine.MatchString(p.Spec.NodeName) {
		return "", false
	}
	return p.Spec.NodeName, true
}

// setPods stores the complete list of pods, and setNodes that of Nodes. applyPod and applyNode store one change. All four pass the
// objects on to the followers.
func (h *hub) setPods(items []runtime.Object) {
	parts := map[string]map[types.UID]runtime.Object{}
	for _, item := range items {
		if node, ok := h.podPart(item); ok {
			put(parts, node, item)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pods.set(parts)
}

func (h *hub) applyPod(event watch.EventType, obj runtime.Object) {
	node, ok := h.podPart(obj)
	if m, known := slim(obj); ok && known {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.pods.apply(node, m.GetUID(), event, obj)
	}
}

func (h *hub) setNodes(items []runtime.Object) {
	parts := map[string]map[types.UID]runtime.Object{}
	for _, item := range items {
		if m, ok := item.(metav1.Object); ok {
			put(parts, m.GetName(), item)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodes.set(parts)
}

func (h *hub) applyNode(event watch.EventType, obj runtime.Object) {
	if m, ok := slim(obj); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.nodes.apply(m.GetName(), m.GetUID(), event, obj)
	}
}

// failed calls Failed of all followers of a source.
func (h *hub) failed(s *source, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s.failed(err)
}

// put adds an object to a part.
func put(parts map[string]map[types.UID]runtime.Object, part string, obj runtime.Object) {
	m, ok := slim(obj)
	if !ok {
		return
	}
	if parts[part] == nil {
		parts[part] = map[types.UID]runtime.Object{}
	}
	parts[part][m.GetUID()] = obj
}

// sharedNeed is a set of objects that nodes of the fleet follow through one shared watch: one ConfigMap, one Secret, or all Services.
type sharedNeed struct {
	hub    *hub
	query  agent.Query
	source source
	users  int
	stop   context.CancelFunc // ends the watch of query; nil: the hub does not watch yet
}

var _ kubeclient.Followed = (*sharedNeed)(nil)

func (n *sharedNeed) options(opts metav1.ListOptions) metav1.ListOptions {
	if n.query.Name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, n.query.Name).String()
	}
	return opts
}

// List lists the objects of the query in the API.
func (n *sharedNeed) List(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	switch opts = n.options(opts); n.query.Resource {
	case "configmaps":
		return n.hub.api.ConfigMaps(n.query.Namespace).List(ctx, opts)
	case "secrets":
		return n.hub.api.Secrets(n.query.Namespace).List(ctx, opts)
	}
	opts.Limit = kubeclient.PageSize
	return n.hub.api.Services(n.query.Namespace).List(ctx, opts)
}

// Watch watches the objects of the query in the API.
func (n *sharedNeed) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	switch opts = n.options(opts); n.query.Resource {
	case "configmaps":
		return n.hub.api.ConfigMaps(n.query.Namespace).Watch(ctx, opts)
	case "secrets":
		return n.hub.api.Secrets(n.query.Namespace).Watch(ctx, opts)
	}
	return n.hub.api.Services(n.query.Namespace).Watch(ctx, opts)
}

// Replace stores the complete list of objects, and passes it on to the followers.
func (n *sharedNeed) Replace(items []runtime.Object) bool {
	if n.query.Resource == "services" {
		all := objects.NewServices(items)
		n.hub.mu.Lock()
		defer n.hub.mu.Unlock()
		n.source.setServices(all)
		return false
	}
	parts := map[string]map[types.UID]runtime.Object{}
	for _, item := range items {
		put(parts, "", item)
	}
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	n.source.set(parts)
	return false
}

// Apply stores one change, and passes it on to the followers.
func (n *sharedNeed) Apply(event watch.EventType, obj runtime.Object) bool {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	if svc, ok := obj.(*v1.Service); ok {
		n.source.setServices(n.source.services.After(event, svc))
	} else if m, ok := slim(obj); ok {
		n.source.apply("", m.GetUID(), event, obj)
	}
	return false
}

// Failed passes the failure on to the followers.
func (n *sharedNeed) Failed(err error) { n.hub.failed(&n.source, err) }
