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

// These are the rules that the Witness checks.
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
	RuleVolumeInUse  Rule = "a mounted volume is in the Node's list volumesInUse"
	RuleVolumeOver   Rule = "no volume is published to a pod that is over"
	RuleVolumeAlone  Rule = "two pods never have a ReadWriteOncePod volume at once"
	RuleVolumeOnce   Rule = "a volume is staged once, and not unstaged while it is published"
	RuleVolumeRuns   Rule = "a container runs only while the volumes of its pod are mounted"
	RuleVolumeData   Rule = "nothing is removed below a mount"
)

// Violation tells when and how a rule was broken.
type Violation struct {
	Rule Rule
	At   time.Time
	What string
}

// String returns the violation in one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s %s: %s", v.At.Format("15:04:05.000"), v.Rule, v.What)
}

// Instance is a container in the runtime, as the Witness saw it.
type Instance struct {
	ID, Name, Namespace, Pod, Sandbox string
	UID                               types.UID
	Attempt                           uint32
	Running                           bool
	Exited                            bool
	Created, Started                  time.Time
	Shares                            int64 // CPU shares with which the container was created
	ExitCode                          int32
}

// Witness watches the runtime and the API from outside the agent, and records every violation of a rule. It sees each change when it
// happens, and each answer that an agent receives. So it can judge an agent's action by what the agent knew at that moment.
type Witness struct {
	// onBroken is called at the first violation; nil: nothing is called.
	onBroken func()

	mu         sync.Mutex
	violations []Violation
	suspects   []suspect
	tallies    map[Rule]*Armed
	runtimeSeen
	apiSeen
	volumesSeen
	known
	manifests map[string]*manifestSeen  // manifest of each static pod, by namespace/name
	versions  map[string]*v1.Pod        // pod that each version of a manifest describes
	statics   map[types.UID]*staticSeen // static pods that an agent has asked the runtime to run
	shortage  shortage

	agents    int       // number of agents that have started
	lastAgent *learned  // what the newest agent knows
	agentAt   time.Time // when the newest agent started
	noAgent   bool
	rereads   time.Duration // interval at which an agent reads the manifests again
	moved     bool          // the machine's clock has been changed

	diskFaultAt time.Time // when a fault of the disk last began or ended
}

// runtimeSeen records the sandboxes and containers that the runtime has now, and facts about those that it had before.
type runtimeSeen struct {
	containers map[string]*Instance
	sandboxes  map[string]*sandboxSeen
	newestOf   map[string]*Instance   // newest instance of each container, by UID/NAME; kept after its removal
	initDone   map[string]bool        // whether each init container has completed, by SANDBOX/NAME
	creator    map[types.UID]int      // number of the agent that asked for the newest sandbox of each pod
	users      map[string][]types.UID // pods that have ever had each IP address
	starts     int
	startsOf   map[string][]time.Time  // times of the first starts of each container (at most maxStarts), by UID/NAME
	startsAll  map[string]int          // number of starts of each pod's containers, by UID
	exits      map[string]int32        // last exit code of each container, by UID/NAME
	over       map[types.UID]time.Time // when all containers of a pod had ended for good, by UID
	termed     map[string]time.Time    // when the timeout of a container's last StopContainer ends, by container ID
}

// apiSeen records the pods and events that the API has now or had before.
type apiSeen struct {
	pods       map[types.UID]*podSeen
	eventCount map[types.UID]int32 // count of each Started event, by UID of the event
	eventsOf   map[string]int      // sum of these counts, by UID of the pod
	sentStatus map[string]sent     // last status that an agent has sent for each pod, by namespace/name
}

// known records the facts that all agents together have learned from the runtime, the API and their probes.
type known struct {
	ends        map[types.UID]*ends
	doomed      map[string]cause     // cause of the end of each container whose probe or hook failed, by container ID
	streaks     map[probeKey]*streak // number of failures in a row of each probe
	knownAlive  map[string]types.UID // pod of each container and sandbox that an agent has seen alive, by its ID
	unsaved     map[types.UID]bool   // pods whose last checkpoint could not be written
	held        map[types.UID][]span // times in which a slow disk blocked a turn of the pod's worker
	inspections map[types.UID]*inspection
	beganAnew   map[types.UID]bool      // static pods whose restart counts began at 0 again while an older mirror may still exist
	troubleAt   map[types.UID]time.Time // when an agent last learned that a container or sandbox of the pod had ended
	unreadyAt   map[types.UID]time.Time // when a probe of the pod last reached its failureThreshold, or a hook last failed
	recorded    *learned                // what the newest agent with Config.Record has learned; the next such agent knows it from its start
}

// sent is a status that an agent has sent, and when.
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

// podSeen is a pod as the API shows it or, after its end, has shown it.
type podSeen struct {
	pod       *v1.Pod
	added     time.Time
	deletedAt time.Time // when the pod's deletion was first requested
	forced    bool
	gone      bool        // the pod has left the API
	readyAt   time.Time   // when an agent sent the newest status that says Ready
	resizes   []time.Time // when the pod's resource requests were changed
	finalAt   time.Time   // when the pod's phase became terminal
	fails     bool        // an agent has reported the pod as not ready because the node ends it; it must not become ready again or succeed
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
		volumesSeen: volumesSeen{attached: map[string]bool{}, claims: map[string]*claimedSeen{}, alone: map[string]bool{}},
		known: known{
			ends: map[types.UID]*ends{}, doomed: map[string]cause{}, streaks: map[probeKey]*streak{},
			knownAlive: map[string]types.UID{}, inspections: map[types.UID]*inspection{}, held: map[types.UID][]span{}, unsaved: map[types.UID]bool{}, beganAnew: map[types.UID]bool{}, troubleAt: map[types.UID]time.Time{}, unreadyAt: map[types.UID]time.Time{},
		},
	}
}

// broken records a violation of the rule. The caller holds w.mu.
func (w *Witness) broken(rule Rule, format string, args ...any) {
	if len(w.violations) == 0 && w.onBroken != nil {
		w.onBroken()
	}
	if len(w.violations) < 20 {
		w.violations = append(w.violations, Violation{rule, time.Now(), fmt.Sprintf(format, args...)})
	}
}

// note records a violation that a test has found without the Witness.
func (w *Witness) note(rule Rule, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken(rule, format, args...)
}

// agent records that an agent starts. t is empty; the Witness adds to it what this agent learns. A nil t records that the agent ended.
func (w *Witness) agent(t *learned) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.noAgent = t == nil
	if t != nil {
		w.agents++
		w.lastAgent = t
		w.agentAt = time.Now()
		clear(w.streaks) // a new agent counts the failures of probes from 0
	}
}

// clockMoved records that the machine's clock was changed, so that the times in checkpoints are wrong.
func (w *Witness) clockMoved() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved = true
}

// loaded records when the end of a pod began, according to the checkpoint that an agent reads. After a change of the clock this time is
// wrong, but the agent cannot know that and uses it.
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

// deleting records that the test asks the API to delete a pod. grace is in seconds; nil: the pod's own.
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

// force records that a user removes a pod by force, so that it may leave the API while its containers run.
func (w *Witness) force(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.pods[uid]; s != nil {
		s.forced = true
	}
}
