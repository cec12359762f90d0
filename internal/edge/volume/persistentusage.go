package volume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/claims"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// The limits of measurements of persistent volumes. A measurement may hang for ever in a dead mount, or for a long time in a driver.
const (
	maxMeasuring   = 64          // measurements in flight of one source; when this number is reached, its other volumes keep their last results
	measurePatient = time.Second // how long the first caller waits for the first measurement of a volume; later callers do not wait
)

// measures has the last measurements of persistent volumes.
type measures struct {
	mu sync.Mutex
	// flying has the numbers of measurements in flight, by source (sourceOf). So the mounts of a dead file server do not keep the volumes of a driver from
	// being measured.
	flying map[string]int
	pods   map[types.UID]map[string]*measure // by pod and volume name
}

// measure is the state of one volume's measurement. The mutex of measures guards it.
type measure struct {
	last  Usage
	known bool          // the field last has a result
	err   error         // the error of the last measurement
	at    time.Time     // when the last measurement began
	done  chan struct{} // closed when the measurement in flight ends; nil: no measurement is in flight
	// source is the source as which flying counts the measurement. It is "" until the volume's record was read.
	source string
	wrong  string // the event's text about the volume's abnormal condition; "": the condition is normal or not known
}

// PersistentUsage returns how full the persistent volumes of a pod are: CSI volumes whose driver has the capability GET_VOLUME_STATS,
// and volumes of the kinds local, nfs, iscsi and fc, whose file system is measured. It measures a volume at most once a minute, each in a goroutine of its
// own, so that a dead mount or a driver that hangs delays no other volume. A caller waits at most a second, and only if it begins the
// measurement of a volume that has no result yet. Volumes without a result are left out. The error joins the errors of the last
// measurements.
func (v *Volumes) PersistentUsage(ctx context.Context, p *v1.Pod) ([]Usage, error) {
	var waits []<-chan struct{}
	var names []string
	for _, vol := range usedVolumes(p) {
		claim := claims.Name(p, vol)
		if claim == "" {
			continue
		}
		names = append(names, vol.Name)
		if first := v.measure(p.UID, vol.Name, claim); first != nil {
			waits = append(waits, first)
		}
	}
	if len(waits) > 0 {
		patience := time.NewTimer(measurePatient)
		defer patience.Stop()
		for _, done := range waits {
			select {
			case <-done:
				continue
			case <-patience.C:
			case <-ctx.Done():
			}
			break
		}
	}
	return v.measured(p, names)
}

// measured returns the last results of a pod's volumes.
func (v *Volumes) measured(p *v1.Pod, names []string) (all []Usage, err error) {
	v.measures.mu.Lock()
	defer v.measures.mu.Unlock()
	var errs []error
	for _, name := range names {
		m := v.measures.pods[p.UID][name]
		if m == nil {
			continue
		}
		if m.known {
			all = append(all, m.last)
		}
		if m.err != nil {
			errs = append(errs, fmt.Errorf("volume %q: %w", name, m.err))
		}
	}
	return all, errors.Join(errs...)
}

// measure begins a measurement of a volume if the last one is old. It returns a channel that is closed with the first result, or nil if
// there is nothing to wait for.
func (v *Volumes) measure(uid types.UID, volume, claim string) (first <-chan struct{}) {
	ms := &v.measures
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.of(uid, volume)
	if m.done != nil || time.Since(m.at) < usageTTL || ms.flying[m.source] >= maxMeasuring {
		return nil
	}
	ms.flies(m.source, 1)
	before := m.at
	m.at, m.done = time.Now(), make(chan struct{})
	done, known := m.done, m.known
	go func() {
		b, read := v.readRecord(uid, volume) // here, because the disk may hang
		var u Usage
		ok, err := false, error(nil)
		began := ms.moves(m, sourceOf(&b))
		if began {
			if u, ok, err = v.measureNow(uid, &b, read); ok {
				v.tellHealth(uid, volume, m, u.Health)
			}
		}
		ms.mu.Lock()
		defer ms.mu.Unlock()
		ms.flies(m.source, -1)
		m.done = nil
		if began {
			m.err = err
		} else {
			m.at = before
		}
		if ok {
			u.Name, u.Claim = volume, claim
			m.last, m.known = u, true
		}
		close(done)
	}()
	if known {
		return nil
	}
	return done
}

// sourceOf returns the source of measurements of a volume: its driver or, without one, its kind.
func sourceOf(b *bound) string {
	if b.Kind == kindCSI {
		return string(b.Kind) + "^" + b.Driver
	}
	return string(b.Kind)
}

// moves counts the measurement m in flight for another source than before, because its volume's record names that one. It returns false if that source has
// too many measurements in flight.
func (ms *measures) moves(m *measure, source string) bool {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if source == m.source {
		return true
	}
	if ms.flying[source] >= maxMeasuring {
		return false
	}
	ms.flies(m.source, -1)
	m.source = source
	ms.flies(source, 1)
	return true
}

