package proxyctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/wherry-node/wherry/internal/edge/criproxy"
)

const (
	// recordQueue is how many lines wait for the disk at most. Further ones are dropped and counted.
	recordQueue = 4096
	// minRecord and maxRecord are the smallest and the largest limit of a record in MiB.
	minRecord, maxRecord = 1, 1 << 20
	// olderSuffix is the end of the name of the file with the lines before those of the record.
	olderSuffix = ".1"
)

// recordLine is a line of a record.
type recordLine struct {
	Time    time.Time `json:"time"` // when the call began
	Method  string    `json:"method"`
	Ms      float64   `json:"ms"` // how long it took
	Code    string    `json:"code"`
	Request int64     `json:"request"` // bytes
	Answer  int64     `json:"answer"`  // bytes
	Answers int64     `json:"answers"` // messages
	Fault   string    `json:"fault,omitempty"`
}

// record writes a line of JSON for each call to a file. When the file has half of the limit, it becomes the older file and a new one
// begins. A disk that is slow or full loses lines, and delays no call.
type record struct {
	path  string
	half  int64
	log   *slog.Logger
	lines chan recordLine
	ended chan struct{}
	lost  atomic.Uint64

	closing sync.RWMutex // held for writing while lines is closed
	closed  bool

	// What follows belongs to the goroutine that writes.
	file   *os.File // nil: it cannot be opened
	size   int64
	failed bool
}

// openRecord opens a record of at most limit MiB. Lines are added to a file that exists.
func openRecord(path string, limit int64, log *slog.Logger) (*record, error) {
	if limit < minRecord || limit > maxRecord {
		return nil, fmt.Errorf("--record-limit=%d: use %d to %d (MiB)", limit, minRecord, maxRecord)
	}
	r := &record{path: path, half: limit << 20 / 2, log: log, lines: make(chan recordLine, recordQueue), ended: make(chan struct{})}
	if err := r.open(); err != nil {
		return nil, fmt.Errorf("--record: %w", err)
	}
	go r.write()
	return r, nil
}

// open opens the file.
func (r *record) open() error {
	switch st, err := os.Stat(r.path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file: choose another path", r.path)
	}
	f, err := os.OpenFile(r.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	r.file, r.size = f, st.Size()
	return nil
}

// add adds the line of a call. It does not wait.
func (r *record) add(c criproxy.Call) {
	line := recordLine{
		Time: c.Began, Method: c.Method, Ms: float64(c.Took.Microseconds()) / 1000, Code: c.Code.String(),
		Request: c.Request, Answer: c.Answer, Answers: c.Answers, Fault: c.Fault,
	}
	r.closing.RLock()
	defer r.closing.RUnlock()
	if r.closed {
		return
	}
	select {
	case r.lines <- line:
	default:
		r.lost.Add(1)
	}
}

// write writes lines until close is called.
func (r *record) write() {
	defer close(r.ended)
	for line := range r.lines {
		r.put(line)
	}
	if r.file != nil {
		r.check(r.file.Close())
	}
}

// put writes one line, into a new file if the present one is full.
func (r *record) put(line recordLine) {
	text, err := json.Marshal(line)
	if err != nil { // no value of a line has this error
		r.lost.Add(1)
		return
	}
	text = append(text, '\n')
	if r.file == nil || r.size+int64(len(text)) > r.half {
		r.rotate()
	}
	if r.file == nil || r.size+int64(len(text)) > r.half { // the full file cannot become the older one
		r.lost.Add(1)
		return
	}
	n, err := r.file.Write(text)
	if err != nil {
		r.lost.Add(1)
		r.check(err)
		if n > 0 && r.file.Truncate(r.size) == nil { // half a line would spoil the next one
			n = 0
		}
	}
	r.size += int64(n)
}

// rotate makes the present file the older one, and begins a new one.
func (r *record) rotate() {
	if r.file != nil {
		r.check(r.file.Close())
		r.file = nil
		r.check(os.Rename(r.path, r.path+olderSuffix))
	}
	r.check(r.open())
}

// check logs the first error of the disk.
func (r *record) check(err error) {
	if err == nil || r.failed {
		return
	}
	r.failed = true
	r.log.Error("the record of calls has gaps", "file", r.path, "err", err)
}

// close writes the lines that wait, and closes the file.
func (r *record) close() {
	r.closing.Lock()
	r.closed = true
	close(r.lines)
	r.closing.Unlock()
	<-r.ended
}
