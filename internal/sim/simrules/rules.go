package simrules

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/strict"
)

// Rules are the rules of files. If several rules match a container, each part of Do comes from the first of them that has it. Of images the first rule
// that matches applies. Methods may be called concurrently.
type Rules struct {
	Containers []Rule
	Images     []Image
	// Ignored says what documents of other simulators ask for that has no meaning here, each with file and line.
	Ignored []string

	merged sync.Map // the result of Find for each set of matching rules: string to *Do
	count  atomic.Int32
}

// Rule says what the containers do that match.
type Rule struct {
	Match Match `json:"match"`
	Do    Do    `json:"do"`
}

// Match selects containers. An empty field matches everything; in a pattern, * stands for any text and ? for one character.
type Match struct {
	Namespace string            `json:"namespace"`
	Pod       string            `json:"pod"`
	Container string            `json:"container"`
	Image     string            `json:"image"`
	Labels    map[string]string `json:"labels"` // of the pod; values are patterns
}

// Do says what a container does. The container's command decides about all that Do leaves out.
type Do struct {
	// StartAfter is the time from the start of the pod's sandbox before which no start of the container ends. A restart in the same sandbox does not
	// wait again. StartError makes the start fail with this message.
	StartAfter metav1.Duration `json:"startAfter"`
	StartError string          `json:"startError"`
	// Exits are the ends of the container, one for each attempt. The last one is also for all later attempts. None: the command decides.
	Exits []Exit `json:"exits"`
	// StopAfter is the time from the stop signal to the end, "never" for a container that has to be killed. StopCode is the exit code of that end.
	StopAfter string `json:"stopAfter"`
	StopCode  int32  `json:"stopCode"`
	// Requests, and commands that have no output, fail before the time ReadyAfter and after the time FailAfter.
	ReadyAfter metav1.Duration `json:"readyAfter"`
	FailAfter  metav1.Duration `json:"failAfter"`
	Log        Log             `json:"log"`
	Exec       []Exec          `json:"exec"`
	HTTP       []HTTP          `json:"http"`
	CPU        *Usage          `json:"cpu"`    // cores
	Memory     *Usage          `json:"memory"` // bytes; beyond the container's limit, the container ends as out of memory
	Disk       *Usage          `json:"disk"`   // bytes of the writable layer

	stops    time.Duration // StopAfter
	neverEnd bool          // StopAfter is never
}

// Exit is one end of a container. The zero value is an end at once, with code 0.
type Exit struct {
	Runs   bool            `json:"runs"`  // no end: the container runs until it is stopped
	After  metav1.Duration `json:"after"` // the time from the start to the end
	Jitter metav1.Duration `json:"jitter"`
	// Chance is the probability of this end, from 0 to 1; otherwise the container runs until it is stopped. 0: always.
	Chance  float64 `json:"chance"`
	Code    int32   `json:"code"`
	Reason  string  `json:"reason"`
	Message string  `json:"message"` // the termination message
	OOM     bool    `json:"oom"`     // code 137, reason OOMKilled
}

// Log is what a container writes: Lines once, and then Repeat again and again.
type Log struct {
	Lines  []Line `json:"lines"`
	Repeat []Line `json:"repeat"`
}

// Line is a text that is written After the line before it. Several lines of text are written at the same time.
type Line struct {
	After  metav1.Duration `json:"after"`
	Text   string          `json:"text"`
	Stderr bool            `json:"stderr"`
}

// Exec is the answer to a command, for exec and for probes.
type Exec struct {
	Command string          `json:"command"` // a pattern of the words of the command, joined by spaces
	Stdout  string          `json:"stdout"`
	Stderr  string          `json:"stderr"`
	Code    int32           `json:"code"`
	From    metav1.Duration `json:"from"`  // the answer is given from this time after the start of the container on
	Until   metav1.Duration `json:"until"` // and until this time; 0: for ever
}

