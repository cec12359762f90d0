package fleet

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/core/yamldoc"
)

// History is what happened in one run of a fleet: a file of `wherry fleet --record`.
type History struct {
	objects map[string]*object // by what two runs have in common: node/NAME, or pod/WORKLOAD
	end     time.Duration      // when the last change happened
}

// object is a node, or all pods of one workload.
type object struct {
	lives map[string]*life // by the name of the pod or node
}

// life is what happened to one pod or node.
type life struct {
	states []string // each state, in order; no two successive ones are equal
	first  time.Duration
	ready  time.Duration // when it was first Ready or Running and ready; negative: never
	last   time.Duration
}

// historyKind is in the first line of a history.
type historyKind struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// header returns the first line of a history.
func header() historyKind { return historyKind{"wherry.dev/v1alpha1", "FleetHistory"} }

// These constants bound a history that is read.
const (
	maxHistoryLine  = 64 << 10 // bytes
	maxHistory      = 20_000_000
	maxHistoryBytes = 4 << 30
	maxReason       = 200 // bytes of a status.reason
)

// Recorder writes the changes of a fleet to a file that ReadHistory reads. Its method Changed is for Config.Changed.
type Recorder struct {
	out *bufio.Writer
	enc *json.Encoder
	err error
}

// NewRecorder begins a history.
func NewRecorder(w io.Writer) *Recorder {
	r := &Recorder{out: bufio.NewWriterSize(w, 64<<10)}
	r.enc = json.NewEncoder(r.out)
	r.err = r.enc.Encode(header())
	return r
}

// Changed writes a change. After an error it does nothing; Close returns the error.
func (r *Recorder) Changed(c Change) {
	if r.err == nil {
		r.err = r.enc.Encode(c)
	}
}

// Flush writes what is buffered. It returns the first error of any write.
func (r *Recorder) Flush() error {
	if r.err == nil {
		r.err = r.out.Flush()
	}
	return r.err
}

// Close writes what is buffered. It returns the first error of any write.
func (r *Recorder) Close() error { return r.Flush() }

// ReadHistory reads a history. name is the name of the file, for errors, which name the line.
func ReadHistory(name string, r io.Reader) (*History, error) {
	h := &History{objects: map[string]*object{}}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxHistoryLine)
	n, size := 0, 0
	for lines.Scan() {
		n++
		if size += len(lines.Bytes()); size > maxHistoryBytes {
			return nil, fmt.Errorf("%s:%d: the history is larger than %d GiB", name, n, maxHistoryBytes>>30)
		}
		if n == 1 {
			var kind historyKind
			if err := json.Unmarshal(lines.Bytes(), &kind); err != nil || kind != header() {
				return nil, fmt.Errorf("%s:1: this is no history of a fleet: make one with wherry fleet --record FILE", name)
			}
			continue
		}
		if n > maxHistory {
			return nil, fmt.Errorf("%s:%d: the history has more than %d changes", name, n, maxHistory)
		}
		var c Change
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("%s:%d: not a change of a fleet: %s", name, n, yamldoc.JSONText(err))
		}
		if c.Node == "" || c.State == "" || c.At < 0 {
			return nil, fmt.Errorf("%s:%d: a change has a node, a state and a time", name, n)
		}
		h.add(&c)
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("%s:%d: the line has more than %d KiB", name, n+1, maxHistoryLine>>10)
	case err != nil:
		return nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	if n == 0 {
		return nil, fmt.Errorf("%s: the file is empty: make a history with wherry fleet --record FILE", name)
	}
	return h, nil
}

func (h *History) add(c *Change) {
	key, name := "node/"+c.Node, c.Node
	state := c.State
	if c.Pod != "" {
		key, name = "pod/"+c.Workload, c.Pod
		if c.Ready {
			state += ", ready"
		}
		if c.Restarts > 0 {
			state += fmt.Sprintf(", %d restarts", c.Restarts)
		}
	}
	o := h.objects[key]
	if o == nil {
		o = &object{lives: map[string]*life{}}
		h.objects[key] = o
	}
	l := o.lives[name]
	if l == nil {
		l = &life{first: c.At, ready: -1}
		o.lives[name] = l
	}
	if n := len(l.states); n == 0 || l.states[n-1] != state {
		l.states = append(l.states, state)
	}
	if l.ready < 0 && (c.Ready || c.Pod == "" && c.State == StateReady) {
		l.ready = c.At
	}
	l.last = c.At
	h.end = max(h.end, c.At)
}

