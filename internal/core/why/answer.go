package why

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// Answer says why a pod is in its state. Its JSON form is stable: fields are added, never renamed.
type Answer struct {
	Cause Cause `json:"cause"`
	Level Level `json:"level"`
	// Container is the container that the cause is about. It is empty if the cause is about the whole pod.
	Container string `json:"container,omitempty"`
	// Line is the answer in one sentence.
	Line string `json:"line"`
	// Since is when the cause began; zero: not known.
	Since time.Time `json:"since,omitzero"`
	// Next is what the node does next; NextAt is when, or zero if it happens after an event.
	Next   string    `json:"next,omitempty"`
	NextAt time.Time `json:"nextAt,omitzero"`
	// Facts are the observations that show the cause, the most important first, for example the termination message of the
	// container.
	Facts []string `json:"facts,omitempty"`
	// Do is what a person can do.
	Do []string `json:"do,omitempty"`

	// Ended is the ID of a container instance that has ended without a termination message. The caller should then pass the last lines
	// of its log to Output. Ended is empty if no log is needed.
	Ended string `json:"-"`
}

// maxOutput bounds the lines of a container's last output.
const maxOutput = 3

// Output adds the last lines that a container wrote before it ended; at most the last three are shown.
func (a *Answer) Output(lines []string) {
	var facts []string
	for _, l := range lines[max(0, len(lines)-maxOutput):] {
		if l = pod.TextMax(oneLine(l), maxFact/2); l != "" {
			facts = append(facts, "last output: "+l)
		}
	}
	a.Facts = append(facts, a.Facts...)
}

// lastWords adds the termination message of a container that has ended. Without a message, it sets Ended, so that the caller adds the
// end of the container's log.
func (a *Answer) lastWords(end *v1.ContainerStateTerminated) {
	if end.Message == "" {
		a.Ended = pod.BareID(end.ContainerID)
	}
	a.fact("last words", end.Message)
}

// maxFact bounds the bytes of one fact that comes from a container, a runtime or a driver.
const maxFact = 400

// set fills in the cause and its line.
func (a *Answer) set(c Cause, format string, args ...any) {
	a.Cause, a.Level, a.Line = c, c.Level(), pod.TextMax(oneLine(fmt.Sprintf(format, args...)), 2*maxFact)
}

// fact adds an observation to Facts, with its name and text, unless the text is empty.
func (a *Answer) fact(what, text string) {
	if text = pod.TextMax(oneLine(text), maxFact); text != "" {
		a.Facts = append(a.Facts, what+": "+text)
	}
}

// do adds a piece of advice to Do.
func (a *Answer) do(format string, args ...any) { a.Do = append(a.Do, fmt.Sprintf(format, args...)) }

// then sets what the node does next and when. A zero time means: after an event.
func (a *Answer) then(at time.Time, format string, args ...any) {
	a.Next, a.NextAt = fmt.Sprintf(format, args...), at
}

// oneLine joins the lines of a text.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\t' || r == '\r' }), " ")
}
