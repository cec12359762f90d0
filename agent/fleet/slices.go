package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// ResourceSlices are devices of a DRA driver (dynamic resource allocation) on each node of a group. The fleet publishes them, so that a scheduler
// can allocate them to claims.
type ResourceSlices struct {
	Driver  string `json:"driver"`
	Devices int    `json:"devices"` // how many; they are named device-0, device-1 and so on
	// Attributes and Capacity are those of each device. An attribute is a text, a number or a boolean.
	Attributes map[string]any               `json:"attributes"`
	Capacity   map[string]resource.Quantity `json:"capacity"`
}

const (
	slicesPath = "/apis/resource.k8s.io/v1/resourceslices"
	// labelSliceNode has the name of the node in each of its slices, labelSliceShape a hash of what they say.
	labelSliceNode  = "wherry.dev/fleet-node"
	labelSliceShape = "wherry.dev/fleet-shape"

	maxDevices       = 1024 // of a driver on a node
	devicesPerSlice  = 128  // the limits of the API
	maxAttributes    = 32
	maxAttributeText = 64

	publishers   = 16               // how many nodes' slices are published at the same time
	publishAgain = 5 * time.Second  // the wait after a failure
	publishTime  = 30 * time.Second // the bound of one try
)

var sliceKinds = []accessKind{{"resource slices", slicesPath, ""}}

// slicePublisher publishes the devices of DRA drivers: for each Node of the fleet that runs here once. The Node owns them, so that the cluster
// deletes both together. Methods may be called concurrently.
type slicePublisher struct {
	f     *Fleet
	ctx   context.Context // set by open
	slots chan struct{}
	group sync.WaitGroup
	none  sync.Once // logs once that the cluster has no resource slices

	mu   sync.Mutex
	done map[string]types.UID // the Nodes whose slices are published, or are being published
}

// newSlicePublisher returns the publisher of a fleet; nil: no group has such devices.
func newSlicePublisher(f *Fleet) *slicePublisher {
	for i := range f.cfg.Groups {
		if len(f.cfg.Groups[i].ResourceSlices) > 0 {
			return &slicePublisher{f: f, slots: make(chan struct{}, publishers), done: map[string]types.UID{}}
		}
	}
	return nil
}

// open lets the publisher work until ctx ends.
func (p *slicePublisher) open(ctx context.Context) {
	if p != nil {
		p.ctx = ctx
	}
}

// wait waits, after the end of the context, until nothing is published any more.
func (p *slicePublisher) wait() {
	if p != nil {
		p.group.Wait()
	}
}

// see is called when a Node of the fleet exists. It does not block.
func (p *slicePublisher) see(n *v1.Node) {
	if p == nil {
		return
	}
	g := p.f.groupHere(n.Name)
	if g == nil || len(g.ResourceSlices) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done[n.Name] == n.UID || p.ctx.Err() != nil {
		return
	}
	p.done[n.Name] = n.UID
	name, uid, old := n.Name, n.UID, n.CreationTimestamp.Time.Before(p.f.startedAt().Truncate(time.Second)) // timestamps of the API have whole seconds
	p.group.Go(func() {
		for wait := time.Duration(0); pause(p.ctx, wait); wait = publishAgain {
			p.slots <- struct{}{}
			err := p.publish(g, name, uid, old)
			<-p.slots
			switch {
			case err == nil:
				return
			case apierrors.IsNotFound(err):
				p.none.Do(func() {
					p.f.cfg.Log.Warn("the cluster has no resource slices (resource.k8s.io/v1): the devices of DRA drivers are not published")
				})
				return
			}
			p.f.cfg.Log.Warn("the devices of DRA drivers of a node are not published; trying again", "node", name, "err", err)
		}
	})
}

// gone is called when a Node no longer exists.
func (p *slicePublisher) gone(name string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.done, name)
}

// publish creates the slices of a node. old: the Node is older than this process, so it may have slices of another template.
func (p *slicePublisher) publish(g *Group, node string, uid types.UID, old bool) error {
	ctx, cancel := context.WithTimeout(p.ctx, publishTime)
	defer cancel()
	shape, bodies, err := p.f.slicesOf(g, node, uid)
	if err != nil {
		return err
	}
	for _, body := range bodies {
		if err := p.f.api.CreateJSON(ctx, slicesPath, body); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	if !old {
		return nil
	}
	return p.f.api.DeleteAll(ctx, slicesPath, metav1.ListOptions{
		LabelSelector: fmt.Sprintf("%s,%s=%s,%s!=%s", p.f.selector(), labelSliceNode, node, labelSliceShape, shape),
	})
}

// startedAt returns when Run began.
func (f *Fleet) startedAt() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.began
}

