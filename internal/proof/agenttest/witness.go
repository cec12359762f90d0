package agenttest

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Rule is the name of an invariant that the Witness checks.
type Rule string

// These are the rules.
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
	RuleEvents       Rule = "an event reports something that has happened, once"
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

// String returns the violation on one line.
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
	Shares                            int64 // CPU shares that it was created with
	ExitCode                          int32
}

// Witness watches the runtime and the API from outside and records every invariant that breaks. It sees each change when it
// happens, and each answer that an agent receives. So it checks an agent's action against what the agent knew at that moment.
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
	manifests map[string]*manifestSeen  // by the full name of the pod
	versions  map[string]*v1.Pod        // the pod that each version of a manifest describes
	statics   map[types.UID]*staticSeen // the static pods that an agent asked the runtime to run
	shortage  shortage

	agents    int       // how many agents have started
	lastAgent *learned  // what the newest agent has learned
	agentAt   time.Time // when the newest agent started
	noAgent   bool
	rereads   time.Duration // how often an agent reads the manifests again
	moved     bool          // the machine's clock was set to another time

	diskFaultAt time.Time // when a fault of the disk last began or ended
}

// runtimeSeen is what the runtime has, and what it had before.
type runtimeSeen struct {
	containers map[string]*Instance
	sandboxes  map[string]*sandboxSeen
	newestOf   map[string]*Instance   // the newest attempt by uid/container, kept after its removal
	initDone   map[string]bool        // by sandbox/container
	creator    map[types.UID]int      // number of the agent that requested the pod's newest sandbox
	users      map[string][]types.UID // the pods that ever had an IP address, by address
	starts     int
	startsOf   map[string][]time.Time  // by uid/container, at most maxStarts
	startsAll  map[string]int          // by uid
	exits      map[string]int32        // the last exit code by uid/container
	over       map[types.UID]time.Time // when every container of a pod had ended for good
	termed     map[string]time.Time    // when the timeout of a StopContainer call ends, by container ID
}

// apiSeen is what the API has, and what it had before.
type apiSeen struct {
	pods       map[types.UID]*podSeen
	eventCount map[types.UID]int32 // the count of each Started event, by UID of the event
	eventsOf   map[string]int      // the sum of those counts, by UID of the pod
	sentStatus map[string]sent     // the last status that an agent sent, by namespace/name
}

// known is what agents have learned from the runtime, the API and their probes. It is kept when an agent restarts.
type known struct {
	ends        map[types.UID]*ends
	doomed      map[string]cause     // the cause for which a probe or a hook requires a container to end, by container ID
	streaks     map[probeKey]*streak // equal probe results in a row
	knownAlive  map[string]types.UID // containers and sandboxes that an agent saw alive, by ID
	unsaved     map[types.UID]bool   // pods with a checkpoint that could not be written
	held        map[types.UID][]span // when a slow disk blocked turns of the pod
	inspections map[types.UID]*inspection
	beganAnew   map[types.UID]bool      // static pods whose counts began at 0 again while an older mirror may remain
	troubleAt   map[types.UID]time.Time // when an agent last learned that a container or sandbox of the pod ended
	unreadyAt   map[types.UID]time.Time // when a probe last reached its failure threshold, or a hook last failed
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

// podSeen is a pod as the API had it. It is kept after the pod has left the API.
type podSeen struct {
	pod       *v1.Pod
	added     time.Time
	deletedAt time.Time // when the pod's deletion was first requested
	forced    bool
	gone      bool        // the pod has left the API
	readyAt   time.Time   // when an agent sent the newest status that says ready
	resizes   []time.Time // when the pod's resource requests changed
	finalAt   time.Time   // when the pod's phase became terminal
	fails     bool        // the pod was reported as not ready because it is going to fail
}

func newWitness() *Witness {
	return &Witness{
		tallies: map[Rule]*Armed{}, manifests: map[string]*manifestSeen{}, versions: map[string]*v1.Pod{}, statics: map[types.UID]*staticSeen{},
		runtimeSeen: runtimeSeen{
			containers: map[string]*Instance{}, sandboxes: map[string]*sandboxSeen{}, newestOf: map[string]*Instance{},
			initDone: map[string]bool{}, creator: map[types.UID]int{}, users: map[string][]types.UID{},
			startsOf: map[string][]time.Time{}, startsAll: map[string]int{}, exits: map[string]int32{},
			over: map[types.UID]time.Time{}, termed: map[string]time.Time{},
		},
		apiSeen: apiSeen{
			pods: map[types.UID]*podSeen{}, eventCount: map[types.UID]int32{}, eventsOf: map[string]int{}, sentStatus: map[string]sent{},
		},
		known: known{
			ends: map[types.UID]*ends{}, doomed: map[string]cause{}, streaks: map[probeKey]*streak{},
			knownAlive: map[string]types.UID{}, inspections: map[types.UID]*inspection{}, held: map[types.UID][]span{}, unsaved: map[types.UID]bool{}, beganAnew: map[types.UID]bool{}, troubleAt: map[types.UID]time.Time{}, unreadyAt: map[types.UID]time.Time{},
		},
	}
}

// broken records a violation. It is called with the lock held.
func (w *Witness) broken(rule Rule, format string, args ...any) {
	if len(w.violations) == 0 && w.onBroken != nil {
		w.onBroken()
	}
	if len(w.violations) < 20 {
		w.violations = append(w.violations, Violation{rule, time.Now(), fmt.Sprintf(format, args...)})
	}
}

// note records a violation that a test found by itself.
func (w *Witness) note(rule Rule, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken(rule, format, args...)
}

// agent records that an agent starts, with an empty record t of what it learns. With nil it records that the agent has ended.
func (w *Witness) agent(t *learned) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noAgent = t == nil
	if t != nil {
		w.agents++
		w.lastAgent = t
		w.agentAt = time.Now()
		clear(w.streaks) // an agent that starts counts results from zero
	}
}

// clockMoved records that the machine's clock was set to another time, so the times in an agent's checkpoints are wrong.
func (w *Witness) clockMoved() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved = true
}

// loaded records when a pod's end began according to the checkpoint that an agent reads. If the clock has been moved since, that time is
// wrong, but the agent cannot know this, so the time is used.
func (w *Witness) loaded(uid types.UID, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if began.IsZero() || !w.moved {
		return
	}
	if e := w.ends[uid]; e != nil {
		e.note(began, e.grace)
	} else if spec := w.specOf(uid); spec != nil {
		w.endOf(uid).note(began, graceOf(spec))
	}
}

// deleting records that the World requests the deletion of a pod.
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

// force allows a pod to leave the API while its containers run, because a user removes it by force.
func (w *Witness) force(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.pods[uid]; s != nil {
		s.forced = true
	}
}