// outcome returns what became of a pod or node: its last state before it was gone, and with whole each state on the way.
func (l *life) outcome(whole bool) string {
	if whole {
		return strings.Join(l.states, " > ")
	}
	states := l.states
	gone := false
	if n := len(states); n > 1 && states[n-1] == StateGone {
		states, gone = states[:n-1], true
	}
	text := states[len(states)-1]
	if gone {
		text += ", then gone"
	}
	return text
}

// Difference is how two runs of a fleet differ in a node or in the pods of one workload.
type Difference struct {
	Object string `json:"object"` // node/NAME, or pod/NAMESPACE/PREFIX
	// Outcome is what became of nodes or pods, and A and B say of how many in the two runs.
	Outcome string `json:"outcome"`
	A       int    `json:"a"`
	B       int    `json:"b"`
	// First is when that was first so, in the run that has more of them, and Name which node or pod it was.
	First time.Duration `json:"first"`
	Name  string        `json:"name"`
}

// Compare returns how the outcomes of two runs differ, in the order of the objects. It does not compare times, nor on which node a pod ran.
// With whole it compares each state that nodes and pods had on the way, not only the last one.
func Compare(a, b *History, whole bool) (out []Difference) {
	keys := map[string]bool{}
	for _, h := range []*History{a, b} {
		for key := range h.objects {
			keys[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		in, other := a.outcomes(key, whole), b.outcomes(key, whole)
		all := map[string]bool{}
		for _, m := range []map[string]tallied{in, other} {
			for outcome := range m {
				all[outcome] = true
			}
		}
		for _, outcome := range slices.Sorted(maps.Keys(all)) {
			x, y := in[outcome], other[outcome]
			if x.count == y.count {
				continue
			}
			d := Difference{Object: key, Outcome: outcome, A: x.count, B: y.count, First: x.first, Name: x.name}
			if y.count > x.count {
				d.First, d.Name = y.first, y.name
			}
			out = append(out, d)
		}
	}
	return out
}

// tallied is how many pods or nodes had an outcome, and which was the first.
type tallied struct {
	count int
	first time.Duration
	name  string
}

// outcomes counts the outcomes of the pods or nodes of one object.
func (h *History) outcomes(key string, whole bool) map[string]tallied {
	out := map[string]tallied{}
	o := h.objects[key]
	if o == nil {
		return out
	}
	for name, l := range o.lives {
		outcome := l.outcome(whole)
		t := out[outcome]
		if t.count == 0 || cmp.Or(cmp.Compare(l.last, t.first), cmp.Compare(name, t.name)) < 0 {
			t.first, t.name = l.last, name
		}
		t.count++
		out[outcome] = t
	}
	return out
}

// Timing says how long nodes or pods took from their first change until they were Ready.
type Timing struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50,omitempty"` // in nanoseconds, as the others
	P99   time.Duration `json:"p99,omitempty"`
	Max   time.Duration `json:"max,omitempty"`
}

// Timings returns how long the nodes took to become Ready, and the pods.
func (h *History) Timings() (nodes, pods Timing) {
	var of [2][]time.Duration
	for key, o := range h.objects {
		i := 0
		if strings.HasPrefix(key, "pod/") {
			i = 1
		}
		for _, l := range o.lives {
			if l.ready >= 0 {
				of[i] = append(of[i], l.ready-l.first)
			}
		}
	}
	timing := func(d []time.Duration) Timing {
		if len(d) == 0 {
			return Timing{}
		}
		slices.Sort(d)
		return Timing{Count: len(d), P50: d[len(d)/2], P99: d[len(d)*99/100], Max: d[len(d)-1]}
	}
	return timing(of[0]), timing(of[1])
}