// groupHere returns the group of a node that runs here, or nil.
func (f *Fleet) groupHere(name string) *Group {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := f.nodes[name]; n != nil && !n.leaves {
		return n.group
	}
	return nil
}

// slicesOf returns the slices of a node as JSON, and a hash of what they say.
func (f *Fleet) slicesOf(g *Group, node string, uid types.UID) (shape string, bodies [][]byte, err error) {
	said, err := json.Marshal(g.ResourceSlices)
	if err != nil {
		return "", nil, err
	}
	h := fnv.New64a()
	_, _ = h.Write(append(said, uid...))
	shape = fmt.Sprintf("%016x", h.Sum64())
	for _, s := range g.ResourceSlices {
		devices := s.devices()
		count := (len(devices) + devicesPerSlice - 1) / devicesPerSlice
		for i := range count {
			body, err := json.Marshal(map[string]any{
				"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
				"metadata": metav1.ObjectMeta{
					Name:            fmt.Sprintf("%s-%s-%s-%d", node, s.Driver, shape, i),
					Labels:          map[string]string{LabelFleet: f.cfg.Name, labelSliceNode: node, labelSliceShape: shape},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: uid}},
				},
				"spec": map[string]any{
					"driver": s.Driver, "nodeName": node, "devices": devices[i*devicesPerSlice : min(len(devices), (i+1)*devicesPerSlice)],
					"pool": map[string]any{"name": node, "generation": f.startedAt().Unix(), "resourceSliceCount": count},
				},
			})
			if err != nil {
				return "", nil, err
			}
			bodies = append(bodies, body)
		}
	}
	return shape, bodies, nil
}

// devices returns the devices in the form of the API.
func (s *ResourceSlices) devices() (out []map[string]any) {
	attributes, capacity := map[string]any{}, map[string]any{}
	for name, value := range s.Attributes {
		kind, value := attribute(value)
		attributes[name] = map[string]any{kind: value}
	}
	for name, q := range s.Capacity {
		capacity[name] = map[string]any{"value": q}
	}
	for i := range s.Devices {
		out = append(out, map[string]any{"name": fmt.Sprintf("device-%d", i), "attributes": attributes, "capacity": capacity})
	}
	return out
}

// attribute returns the name of the API's field for a value of an attribute, and the value; "": there is no such field.
func attribute(value any) (kind string, as any) {
	switch v := value.(type) {
	case string:
		return "string", v
	case bool:
		return "bool", v
	case float64:
		if n := int64(v); float64(n) == v {
			return "int", n
		}
	case int64:
		return "int", v
	case int:
		return "int", v
	}
	return "", nil
}

// checkSlices calls bad for each field of the group's resource slices that is not valid.
func (g *Group) checkSlices(bad func(field, format string, args ...any)) {
	seen := map[string]bool{}
	for i, s := range g.ResourceSlices {
		at := fmt.Sprintf("resourceSlices[%d]", i)
		checkDriverName(at+".driver", s.Driver, "gpu.example.com", bad)
		if seen[s.Driver] {
			bad(at+".driver", "another element has the driver %q", s.Driver)
		}
		seen[s.Driver] = true
		if s.Devices < 1 || s.Devices > maxDevices {
			bad(at+".devices", "%d: use 1 to %d", s.Devices, maxDevices)
		}
		if len(s.Attributes)+len(s.Capacity) > maxAttributes {
			bad(at+".attributes", "a device has at most %d attributes and capacities", maxAttributes)
		}
		for name, value := range s.Attributes {
			kind, v := attribute(value)
			text, _ := v.(string)
			switch {
			case !isAttribute(name):
				bad(at+".attributes["+name+"]", "use a name such as model or example.com/model, of letters, digits and underscores")
			case kind == "":
				bad(at+".attributes["+name+"]", "use a text, a whole number or a boolean")
			case len(text) > maxAttributeText:
				bad(at+".attributes["+name+"]", "the text has more than %d characters", maxAttributeText)
			}
		}
		for name, q := range s.Capacity {
			if !isAttribute(name) {
				bad(at+".capacity["+name+"]", "use a name such as memory or example.com/memory, of letters, digits and underscores")
			}
			if q.Sign() < 0 {
				bad(at+".capacity["+name+"]", "%s: must not be negative", q.String())
			}
		}
	}
}

// isAttribute reports whether a name can be that of an attribute: a C identifier of at most 32 characters, maybe after a domain.
func isAttribute(name string) bool {
	domain, id, has := strings.Cut(name, "/")
	if !has {
		domain, id = "", name
	}
	return (!has || len(domain) <= maxDriverName && len(validation.IsDNS1123Subdomain(domain)) == 0) && len(id) <= 32 && len(validation.IsCIdentifier(cmp.Or(id, "-"))) == 0
}
