package syncloop

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/admit"
	"github.com/wherry-node/wherry/internal/crispec"
	"github.com/wherry-node/wherry/internal/decide"
	"github.com/wherry-node/wherry/internal/volume"
)

// storageEvery is how often volumes with a limit are looked at. How often one is measured is up to who measures.
const storageEvery = 10 * time.Second

// watchStorage ends pods whose emptyDirs have grown beyond their limit, until ctx ends: one timer for the node, and only
// pods with such a limit are measured.
func (l *Loop) watchStorage(ctx context.Context) {
	t := time.NewTicker(storageEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for _, p := range l.admitted("") {
			if ctx.Err() != nil {
				return
			}
			if !limitsVolumes(p) || crispec.IsCritical(p) {
				continue
			}
			usage, err := l.cfg.Storage(ctx, p)
			if err != nil { // the rest was measured
				l.cfg.Log.Debug("volumes not measured", "pod", p.Namespace+"/"+p.Name, "err", err)
			}
			if why := overLimit(p, usage); why != "" {
				l.evict(p, why)
			}
		}
	}
}

// limitsVolumes reports whether the pod has an emptyDir on disk with a limit. One in memory is bounded by its file system.
func limitsVolumes(p *v1.Pod) bool {
	for i := range p.Spec.Volumes {
		if e := p.Spec.Volumes[i].EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 && e.Medium == v1.StorageMediumDefault {
			return true
		}
	}
	return false
}

// overLimit says which volume has more than it may ("sizeLimit is the total amount of local storage required for this
// EmptyDir volume"), in the words of the field; "" when none has.
func overLimit(p *v1.Pod, usage []volume.Usage) string {
	for _, u := range usage {
		for i := range p.Spec.Volumes {
			vol := &p.Spec.Volumes[i]
			if vol.Name != u.Name || vol.EmptyDir == nil || vol.EmptyDir.SizeLimit == nil || u.Memory {
				continue
			}
			if limit := vol.EmptyDir.SizeLimit; limit.Sign() > 0 && u.UsedBytes > uint64(limit.Value()) {
				return fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", vol.Name, limit.String())
			}
		}
	}
	return ""
}

// evict ends a pod at once, and once.
func (l *Loop) evict(p *v1.Pod, message string) {
	l.mu.Lock()
	m := l.workers[p.UID]
	if m == nil || m.ended || m.told {
		l.mu.Unlock()
		return
	}
	m.told = true
	l.mu.Unlock()
	l.cfg.Recorder.Event(p, "", v1.EventTypeWarning, admit.ReasonEvicted, message)
	l.cfg.Meter.Evicted("emptydirfs.limit")
	m.Stop(&decide.Stop{Reason: admit.ReasonEvicted, Message: message, Grace: new(time.Duration), Since: time.Now()})
}