// HTTP is the answer to a request, for probes and port-forward.
type HTTP struct {
	Path   string          `json:"path"` // a pattern
	Port   int32           `json:"port"` // 0: each
	Status int             `json:"status"`
	Body   string          `json:"body"`
	From   metav1.Duration `json:"from"`
	Until  metav1.Duration `json:"until"`
}

// Image says how large images are, and how they are pulled.
type Image struct {
	Image string            `json:"image"` // a pattern
	Size  resource.Quantity `json:"size"`  // bytes; 0: a size derived from the name
	// A pull takes Time, varied evenly by up to Jitter, and the time that Size takes at Speed bytes a second.
	Time   metav1.Duration   `json:"time"`
	Jitter metav1.Duration   `json:"jitter"`
	Speed  resource.Quantity `json:"speed"`
	// Error makes pulls fail with this message, with the probability Chance; 0: always.
	Error  string  `json:"error"`
	Chance float64 `json:"chance"`
}

// Subject describes a container, for which Rules.Find looks for rules.
type Subject struct {
	Namespace, Pod, Container, Image string
	Labels, Annotations              map[string]string // of the pod
}

// Find returns what a container does by the rules that match; nil: none does.
func (r *Rules) Find(s Subject) *Do {
	if r == nil {
		return nil
	}
	var found []int
	for i := range r.Containers {
		if m := &r.Containers[i].Match; m.matches(&s) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return nil
	}
	do := r.merge(found)
	return do.of(s.Annotations)
}

// mostMerged bounds how many results of merge are kept.
const mostMerged = 10_000

// merge joins what several rules say. Containers that the same rules match share the result.
func (r *Rules) merge(found []int) *Do {
	if len(found) == 1 {
		return &r.Containers[found[0]].Do
	}
	key := fmt.Sprint(found)
	if do, ok := r.merged.Load(key); ok {
		return do.(*Do)
	}
	do := r.Containers[found[0]].Do
	for _, i := range found[1:] {
		do.fill(&r.Containers[i].Do)
	}
	if r.count.Add(1) > mostMerged {
		return &do
	}
	kept, _ := r.merged.LoadOrStore(key, &do)
	return kept.(*Do)
}

// fill takes the parts from other that d does not have.
func (d *Do) fill(other *Do) {
	if d.StartAfter.Duration == 0 {
		d.StartAfter = other.StartAfter
	}
	if d.StartError == "" {
		d.StartError = other.StartError
	}
	if len(d.Exits) == 0 {
		d.Exits = other.Exits
	}
	if d.StopAfter == "" && d.StopCode == 0 {
		d.StopAfter, d.StopCode, d.stops, d.neverEnd = other.StopAfter, other.StopCode, other.stops, other.neverEnd
	}
	if d.ReadyAfter.Duration == 0 {
		d.ReadyAfter = other.ReadyAfter
	}
	if d.FailAfter.Duration == 0 {
		d.FailAfter = other.FailAfter
	}
	if len(d.Log.Lines)+len(d.Log.Repeat) == 0 {
		d.Log = other.Log
	}
	if len(d.Exec) == 0 {
		d.Exec = other.Exec
	}
	if len(d.HTTP) == 0 {
		d.HTTP = other.HTTP
	}
	for _, u := range []struct{ mine, others **Usage }{{&d.CPU, &other.CPU}, {&d.Memory, &other.Memory}, {&d.Disk, &other.Disk}} {
		if *u.mine == nil {
			*u.mine = *u.others
		}
	}
}