// of returns the state of a volume's measurement, which it makes if there is none. The lock is held.
func (ms *measures) of(uid types.UID, volume string) *measure {
	if ms.pods == nil {
		ms.pods = map[types.UID]map[string]*measure{}
	}
	if ms.pods[uid] == nil {
		ms.pods[uid] = map[string]*measure{}
	}
	m := ms.pods[uid][volume]
	if m == nil {
		m = &measure{}
		ms.pods[uid][volume] = m
	}
	return m
}

// flies counts a measurement of a source that begins (1) or has ended (-1). The lock is held.
func (ms *measures) flies(source string, n int) {
	if ms.flying == nil {
		ms.flying = map[string]int{}
	}
	if ms.flying[source] += n; ms.flying[source] == 0 {
		delete(ms.flying, source)
	}
}

// tellHealth records an event on the pod if a volume's condition has become abnormal, or is abnormal for another reason than before. The
// caller makes the measurement m, so no other goroutine calls tellHealth with m.
func (v *Volumes) tellHealth(uid types.UID, volume string, m *measure, h *Health) {
	wrong := ""
	if h != nil && h.Abnormal {
		wrong = fmt.Sprintf("Volume %s: %s", volume, h.Message)
	}
	v.measures.mu.Lock()
	before := m.wrong
	m.wrong = wrong
	v.measures.mu.Unlock()
	if wrong == "" || wrong == before {
		return
	}
	if b, err := v.readRecord(uid, volume); err == nil { // otherwise the pod has ended
		v.cfg.Event(b.ref(uid), v1.EventTypeWarning, ReasonVolumeAbnormal, wrong)
	}
}

// ReasonVolumeAbnormal is the reason of the event on a pod when a CSI driver reports that something is wrong with a volume.
const ReasonVolumeAbnormal = "VolumeConditionAbnormal"

// asksHealth reports whether the node asks the driver of a volume for the volume's condition.
func (v *Volumes) asksHealth(b *bound) bool { return b.Kind == kindCSI && v.asksDriver(b.Driver) }

// asksDriver reports whether the node asks a CSI driver for the condition of its volumes.
func (v *Volumes) asksDriver(name string) bool {
	if !v.cfg.Health {
		return false
	}
	d := v.cfg.Driver(name)
	return d != nil && d.Can().Stats && d.Can().Condition
}

// measureNow measures one volume. b and read are the results of readRecord. ok is false if the driver cannot measure the volume, or the volume is not set up yet.
func (v *Volumes) measureNow(uid types.UID, b *bound, read error) (u Usage, ok bool, err error) {
	if errors.Is(read, errNotSetUp) || read == nil && !b.Done {
		return u, false, nil
	}
	if read != nil {
		return u, false, read
	}
	switch b.Kind {
	case kindLocal, kindNFS, kindISCSI, kindFC:
		if b.Block {
			return u, false, nil
		}
		began := time.Now()
		u.CapacityBytes, u.AvailableBytes, u.Inodes, u.InodesFree, err = v.cfg.Host.DiskSpace(b.dir(v.layout, uid))
		v.cfg.Measured(sourceFileSystem, time.Since(began))
		u.UsedBytes, u.InodesUsed, u.Time = without(u.CapacityBytes, u.AvailableBytes), without(u.Inodes, u.InodesFree), time.Now()
		return u, err == nil, err
	case kindCSI:
		return v.askDriver(uid, b)
	}
	return u, false, nil
}

// askDriver asks the driver of a CSI volume how full the volume is.
func (v *Volumes) askDriver(uid types.UID, b *bound) (u Usage, ok bool, err error) {
	d := v.cfg.Driver(b.Driver)
	if d == nil || !d.Can().Stats {
		return u, false, nil
	}
	req := &csi.NodeGetVolumeStatsRequest{VolumeId: b.Handle, VolumePath: b.dir(v.layout, uid)}
	if d.Can().Stage && !b.Inline {
		req.StagingTargetPath = v.layout.stagingPath(b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	began := time.Now()
	answer, err := d.Stats(ctx, req)
	v.cfg.Measured(b.Driver, time.Since(began))
	if err != nil {
		return u, false, err
	}
	u.Time = time.Now()
	if c := answer.GetVolumeCondition(); v.cfg.Health && d.Can().Condition && c != nil {
		u.Health, ok = &Health{Abnormal: c.GetAbnormal(), Message: pod.Text(c.GetMessage())}, true
	}
	for _, part := range answer.GetUsage() {
		total, used, available := atLeast0(part.GetTotal()), atLeast0(part.GetUsed()), atLeast0(part.GetAvailable())
		switch part.GetUnit() {
		case csi.VolumeUsage_BYTES:
			u.CapacityBytes, u.UsedBytes, u.AvailableBytes, ok = total, used, available, true
		case csi.VolumeUsage_INODES:
			u.Inodes, u.InodesUsed, u.InodesFree, ok = total, used, available, true
		case csi.VolumeUsage_UNKNOWN:
		}
	}
	return u, ok, nil
}

// atLeast0 converts a number of a driver's answer. A negative number, which CSI forbids, becomes 0.
func atLeast0(n int64) uint64 { return uint64(max(0, n)) }

// without returns total less free. It returns 0 if free is larger: a file server may report any numbers.
func without(total, free uint64) uint64 { return total - min(total, free) }

func (m *measures) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, uid)
}
