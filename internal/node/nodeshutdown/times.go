package nodeshutdown

import (
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// Times returns when the last shutdown began, and when the pods had ended or their time was over. A zero time means that this has
// not happened. After Run has begun, the times are those of the last shutdown of the machine, also if an earlier agent saw it.
func (w *Watch) Times() (began, finished time.Time) { return at(w.began.Load()), at(w.finished.Load()) }

func at(nanoseconds int64) time.Time {
	if nanoseconds == 0 {
		return time.Time{}
	}
	return time.Unix(0, nanoseconds)
}

func since(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// record is the content of Config.File. Upstream's kubelet writes the same into graceful_node_shutdown_state.
type record struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

// maxFile is the largest size of the file in bytes.
const maxFile = 4 << 10

// load takes over the times that an earlier agent has written, if there are any.
func (w *Watch) load() {
	if w.cfg.File == "" {
		return
	}
	r, err := readRecord(w.cfg.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		w.cfg.Log.Warn("when the machine was last shut down is not known", "file", w.cfg.File, "err", err)
	default:
		w.began.Store(since(r.StartTime))
		w.finished.Store(since(r.EndTime))
	}
}

func readRecord(path string) (r record, err error) {
	data, err := hostfs.ReadUntrusted(path, 1, maxFile)
	if err != nil {
		return record{}, err
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return record{}, err
	}
	return r, nil
}

// keep writes the times for the next agent. Power may go off soon after, so it waits for the disk.
func (w *Watch) keep() {
	if w.cfg.File == "" {
		return
	}
	began, finished := w.Times()
	data, err := json.Marshal(record{StartTime: began, EndTime: finished})
	if err == nil {
		err = hostfs.WriteFile(w.cfg.File, data, 0o644)
	}
	if err != nil {
		w.cfg.Log.Warn("when the machine was shut down is not kept for the next agent", "file", w.cfg.File, "err", err)
	}
}
