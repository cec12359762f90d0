package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// fileName is the name of the file in a pod's directory.
const fileName = "userns"

// endOfIDs is the end of the IDs that the kernel maps. It refuses a range with the last ID, 2^32-1, which system calls use for "no ID".
const endOfIDs = 1<<32 - 1

// DefaultLength is how many IDs a pod gets ("idsPerPod ... default 65536").
const DefaultLength = 65536

// Config configures Ranges.
type Config struct {
	// RootDir is the agent's directory; "": nothing is written, for simulated machines.
	RootDir string
	// Length is userNamespaces.idsPerPod; 0: DefaultLength.
	Length uint32
	// Pool returns the IDs that the node may give to pods; nil: all except the first Length. Load calls it, and repeats the
	// call while it fails.
	Pool func() (Pool, error)

	write func(path string, s span) error // writes a pod's file; tests replace it
}

// Pool is the range of IDs for pods: Count IDs, of which First is the lowest.
type Pool struct {
	First uint32
	Count uint64
}

// Ranges keeps the ID ranges of one node's pods.
type Ranges struct {
	cfg Config

	failing atomic.Pointer[error] // the last error of load

	mu    sync.Mutex
	pool  Pool
	err   error // the last error of Config.Pool: why there is no pool
	taken map[types.UID]span
	busy  map[types.UID]chan struct{} // pods whose file is being written or removed; the channel is closed when that has ended
	bad   map[types.UID]error         // the errors of pods whose file could not be read
	read  *reading                    // the load that runs; nil: none
	next  uint64                      // ID at which the next search begins, so that a range that was just released is not used again at once
}

// span is the range of IDs [from, to).
type span struct{ from, to uint64 }

func (s span) overlaps(o span) bool { return s.from < o.to && o.from < s.to }

// New returns Ranges. Call Load before Range.
func New(cfg Config) *Ranges {
	if cfg.Length == 0 {
		cfg.Length = DefaultLength
	}
	if cfg.write == nil {
		cfg.write = write
	}
	return &Ranges{cfg: cfg, err: errors.New("user ID ranges are not loaded yet"), taken: map[types.UID]span{}, busy: map[types.UID]chan struct{}{}, bad: map[types.UID]error{}}
}

// Load reads the node's IDs and the ranges of pods on disk. The agent continues after an error: then Range calls Load again,
// and returns the error to pods that need a range.
func (r *Ranges) Load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.load()
}

// reading is a load that runs.
type reading struct {
	done chan struct{} // closed at the end
	err  error         // the result, after done
	// touched has the pods whose range was given, written or released meanwhile: what was read of them may be old.
	touched map[types.UID]bool
}

// Failing returns why no range can be given, or nil. It never waits for the disk.
func (r *Ranges) Failing() error {
	if err := r.failing.Load(); err != nil {
		return *err
	}
	return nil
}

// load does the work of Load, or waits for the load that runs. The caller holds the lock, which is released meanwhile: a disk that hangs delays only
// those that need what is read.
func (r *Ranges) load() error {
	if l := r.read; l != nil {
		r.mu.Unlock()
		<-l.done
		r.mu.Lock()
		return l.err
	}
	l := &reading{done: make(chan struct{}), touched: map[types.UID]bool{}}
	for uid := range r.busy {
		l.touched[uid] = true
	}
	r.read = l
	r.mu.Unlock()
	found, bad, lerr := r.find()
	pool, err := r.findPool()
	r.mu.Lock()
	for uid := range l.touched {
		delete(found, uid)
		if s, ok := r.taken[uid]; ok {
			found[uid] = s
		}
		delete(bad, uid)
		if e, ok := r.bad[uid]; ok {
			bad[uid] = e
		}
	}
	r.pool, r.err, r.taken, r.bad = pool, errors.Join(err, lerr), found, bad
	errs := []error{r.err}
	for _, e := range bad {
		errs = append(errs, e)
	}
	l.err = errors.Join(errs...)
	r.failing.Store(nil)
	if l.err != nil {
		r.failing.Store(&l.err)
	}
	r.read = nil
	close(l.done)
	return l.err
}

func (r *Ranges) findPool() (Pool, error) {
	length := uint64(r.cfg.Length)
	if r.cfg.Pool == nil {
		return Pool{First: r.cfg.Length, Count: 1<<32 - length}, nil
	}
	p, err := r.cfg.Pool()
	switch {
	case err != nil:
		return Pool{}, err
	case p.Count == 0:
		return Pool{First: r.cfg.Length, Count: 1<<32 - length}, nil
	case uint64(p.First)%length != 0 || p.Count%length != 0:
		return Pool{}, fmt.Errorf("the IDs of user kubelet, %d of them from %d, do not divide into ranges of %d (userNamespaces.idsPerPod): "+
			"make both multiples of it in /etc/subuid and /etc/subgid", p.Count, p.First, length)
	case uint64(p.First) < length:
		return Pool{}, fmt.Errorf("the IDs of user kubelet begin with %d: pods must not get IDs below %d; change /etc/subuid and /etc/subgid", p.First, length)
	case uint64(p.First)+p.Count > 1<<32:
		return Pool{}, fmt.Errorf("the IDs of user kubelet, %d of them from %d, go beyond 2^32: change /etc/subuid and /etc/subgid", p.Count, p.First)
	}
	return p, nil
}

// find reads the ranges of all pods that have a directory.
func (r *Ranges) find() (found map[types.UID]span, bad map[types.UID]error, err error) {
	found, bad = map[types.UID]span{}, map[types.UID]error{}
	if r.cfg.RootDir == "" {
		return found, bad, nil
	}
	entries, err := os.ReadDir(filepath.Join(r.cfg.RootDir, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return found, bad, fmt.Errorf("list pod directories: %w", err)
	}
	for _, e := range entries {
		uid := types.UID(e.Name())
		s, err := read(r.path(uid))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			bad[uid] = fmt.Errorf("read user ID range of pod %s: %w (delete the pod, or %s if nothing of the pod runs)", uid, err, r.path(uid))
		default:
			found[uid] = s
		}
	}
	return found, bad, nil
}

