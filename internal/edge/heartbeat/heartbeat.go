package heartbeat

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/nodestatus"
)

// Heartbeat keeps the heartbeats of one node. Now and Node may be called from any goroutine; call Run once.
type Heartbeat struct {
	cfg     Config
	rounds  *rounds.Rounds
	node    atomic.Pointer[v1.Node] // the API's newest answer
	seen    chan struct{}           // closed when the API has answered with the Node for the first time
	renewed atomic.Int64            // when this Heartbeat last renewed the lease, in Unix nanoseconds; 0: never
	// asked is when the newest successful read of the Node from etcd began. It does not include reads from a cache, and updates by the
	// watch.
	asked atomic.Pointer[time.Time]
	// fresh makes the next round read the Node from etcd.
	fresh atomic.Bool

	// created says that this Heartbeat created the Node, so the Node probably has no lease.
	created atomic.Bool
	// gone says that the API server has no Node any more: somebody has deleted it. The stored Node stays, for the pods of the node.
	gone atomic.Bool

	// woken is set by Now, so that the next turn does a round although none is due.
	woken atomic.Bool

	// Only the status loop uses the fields below.
	registered    bool
	justRead      bool      // the stored Node is from the registration a moment ago, so the first round need not read it
	next          time.Time // when the next round is due
	starting      starting
	kept          time.Time // when the API's newest answer was stored
	lastReport    time.Time
	reportDelay   time.Duration
	settled       *v1.Node // the Node of the last call of Source.Update, if the result made no difference to it; otherwise nil
	cidrs         []string // the last CIDRs that PodCIDR accepted
	cidrsKnown    bool
	unschedulable bool
	said          sayer
}

// New checks the configuration. It does no IO and starts nothing.
func New(cfg Config) (*Heartbeat, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	h := &Heartbeat{cfg: cfg, seen: make(chan struct{})}
	h.rounds = rounds.New(h.turn)
	h.said.log = cfg.Log
	return h, nil
}

// Now makes the heartbeat compute the status at once. It never blocks.
func (h *Heartbeat) Now() {
	h.woken.Store(true)
	h.rounds.Wake()
}

// Node returns the API's newest answer; nil before the first. The caller must not change it.
func (h *Heartbeat) Node() *v1.Node { return h.node.Load() }