// of returns d, or a copy of d if the pod has an annotation that a usage names: in the copy, the annotation's amount replaces that usage.
func (d *Do) of(annotations map[string]string) *Do {
	out := d
	for _, u := range []func(*Do) **Usage{func(d *Do) **Usage { return &d.CPU }, func(d *Do) **Usage { return &d.Memory }, func(d *Do) **Usage { return &d.Disk }} {
		usage := *u(d)
		if usage == nil || usage.Annotation == "" {
			continue
		}
		q, err := strict.ParseQuantity(annotations[usage.Annotation])
		if err != nil || q.Sign() < 0 || q.AsApproximateFloat64() > maxAmount {
			continue
		}
		if out == d {
			own := *d
			out = &own
		}
		*u(out) = &Usage{Value: q}
	}
	return out
}

// Add appends the rules of another file. No other method may be called meanwhile.
func (r *Rules) Add(other *Rules) {
	r.Containers, r.Images, r.Ignored = append(r.Containers, other.Containers...), append(r.Images, other.Images...), append(r.Ignored, other.Ignored...)
}

func (m *Match) matches(s *Subject) bool {
	for _, p := range [][2]string{{m.Namespace, s.Namespace}, {m.Pod, s.Pod}, {m.Container, s.Container}, {m.Image, s.Image}} {
		if p[0] != "" && !Glob(p[0], p[1]) {
			return false
		}
	}
	for k, want := range m.Labels {
		if got, ok := s.Labels[k]; !ok || !Glob(want, got) {
			return false
		}
	}
	return true
}

// FindImage returns the first rule that matches an image; nil: none does.
func (r *Rules) FindImage(name string) *Image {
	if r == nil {
		return nil
	}
	for i := range r.Images {
		if Glob(r.Images[i].Image, name) {
			return &r.Images[i]
		}
	}
	return nil
}

// Takes returns how long a pull of size bytes takes. random is a number in [0,1).
func (i *Image) Takes(size uint64, random float64) time.Duration {
	d := i.Time.Duration + time.Duration((2*random-1)*float64(i.Jitter.Duration))
	if speed := i.Speed.AsApproximateFloat64(); speed > 0 {
		d += time.Duration(min(float64(size)/speed, maxTime.Seconds()) * float64(time.Second))
	}
	return max(0, d)
}

// Exit returns the end of an attempt; nil: the container's command decides. random is a number in [0,1) for its chance.
func (d *Do) Exit(attempt uint32, random float64) *Exit {
	if len(d.Exits) == 0 {
		return nil
	}
	e := &d.Exits[min(int(attempt), len(d.Exits)-1)]
	if e.Chance > 0 && random >= e.Chance {
		return &Exit{Runs: true}
	}
	return e
}

// Stop returns the time from the stop signal to the end, and whether the signal has no effect. set is false if the rule does not say.
func (d *Do) Stop() (after time.Duration, never, set bool) {
	return d.stops, d.neverEnd, d.StopAfter != "" || d.StopCode != 0
}

// ExecAnswer returns the answer to a command of a container that has run for a time; nil: the rule has none.
func (d *Do) ExecAnswer(command string, ran time.Duration) *Exec {
	for i := range d.Exec {
		if e := &d.Exec[i]; within(ran, e.From, e.Until) && Glob(e.Command, command) {
			return e
		}
	}
	return nil
}

// HTTPAnswer returns the answer to a request to a container that has run for a time; nil: the rule has none.
func (d *Do) HTTPAnswer(path string, port int32, ran time.Duration) *HTTP {
	for i := range d.HTTP {
		if h := &d.HTTP[i]; within(ran, h.From, h.Until) && (h.Port == 0 || h.Port == port) && (h.Path == "" || Glob(h.Path, path)) {
			return h
		}
	}
	return nil
}

func within(ran time.Duration, from, until metav1.Duration) bool {
	return ran >= from.Duration && (until.Duration == 0 || ran < until.Duration)
}

// Glob reports whether a text matches a pattern, in which * stands for any text and ? for one byte. It takes at most time proportional to the product
// of both lengths.
func Glob(pattern, text string) bool {
	p, t := 0, 0
	star, after := -1, 0 // the last star, and the position in text at which what follows it was tried last
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, after = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			after++
			p, t = star+1, after
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