// Range returns the pod's range, and allocates one if the pod has none. The pod's directory must exist. While it writes the range of one pod, which
// takes as long as the disk needs, it delays no other pod.
func (r *Ranges) Range(uid types.UID) (first, length uint32, err error) {
	s, err := r.rangeOf(uid)
	if err != nil {
		return 0, 0, err
	}
	return uint32(s.from), uint32(s.to - s.from), nil
}

func (r *Ranges) rangeOf(uid types.UID) (span, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		r.settled(uid)
		if s, ok := r.taken[uid]; ok {
			return s, nil
		}
		if r.cfg.RootDir == "" || r.err == nil && len(r.bad) == 0 {
			break
		}
		if err := r.load(); err != nil {
			return span{}, fmt.Errorf("no user ID range is given while the range of another pod is unknown: %w", err)
		}
	}
	if r.err != nil {
		return span{}, r.err
	}
	s, ok := r.free()
	if !ok {
		return span{}, fmt.Errorf("all %d ranges of %d user IDs are taken", r.ranges(), r.cfg.Length)
	}
	r.taken[uid], r.next = s, s.to // taken before it is written, so that no other pod gets it meanwhile
	if r.cfg.RootDir == "" {
		return s, nil
	}
	if err := r.beside(uid, func() error { return r.cfg.write(r.path(uid), s) }); err != nil {
		delete(r.taken, uid)
		return span{}, fmt.Errorf("write user ID range: %w", err)
	}
	return s, nil
}

// beside runs do, which reads or writes the file of one pod, without the lock. The caller holds the lock, and has called settled.
func (r *Ranges) beside(uid types.UID, do func() error) error {
	done := make(chan struct{})
	r.busy[uid] = done
	if r.read != nil {
		r.read.touched[uid] = true
	}
	r.mu.Unlock()
	err := do()
	r.mu.Lock()
	delete(r.busy, uid)
	close(done)
	return err
}

// settled waits until nobody reads or writes the pod's file. The caller holds the lock, which is released meanwhile.
func (r *Ranges) settled(uid types.UID) {
	for {
		done := r.busy[uid]
		if done == nil {
			return
		}
		r.mu.Unlock()
		<-done
		r.mu.Lock()
	}
}

// end returns the end of the IDs in the pool that can be mapped, and ranges the number of ranges before it. They are called with the lock held.
func (r *Ranges) end() uint64 { return min(uint64(r.pool.First)+r.pool.Count, endOfIDs) }

func (r *Ranges) ranges() uint64 { return (r.end() - uint64(r.pool.First)) / uint64(r.cfg.Length) }

// free returns a range that no pod has. It is called with the lock held.
func (r *Ranges) free() (span, bool) {
	length, first := uint64(r.cfg.Length), uint64(r.pool.First)
	end := r.end()
	if r.next < first || r.next+length > end || (r.next-first)%length != 0 {
		r.next = first
	}
	at := r.next
	for range r.ranges() {
		s := span{at, at + length}
		if s.to <= end && !r.overlaps(s) {
			return s, true
		}
		if at = s.to; at+length > end {
			at = first
		}
	}
	return span{}, false
}

func (r *Ranges) overlaps(s span) bool {
	for _, t := range r.taken {
		if t.overlaps(s) {
			return true
		}
	}
	return false
}

// Release frees the pod's range. No container of the pod may run any more. A repeated call has no effect.
func (r *Ranges) Release(uid types.UID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled(uid)
	_, taken := r.taken[uid]
	if !taken && r.bad[uid] == nil && r.read == nil { // a load that runs may find a range of the pod
		return nil
	}
	if r.cfg.RootDir != "" {
		err := r.beside(uid, func() error { return os.Remove(r.path(uid)) })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("release user ID range: %w", err)
		}
	}
	delete(r.taken, uid)
	delete(r.bad, uid)
	if len(r.bad) == 0 && r.err == nil {
		r.failing.Store(nil)
	}
	return nil
}

// Pods returns the pods that have a range, sorted.
func (r *Ranges) Pods() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []types.UID
	for uid := range r.taken {
		out = append(out, uid)
	}
	slices.Sort(out)
	return out
}

func (r *Ranges) path(uid types.UID) string {
	return filepath.Join(r.cfg.RootDir, "pods", string(uid), fileName)
}

// file is the content of a pod's file userns, in the format of upstream's kubelet.
type file struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	Host      uint32 `json:"hostId"`
	Container uint32 `json:"containerId"`
	Length    uint32 `json:"length"`
}

func read(path string) (span, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return span{}, err
	}
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return span{}, err
	}
	if len(f.UIDs) != 1 || len(f.GIDs) != 1 || f.UIDs[0] != f.GIDs[0] || f.UIDs[0].Container != 0 || f.UIDs[0].Length == 0 || f.UIDs[0].Host == 0 {
		return span{}, errors.New("the file must map one range of user IDs and the same range of group IDs, from ID 0 of the container on")
	}
	m := f.UIDs[0]
	return span{uint64(m.Host), uint64(m.Host) + uint64(m.Length)}, nil
}

// write writes the whole file atomically and with fsync: a range that is lost could be given to two pods.
func write(path string, s span) error {
	m := []mapping{{Host: uint32(s.from), Length: uint32(s.to - s.from)}}
	data, err := json.Marshal(file{m, m})
	if err != nil {
		return err
	}
	return hostfs.WriteFile(path, data, 0o600)
}