// Renewed returns when the lease was last renewed; the zero time if it was not, or if Config.Leases renews it.
func (h *Heartbeat) Renewed() time.Time {
	if at := h.renewed.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// NodeSince reports whether Node is at least as new as t: at t or later the heartbeat has begun to read the Node from etcd, not from a
// cache or the watch, and has got it. If not, NodeSince makes the heartbeat read it now and returns false; a moment later NodeSince
// returns true. It never blocks.
func (h *Heartbeat) NodeSince(t time.Time) bool {
	if asked := h.asked.Load(); asked != nil && !asked.Before(t) {
		return true
	}
	h.fresh.Store(true)
	h.Now()
	return false
}

// Begin begins to register the node and to keep its heartbeats, until ctx ends. It returns at once; join waits for the end.
func (h *Heartbeat) Begin(ctx context.Context) (join func()) {
	h.event(v1.EventTypeNormal, nodestatus.EventStarting, "Starting kubelet.")
	var renewing sync.WaitGroup
	end := renewing.Wait
	if h.cfg.Leases != nil {
		end = h.cfg.Leases.Keep(h.cfg.NodeName, h.uid)
	} else {
		renewing.Go(func() { h.renewLease(ctx) })
	}
	status := h.rounds.Begin(ctx)
	return func() {
		status()
		end()
	}
}

// Run does the same as Begin, but blocks until ctx has ended and all work has stopped. It returns nil.
func (h *Heartbeat) Run(ctx context.Context) error { return rounds.Until(ctx, h.Begin) }

func (h *Heartbeat) uid() types.UID {
	if n := h.Node(); n != nil {
		return n.UID
	}
	return ""
}

// turn is called again and again. It first registers the node. After that, it computes and sends the status (a round) once per
// StatusFrequency and after a call of Now; while the node starts, it computes the status in between without reading the Node from the API.
// It returns the time until its next call.
func (h *Heartbeat) turn(ctx context.Context) time.Duration {
	if !h.registered {
		if h.cfg.Register && !h.register(ctx) {
			return rounds.Never // ctx has ended
		}
		h.registered, h.justRead = true, h.cfg.Register
	}
	woken := h.woken.Swap(false)
	switch {
	case !time.Now().Before(h.next):
		h.round(ctx)
		h.next = time.Now().Add(h.cfg.StatusFrequency)
	case woken:
		h.round(ctx)
	case h.starting.lasts(h.Node()):
		h.fastLook(ctx)
	}
	wait := time.Until(h.next)
	if h.starting.lasts(h.Node()) {
		wait = min(wait, fastInterval)
	}
	return max(wait, 0)
}

// starting is the time from when the Node is first known until it is Ready, or until the API server has refused its readiness, at most two minutes.
// Each Heartbeat has this time once.
type starting struct {
	until time.Time
	over  bool
}

func (s *starting) lasts(node *v1.Node) bool {
	if s.over || node == nil {
		return false
	}
	now := time.Now()
	if s.until.IsZero() {
		s.until = now.Add(fastFor)
	}
	s.over = nodestatus.Ready(node) || !now.Before(s.until)
	return !s.over
}

// fastLook computes the status without asking the API, and sends it only if the node has just become ready.
func (h *Heartbeat) fastLook(ctx context.Context) {
	base := h.Node()
	h.settled = nil
	res := h.cfg.Source.Update(ctx, base, false)
	if ctx.Err() != nil || !nodestatus.Ready(res.Node) {
		return
	}
	if err := h.send(ctx, base, res); err != nil {
		h.starting.over = true // otherwise an API server that refuses the status would get it every 100 ms
		h.round(ctx)           // the stored Node was probably out of date
	}
}

// newerFor is how long a stored Node may be newer than the one of a cache. No cache is late for so long.
const newerFor = time.Minute

// known stores a Node from the API unless the stored one is newer. It returns the newer of the two. If the cache stays older, the next round reads
// etcd: somebody may have restored the cluster from a backup.
func (h *Heartbeat) known(node *v1.Node) *v1.Node {
	have := h.node.Load()
	if have != nil { // compare resource versions: they grow even if the Node is deleted and created again
		if order, err := resourceversion.CompareResourceVersion(node.ResourceVersion, have.ResourceVersion); err == nil && order < 0 {
			if time.Since(h.kept) > newerFor {
				h.fresh.Store(true)
			}
			return have
		}
	}
	h.keep(node)
	return node
}

// keep stores the Node. Only the status loop calls it.
func (h *Heartbeat) keep(node *v1.Node) {
	if node.ManagedFields != nil {
		node.ManagedFields = nil // nobody in the agent uses the managed fields, and they are a third of the Node's bytes
	}
	h.gone.Store(false)
	h.kept = time.Now()
	if h.node.Swap(node) == nil {
		close(h.seen)
	}
	if nodestatus.Ready(node) {
		h.cfg.reached(StageReady)
	}
}

func (h *Heartbeat) event(eventType, reason, message string) {
	if h.cfg.Recorder != nil {
		h.cfg.Recorder.NodeEvent(eventType, reason, message)
	}
}

// record records the events of changes that are now in the API.
func (h *Heartbeat) record(events []nodestatus.Event) {
	for _, e := range events {
		h.event(e.Type, e.Reason, e.Message)
	}
}

// notice handles fields of the Node that other components set: whether pods may be scheduled, and the pod CIDRs. It
// reports whether the CIDRs changed.
func (h *Heartbeat) notice(ctx context.Context, node *v1.Node) (cidrChanged bool) {
	if node.Spec.Unschedulable != h.unschedulable {
		h.unschedulable = node.Spec.Unschedulable
		reason := nodestatus.EventSchedulable
		if h.unschedulable {
			reason = nodestatus.EventNotSchedulable
		}
		h.event(v1.EventTypeNormal, reason, "Node "+h.cfg.NodeName+" status is now: "+reason)
	}
	cidrs := node.Spec.PodCIDRs
	if h.cfg.PodCIDR == nil || len(cidrs) == 0 || (h.cidrsKnown && slices.Equal(cidrs, h.cidrs)) {
		return false
	}
	if err := h.cfg.PodCIDR(ctx, slices.Clone(cidrs)); err != nil {
		h.said.warn("hand pod CIDR on: "+err.Error(), "cidrs", cidrs)
		return false
	}
	h.cidrs, h.cidrsKnown = slices.Clone(cidrs), true
	h.cfg.Log.Info("passed the pod CIDRs on", "cidrs", cidrs)
	return true
}
