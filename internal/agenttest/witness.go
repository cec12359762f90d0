package agenttest

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
	Exited                            bool
	Created, Started                  time.Time
	Shares                            int64 // of CPU, that it was made with
	ExitCode                          int32
}

// Witness watches the runtime and the API from outside and writes down every invariant that breaks. It sees every
// change at the moment of the change, and all that agents are told: what an agent does is judged by what it knew.
type Witness struct {
	// onBroken is called at the first violation.
	onBroken func()

	mu         sync.Mutex
	violations []Violation
	suspects   []suspect
	tallies    map[Rule]*Armed
	runtimeSeen
	apiSeen
	known
	manifests map[string]*manifestSeen  // by the full name of their pod
	versions  map[string]*v1.Pod        // what each version of a manifest said
	statics   map[types.UID]*staticSeen // what the runtime was asked to run of them

	agents   int       // how many agents there were
	lastTold *told     // what the newest was told
	agentAt  time.Time // when the newest began
	noAgent  bool
	rereads  time.Duration // how often agents look at their manifests
	moved    bool          // the machine's clock was moved
}

// runtimeSeen is what the runtime has and had.
type runtimeSeen struct {
	containers map[string]*Instance
	sandboxes  map[string]*sandboxSeen
	newestOf   map[string]*Instance   // the newest attempt by uid/container, also when it is removed
	initDone   map[string]bool        // by sandbox/container
	askedBy    map[types.UID]int      // which agent asked for the pod's newest sandbox
	users      map[string][]types.UID // the pods that ever had an address
	starts     int
	startsOf   map[string][]time.Time  // by uid/container, at most maxStarts
	startsAll  map[string]int          // by uid
	exits      map[string]int32        // the last exit code by uid/container
	over       map[types.UID]time.Time // when all of a pod had ended for good
	termed     map[string]time.Time    // when a container that was asked to end has had the time that it was given
}

// apiSeen is what the API has and had.
type apiSeen struct {
	pods       map[types.UID]*podSeen
	eventCount map[types.UID]int32 // events of starts: the count of each
	eventsOf   map[string]int      // and their sum, by the pod's uid
	sentStatus map[string]sent     // the last status that an agent sent, by namespace/name
}

// known is what agents were told that outlives one of them.
type known struct {
	ends        map[types.UID]*ends
	doomed      map[string]cause     // containers that a probe or a hook has failed, by ID
	streaks     map[probeKey]*streak // results of probes in a row
	aliveTold   map[string]types.UID // what agents were told is alive: containers and sandboxes by ID
	unsaved     map[types.UID]bool   // pods of which a checkpoint could not be written
	held        map[types.UID][]span // when the disk held up turns of the pod
	inspections map[types.UID]*inspection
	beganAnew   map[types.UID]bool      // static pods of which something began anew while a mirror may have outlived it
	troubleTold map[types.UID]time.Time // when last the end of a container or sandbox of the pod was told
	unreadyTold map[types.UID]time.Time // when last a probe or hook of the pod failed for the threshold's time
}

// sent is a status on its way to the API server.
type sent struct {
	at   time.Time
	body string
}

const maxStarts = 64

type sandboxSeen struct {
	uid   types.UID
	name  string
	ready bool
	since time.Time
	ip    string
}

// podSeen is a pod as the API had it, also after it is gone.
type podSeen struct {
	pod       *v1.Pod
	added     time.Time
	deletedAt time.Time // first asked for
	forced    bool
	gone      bool        // from the API
	readyAt   time.Time   // when the newest status that says ready was sent
	resizes   []time.Time // when other resources were asked for
	finalAt   time.Time   // when a terminal phase came
}

func newWitness() *Witness {
	return &Witness{
		tallies: map[Rule]*Armed{}, manifests: map[string]*manifestSeen{}, versions: map[string]*v1.Pod{}, statics: map[types.UID]*staticSeen{},
		runtimeSeen: runtimeSeen{
			containers: map[string]*Instance{}, sandboxes: map[string]*sandboxSeen{}, newestOf: map[string]*Instance{},
			initDone: map[string]bool{}, askedBy: map[types.UID]int{}, users: map[string][]types.UID{},
			startsOf: map[string][]time.Time{}, startsAll: map[string]int{}, exits: map[string]int32{},
			over: map[types.UID]time.Time{}, termed: map[string]time.Time{},
		},
		apiSeen: apiSeen{
			pods: map[types.UID]*podSeen{}, eventCount: map[types.UID]int32{}, eventsOf: map[string]int{}, sentStatus: map[string]sent{},
		},
		known: known{
			ends: map[types.UID]*ends{}, doomed: map[string]cause{}, streaks: map[probeKey]*streak{},
			aliveTold: map[string]types.UID{}, inspections: map[types.UID]*inspection{}, held: map[types.UID][]span{}, unsaved: map[types.UID]bool{}, beganAnew: map[types.UID]bool{}, troubleTold: map[types.UID]time.Time{}, unreadyTold: map[types.UID]time.Time{},
		},
	}
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

// agent notes that an agent begins, with what it has been told, or, where that is nil, that one has ended.
func (w *Witness) agent(t *told) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noAgent = t == nil
	if t != nil {
		w.agents++
		w.lastTold = t
		w.agentAt = time.Now()
		clear(w.streaks) // an agent that starts counts from nothing
	}
}

// clockMoved notes that the machine's clock was moved: times that an agent kept are wrong by that.
func (w *Witness) clockMoved() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved = true
}

// loaded notes that an agent reads from its disk when it began to end a pod. Where the clock was moved since, that is
// what it has to go by.
func (w *Witness) loaded(uid types.UID, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if began.IsZero() || !w.moved {
		return
	}
	if e := w.ends[uid]; e != nil {
		e.tell(began, e.grace)
	} else if spec := w.specOf(uid); spec != nil {
		w.endOf(uid).tell(began, graceOf(spec))
	}
}

// deleting notes a deletion that the World asks for.
func (w *Witness) deleting(p *v1.Pod, grace *int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.pods[p.UID]
	if s == nil {
		return
	}
	if s.deletedAt.IsZero() {
		s.deletedAt = time.Now()
	}
	s.forced = s.forced || grace != nil && *grace == 0 || grace == nil && *p.Spec.TerminationGracePeriodSeconds == 0
}

// force says that a pod may leave the API whatever runs of it: somebody makes it do so.
func (w *Witness) force(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.pods[uid]; s != nil {
		s.forced = true
	}
}
