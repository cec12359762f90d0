package criproxy

import (
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// Call is a call that has ended. It has sizes, and no content of a message.
type Call struct {
	Began time.Time
	Took  time.Duration
	// Method is the name of the method: PullImage, or SERVICE/METHOD for a method that is not of CRI.
	Method string
	Code   codes.Code
	// Request and Answer are the bytes of all messages that were forwarded in each direction, and Answers is the number of messages from the
	// runtime.
	Request, Answer, Answers int64
	// Fault says which fault affected the call; "": none.
	Fault string
}

// State is the state of a Proxy.
type State struct {
	// Connection is the state of the connection to the runtime, in gRPC's words: READY, CONNECTING, TRANSIENT_FAILURE.
	Connection string `json:"connection"`
	InFlight   int    `json:"inFlight"`
	// EventsLost is how many events of containers have been dropped.
	EventsLost int           `json:"eventsLost"`
	Faults     []ActiveFault `json:"faults"`
	Methods    []MethodState `json:"methods"` // of the methods that were called, sorted by name
}

// ActiveFault is a fault that is active.
type ActiveFault struct {
	Text  string    `json:"text"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"` // zero: until Heal
	Hits  int       `json:"hits"`           // how many calls or events it has affected
}

// MethodState has the calls of one method.
type MethodState struct {
	Method   string `json:"method"`
	Calls    int    `json:"calls"` // with those in flight
	InFlight int    `json:"inFlight"`
	Failed   int    `json:"failed"`  // how many have ended with an error, of the runtime or of a fault
	Faulted  int    `json:"faulted"` // how many were affected by a fault
	// Mean and Longest are times of calls that have ended, in nanoseconds.
	Mean    time.Duration `json:"mean"`
	Longest time.Duration `json:"longest"`
}

// counts has the calls of one method. The proxy's lock guards it.
type counts struct {
	calls, inFlight, failed, faulted int
	total, longest                   time.Duration
}

// countsOf returns the counts of a method, and the name under which it is counted. The caller holds the lock.
func (p *Proxy) countsOf(name string) (string, *counts) {
	m := p.methods[name]
	if m == nil && (len(name) > maxName || len(p.methods) >= maxMethods) {
		name = otherMethod
		m = p.methods[name]
	}
	if m == nil {
		m = &counts{}
		p.methods[name] = m
	}
	return name, m
}

// State returns the present state.
func (p *Proxy) State() State {
	s := State{Connection: p.conn.GetState().String(), Faults: []ActiveFault{}, Methods: []MethodState{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	s.EventsLost = p.eventsLost
	for _, a := range p.faults {
		s.Faults = append(s.Faults, ActiveFault{Text: a.text, Since: a.since, Until: a.until, Hits: a.hits})
	}
	for name, c := range p.methods {
		m := MethodState{Method: name, Calls: c.calls, InFlight: c.inFlight, Failed: c.failed, Faulted: c.faulted, Longest: c.longest}
		if ended := c.calls - c.inFlight; ended > 0 {
			m.Mean = c.total / time.Duration(ended)
		}
		s.InFlight += c.inFlight
		s.Methods = append(s.Methods, m)
	}
	inorder.Sort(s.Methods, func(a, b MethodState) int { return strings.Compare(a.Method, b.Method) })
	return s
}
