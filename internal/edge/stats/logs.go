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

// of returns the last measurement of a container's logs in bytes; false: there is none, or it is too old to be shown. The caller holds
// l.mu.
func (l *logSizes) of(uid types.UID, container string, now time.Time) (bytes uint64, ok bool) {
	size, ok := l.last[l.key(uid, container)]
	return size.bytes, ok && now.Sub(l.began)-size.at < maxLogsAge
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

// LogSizes returns how much disk the logs of the running containers used when they were last measured: for /stats/summary, for an eviction or for
// a pod's limits of storage. It leaves out containers that were not measured within the last 10 minutes. LogSizes does no IO.
func (s *Stats) LogSizes() (out []ContainerLogs) {
	now, pods := s.cfg.Now(), s.cfg.Pods.Observed()
	s.logs.mu.Lock()
	defer s.logs.mu.Unlock()
	if len(s.logs.last) == 0 {
		return nil
	}
	for _, o := range pods {
		for i := range o.Containers {
			c := &o.Containers[i]
			if c.State != pod.StateRunning || o.Newest(c.Name) != c {
				continue
			}
			if bytes, ok := s.logs.of(o.Ref.UID, c.Name, now); ok {
				out = append(out, ContainerLogs{o.Ref, c.Name, bytes})
			}
		}
	}
	return out
}

func countContainerLogs(sizes []ContainerLogs, out sink) {
	f := newFamily(prometheus.GaugeValue, "kubelet_container_log_filesystem_used_bytes",
		"Bytes on disk that the logs of a running container used when they were last measured, for /stats/summary, for an eviction or for the pod's limits of storage; absent if that was more than 10 minutes ago",
		"uid", "namespace", "pod", "container")
	for _, s := range sizes {
		out.put(f, time.Time{}, float64(s.Bytes), string(s.Pod.UID), s.Pod.Namespace, s.Pod.Name, s.Container)
	}
}
