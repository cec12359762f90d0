package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wherry-node/wherry/internal/edge/lastknown"
	"github.com/wherry-node/wherry/internal/edge/objects"
	"github.com/wherry-node/wherry/internal/node/offline"
)

// OfflineStart lets a node whose API server does not answer start from a record of what the API server last said.
type OfflineStart struct {
	// Enabled makes the agent keep the record, and start from it if the API server does not answer. The other fields have defaults.
	Enabled bool
	// Dir is the directory of the record; "": "offline" below RootDir.
	Dir string
	// KeyFile has the key with which the record is encrypted: 16 to 4096 bytes, for its owner only. "": the agent makes
	// offline-start.key in CertDir, beside the private key of the node.
	KeyFile string
	// After is how long the API server may take to answer before the node starts from the record; 0: 5 s.
	After time.Duration
	// MaxAge is how old the API server's last answer may be; 0: 7 days. MaxBytes bounds the size of the record; 0: 64 MiB.
	MaxAge   time.Duration
	MaxBytes int64
}

func (o *OfflineStart) setDefaults(c *Config) {
	if o.Dir == "" {
		o.Dir = filepath.Join(c.RootDir, "offline")
	}
	if o.After == 0 {
		o.After = 5 * time.Second
	}
	if o.MaxAge == 0 {
		o.MaxAge = 7 * 24 * time.Hour
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
}

// offlineStart keeps the record of the objects that the API server sent, and starts the node from it. Its methods do nothing if keeper is
// nil.
type offlineStart struct {
	keeper  *offline.Keeper // nil: the node does not start without its API server
	objects *objects.Objects
	cidrs   chan []string // receives the recorded pod CIDRs once the node has started from the record
	merged  atomic.Pointer[mergedNode]
}

// mergedNode caches a result of the method node: the recorded Node, with the addresses of the measured Node.
type mergedNode struct{ measured, node *v1.Node }

// buildOffline makes the keeper of the record, if the configuration asks for it and there is an API server.
func (a *Agent) buildOffline(api *objects.Objects) {
	o := a.cfg.OfflineStart
	if !o.Enabled {
		return
	}
	if a.deps.Client == nil {
		a.log.Warn("OfflineStart (offlineStart.enabled) has no effect: this node has no API server")
		return
	}
	key, own := o.KeyFile, o.KeyFile == ""
	if own {
		key = filepath.Join(a.cfg.CertDir, "offline-start.key")
	}
	a.offline.objects, a.offline.cidrs = api, make(chan []string, 1)
	a.offline.keeper = offline.New(offline.Config{
		NodeName: a.cfg.NodeName, Pods: a.pods, Objects: api, After: o.After, Node: a.apiNode, Log: a.log,
		Recalled: func(node *v1.Node) {
			if node != nil && len(node.Spec.PodCIDRs) > 0 {
				a.offline.cidrs <- node.Spec.PodCIDRs
			}
		},
		Store: lastknown.New(lastknown.Config{
			Dir: o.Dir, KeyFile: key, MakeKey: own, Node: a.cfg.NodeName, Cluster: clusterOf(a.deps.Client), MaxBytes: o.MaxBytes, MaxAge: o.MaxAge,
		}),
	})
}

// clusterOf identifies the cluster of an API server: by its certificate authority, or by its address if there is none.
func clusterOf(c *rest.Config) string {
	ca := c.CAData
	if len(ca) == 0 && c.CAFile != "" {
		ca = readFile(c.CAFile)
	}
	if len(ca) == 0 {
		return c.Host
	}
	sum := sha256.Sum256(ca)
	return hex.EncodeToString(sum[:])
}

// apiNode returns the newest Node that the API server has sent, or nil if there is none yet.
func (a *Agent) apiNode() *v1.Node {
	if n := a.own.Last(); n != nil { // the watch gets a change of the Node earlier than the heartbeat does
		return n
	}
	return a.heartbeat.Node()
}

// changed tells the keeper of the record for offline starts that the agent has received new data from the API server, so that the keeper
// updates the record.
func (o *offlineStart) changed() {
	if o.keeper != nil {
		o.keeper.Changed()
	}
}

// contact returns the function that the agent calls after each request for the node's pods. Its argument is nil if the API server
// answered, otherwise the error. contact returns nil if the node keeps no record.
func (o *offlineStart) contact() func(error) {
	if o.keeper == nil {
		return nil
	}
	return o.keeper.Contact
}

// refused notes whether the API server answers a node that has no identity yet, and does not accept it; nil: it does not answer.
func (o *offlineStart) refused(err error) {
	if o.keeper != nil {
		o.keeper.Refused(err)
	}
}

// node returns the Node of the record, with the addresses of the measured Node; nil: the node has not started from a record. measured
// may be nil.
func (o *offlineStart) node(measured *v1.Node) *v1.Node {
	if o.keeper == nil {
		return nil
	}
	kept := o.keeper.Node()
	if kept == nil || measured == nil || len(measured.Status.Addresses) == 0 {
		return kept
	}
	if m := o.merged.Load(); m != nil && m.measured == measured {
		return m.node
	}
	n := *kept
	n.Status.Addresses = slices.Clone(measured.Status.Addresses)
	o.merged.Store(&mergedNode{measured, &n})
	return &n
}

// offlineParts returns the parts of the agent that start the node from the record on disk; none if the node keeps no record.
func (a *Agent) offlineParts() []part {
	if a.offline.keeper == nil {
		return nil
	}
	return []part{{name: "offline start", run: a.offline.keeper.Run}, {name: "pod CIDR of the record", run: a.recordedPodCIDR}}
}

// recordedPodCIDR sends the pod CIDRs of the record to the runtime, if the node starts from the record.
func (a *Agent) recordedPodCIDR(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case cidrs := <-a.offline.cidrs:
		return a.sendPodCIDR(ctx, cidrs, func() bool { return a.heartbeat.Node() != nil })
	}
}

// lastKnown is the answer of /lastknown: whether the pods of the API come from a record.
type lastKnown struct {
	// Since is when the API server last answered, if the pods come from the record.
	Since *time.Time `json:"since,omitempty"`
	// Problem says why the node has not started from the record, or why the record is not up to date.
	Problem string `json:"problem,omitempty"`
}

func (o *offlineStart) status() (out lastKnown) {
	if o.keeper == nil {
		return out
	}
	s := o.keeper.Status()
	if !s.Since.IsZero() {
		out.Since = &s.Since
	}
	out.Problem = s.Problem
	return out
}

func (a *Agent) serveLastKnown(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, a.offline.status())
}

// outdated says which data of a pod may be old because the node started from the record. since is when the API server last answered.
// expired describes the pod's service account tokens that have expired. Both are nil if the node did not start from the record.
func (o *offlineStart) outdated(uid types.UID) (since *time.Time, expired []string) {
	if since = o.status().Since; since == nil {
		return nil, nil
	}
	for _, t := range o.objects.Expired(uid) {
		expired = append(expired, fmt.Sprintf("the token of the service account %s expired at %s; it is renewed when the API server answers", t.ServiceAccount, t.Expires.Local().Format(time.RFC3339)))
	}
	return since, expired
}

// tokenExpired records that a pod uses a token that has expired.
func (a *Agent) tokenExpired(p *v1.Pod, serviceAccount string, expired time.Time) {
	a.events.Event(p, "", v1.EventTypeWarning, reasonTokenExpired, fmt.Sprintf("The token of the service account %s expired at %s, and the API server, which would renew it, does not answer", serviceAccount, expired.UTC().Format(time.RFC3339)))
}
