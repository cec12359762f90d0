package agenttest

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// outageSettles is how long after the API or the agent came back the agent may not know of a deletion yet: it asks again
// after a back-off.
const outageSettles = 60 * time.Second

// Rule is an invariant that the Witness holds.
type Rule string

// The rules, in the order of the design.
const (
	RuleOneInstance  Rule = "a container never has two live instances"
	RuleEnding       Rule = "nothing starts while a pod ends"
	RuleInits        Rule = "main containers start after the init containers"
	RuleAttempts     Rule = "attempts and restart counts only grow"
	RuleNames        Rule = "two pods of one name never overlap"
	RuleTerminal     Rule = "a terminal phase is never left"
	RuleGrace        Rule = "grace periods are honoured"
	RuleTerm         Rule = "TERM comes before KILL"
	RuleStopped      Rule = "a pod leaves the API when nothing of it runs"
	RuleConverges    Rule = "the API comes to say what the runtime does"
	RuleNothingStays Rule = "nothing of a deleted pod stays"
	RuleReadiness    Rule = "readiness does not flap"
	RuleEvents       Rule = "an event tells of what has happened, once"
	RuleUncalled     Rule = "nothing is stopped without a reason"
	RuleRuns         Rule = "what is to run runs again"
	RuleStatic       Rule = "a static pod outlives its mirror, and follows its manifest"
	RuleResize       Rule = "a resize is made, or it is said why not"
)

// Violation is a rule that broke.
type Violation struct {
	Rule Rule
	At   time.Time
	What string
}

// String is the violation on one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s %s: %s", v.At.Format("15:04:05.000"), v.Rule, v.What)
}

// Instance is a container of the runtime as the Witness saw it.
type Instance struct {
	ID, Name, Namespace, Pod, Sandbox string
	UID                               types.UID
	Attempt                           uint32
	Running                           bool
	Started                           time.Time
	ExitCode                          int32
}

// Witness watches the runtime and the API from outside and writes down every invariant that breaks. It sees every
// change at the moment of the change.
type Witness struct {
	// KnownWithin is how long after a deletion something may still start in the pod: the watch has to tell of it, and
	// an action that was under way has to ask for the image first. To be set before anything happens.
	KnownWithin time.Duration
	// KnowsAgainWithin is the same after an outage of the API, or the start of an agent.
	KnowsAgainWithin time.Duration
	// onBroken is called at the first violation.
	onBroken func()

	mu           sync.Mutex
	violations   []Violation
	containers   map[string]*Instance
	sandboxes    map[string]*sandboxSeen
	highest      map[string]uint32 // attempt by uid/container
	initDone     map[string]bool   // sandbox/container
	pods         map[types.UID]*podSeen
	down         bool              // no API
	noAgent      bool              // no agent
	agents       int               // how many have begun
	askedBy      map[types.UID]int // which of them asked for the pod's newest sandbox
	backAt       time.Time         // when the API or the agent last came back
	starts       int
	startsOf     map[string][]time.Time    // by uid/container, at most maxStarts
	exits        map[string]int32          // the last exit code by uid/container
	firstEnd     map[types.UID]time.Time   // of a container of the pod, or of an attempt to start one
	startsAll    map[string]int            // by uid
	termed       map[string]termed         // by the ID of a container that was asked to end with time to do so
	told         map[types.UID]int32       // events of starts: the count of each
	toldOf       map[string]int            // and their sum, by the pod's uid
	manifests    map[string]*manifestSeen  // by the full name of their pod
	statics      map[types.UID]*staticSeen // what the runtime was asked to run of them
	agentAt      time.Time                 // when the agent began
	clockAt      time.Time                 // when the machine's clock was last moved
	dialFailedAt time.Time                 // when a probe last did not reach a pod
}

const maxStarts = 64

type sandboxSeen struct {
	uid   types.UID
	name  string
	ready bool
	since time.Time
}

// podSeen is a pod as the API had it, also after it is gone.
type podSeen struct {
	pod       *v1.Pod
	deletedAt time.Time // first asked for
	mayKillAt time.Time // the earliest end of its grace period
	forced    bool
	gone      bool      // from the API
	readyAt   time.Time // when the API came to say so
	trouble   time.Time // when last a container or the sandbox of it ended
}

func newWitness() *Witness {
	return &Witness{KnownWithin: 5 * time.Second, KnowsAgainWithin: outageSettles, containers: map[string]*Instance{}, sandboxes: map[string]*sandboxSeen{}, highest: map[string]uint32{},
		initDone: map[string]bool{}, pods: map[types.UID]*podSeen{}, startsOf: map[string][]time.Time{}, exits: map[string]int32{},
		startsAll: map[string]int{}, termed: map[string]termed{}, askedBy: map[types.UID]int{}, told: map[types.UID]int32{}, toldOf: map[string]int{},
		firstEnd: map[types.UID]time.Time{}, manifests: map[string]*manifestSeen{}, statics: map[types.UID]*staticSeen{}}
}

// broken is called with the lock held.
func (w *Witness) broken(rule Rule, format string, args ...any) {
	if len(w.violations) == 0 && w.onBroken != nil {
		w.onBroken()
	}
	if len(w.violations) < 20 {
		w.violations = append(w.violations, Violation{rule, time.Now(), fmt.Sprintf(format, args...)})
	}
}

// note writes down what was found by other means.
func (w *Witness) note(rule Rule, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken(rule, format, args...)
}

func (w *Witness) outage(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = on
	w.backAt = time.Now()
}

func (w *Witness) agent(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noAgent = !on
	w.backAt = time.Now()
	if on {
		w.agents++
		w.agentAt = w.backAt
	}
}

// clockMoved notes that the machine's clock was moved: what an agent that starts later knows of earlier periods is wrong.
func (w *Witness) clockMoved() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clockAt = time.Now()
}

// deleting notes a deletion that the World asks for.
func (w *Witness) deleting(p *v1.Pod, grace *int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.pods[p.UID]
	if s == nil {
		return
	}
	seconds := *p.Spec.TerminationGracePeriodSeconds
	if grace != nil {
		seconds = *grace
	}
	first := s.deletedAt.IsZero()
	if first {
		s.deletedAt = time.Now()
	}
	// A shorter period counts from the first deletion too: so does the deletion timestamp.
	if at := s.deletedAt.Add(time.Duration(seconds) * time.Second); first || at.Before(s.mayKillAt) {
		s.mayKillAt = at
	}
	s.forced = s.forced || seconds == 0
}

// force says that a pod may leave the API whatever runs of it: somebody makes it do so.
func (w *Witness) force(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.pods[uid]; s != nil {
		s.forced = true
	}
}
