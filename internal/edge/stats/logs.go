package stats

import (
	"context"
	"errors"
	"hash/maphash"
	"io/fs"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/crispec"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// ContainerLogs is how many bytes on disk the logs of a container used when they were last measured.
type ContainerLogs struct {
	Pod       pod.Ref
	Container string
	Bytes     uint64
}

const (
	// maxLogsAge is the age at which a measurement is no longer shown. Pods with a limit of storage are measured every 10 seconds, and who asks
	// for /stats/summary usually does so at least once a minute.
	maxLogsAge = 10 * time.Minute
	// oldLogs is the age at which a scrape lets the logs be measured again, for the next scrape, and the least time between two such measurements.
	oldLogs = time.Minute
	// minLogSizes is the number of measurements up to which those of containers that are gone are kept.
	minLogSizes = 64
)

// logSizes keeps the last measurement of each container's logs, so that a scrape of /metrics reads no disk. An entry needs about 40 bytes,
// because its key is a hash, not the text of the pod's UID and the container's name. An entry of a container that is gone is never shown. It is
// dropped before the number of entries is twice the number of the node's containers.
type logSizes struct {
	seed  maphash.Seed
	began time.Time // the times of the entries count from here

	mu   sync.Mutex
	last map[uint64]logSize // by the hash of logKey; nil: nothing was measured
	most int                // number of entries at which add drops those of containers that are gone

	wanted chan struct{} // gets a value when old measurements should be repeated; nil: nobody does that
	next   time.Duration // until then it gets no other one
}

// logSize is a measurement of the logs of one container, of all its attempts.
type logSize struct {
	bytes uint64
	at    time.Duration
}

// logKey names a container.
type logKey struct {
	uid       types.UID
	container string
}

func newLogSizes(now time.Time) logSizes {
	return logSizes{seed: maphash.MakeSeed(), began: now, most: minLogSizes}
}

func (l *logSizes) key(uid types.UID, container string) uint64 {
	return maphash.Comparable(l.seed, logKey{uid, container})
}

// add keeps a measurement. pods returns the pods of the node; add calls it rarely.
func (l *logSizes) add(uid types.UID, container string, bytes uint64, now time.Time, pods func() []*pod.Observed) {
	k, at := l.key(uid, container), now.Sub(l.began)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) >= l.most {
		kept := map[uint64]logSize{}
		for _, o := range pods() {
			for i := range o.Containers {
				old := l.key(o.Ref.UID, o.Containers[i].Name)
				if size, ok := l.last[old]; ok && at-size.at < maxLogsAge {
					kept[old] = size
				}
			}
		}
		l.last, l.most = kept, max(minLogSizes, 2*len(kept))
	}
	if l.last == nil {
		l.last = map[uint64]logSize{}
	}
	l.last[k] = logSize{bytes, at}
}

// drop drops the measurement of a container that has no logs any more.
func (l *logSizes) drop(uid types.UID, container string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, l.key(uid, container))
}

// listen returns the channel that gets a value when old measurements should be repeated.
func (l *logSizes) listen() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wanted == nil {
		l.wanted = make(chan struct{}, 1)
	}
	return l.wanted
}

// ask asks for a repetition of old measurements, unless the last one was asked for a moment ago. The caller holds l.mu.
func (l *logSizes) ask(at time.Duration) {
	if at < l.next {
		return
	}
	select {
	case l.wanted <- struct{}{}:
		l.next = at + oldLogs
	default:
	}
}

// old reports whether the logs of a container were not measured within the last minute.
func (l *logSizes) old(uid types.UID, container string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, ok := l.last[l.key(uid, container)]
	return !ok || now.Sub(l.began)-size.at >= oldLogs
}

// measureOldLogs measures the logs of the running containers that were not measured within the last minute. It takes no longer than diskWithin.
func (s *Stats) measureOldLogs(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, diskWithin)
	defer cancel()
	for _, o := range s.cfg.Pods.Observed() {
		for i := range o.Containers {
			c := &o.Containers[i]
			if ctx.Err() != nil {
				return
			}
			if !runs(o, c) || !s.logs.old(o.Ref.UID, c.Name, s.cfg.Now()) {
				continue
			}
			if _, err := s.logSpace(ctx, o.Ref.UID, &containerReading{name: c.Name, logDir: s.logDirOf(o, c.Name)}); err != nil {
				s.cfg.Log.Debug("the logs of a container were not measured", "pod", o.Ref, "container", c.Name, "err", err)
			}
		}
	}
}

// measureLogs measures the logs of a container on disk, and keeps the result for LogSizes if the measurement is complete. With an error, it
// returns what it has found.
func (s *Stats) measureLogs(ctx context.Context, uid types.UID, c *containerReading) (Space, error) {
	bytes, inodes, err := s.cfg.Disk.UntrustedDiskUsage(ctx, c.logDir, crispec.LogDepth-1)
	switch {
	case err == nil:
		s.logs.add(uid, c.name, bytes, s.cfg.Now(), s.cfg.Pods.Observed)
	case errors.Is(err, fs.ErrNotExist):
		s.logs.drop(uid, c.name)
	}
	return Space{bytes, inodes}, err
}

// LogSizes returns how much disk the logs of the running containers used when they were last measured. It leaves out containers that were not measured
// within the last 10 minutes. LogSizes does no IO: if a measurement is older than a minute, or missing, it lets Run measure those logs.
func (s *Stats) LogSizes() (out []ContainerLogs) {
	now, pods := s.cfg.Now(), s.cfg.Pods.Observed()
	s.logs.mu.Lock()
	defer s.logs.mu.Unlock()
	at, old := now.Sub(s.logs.began), false
	for _, o := range pods {
		for i := range o.Containers {
			c := &o.Containers[i]
			if !runs(o, c) {
				continue
			}
			size, ok := s.logs.last[s.logs.key(o.Ref.UID, c.Name)]
			old = old || !ok || at-size.at >= oldLogs
			if ok && at-size.at < maxLogsAge {
				out = append(out, ContainerLogs{o.Ref, c.Name, size.bytes})
			}
		}
	}
	if old {
		s.logs.ask(at)
	}
	return out
}

func countContainerLogs(sizes []ContainerLogs, out sink) {
	f := newFamily(prometheus.GaugeValue, "kubelet_container_log_filesystem_used_bytes",
		"Bytes on disk that the logs of a running container used when they were last measured; a reading of /metrics lets those that are older than a minute be measured for the next one; absent if the last measurement is more than 10 minutes old",
		"uid", "namespace", "pod", "container")
	for _, s := range sizes {
		out.put(f, time.Time{}, float64(s.Bytes), string(s.Pod.UID), s.Pod.Namespace, s.Pod.Name, s.Container)
	}
}
