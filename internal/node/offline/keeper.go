package offline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/lastknown"
	"github.com/wherry-node/wherry/internal/edge/objects"
)

const (
	// writeAfter is how long the Keeper waits after a change before it writes, because several changes often follow each other.
	writeAfter = 2 * time.Second
	// writeEvery is the shortest time between two writes.
	writeEvery = 10 * time.Second
	// confirmEvery is how often the record is written without a change, to update its time. So the time in the record can be this old.
	confirmEvery = 5 * time.Minute
	// againEvery is how often a failed start or write is tried again.
	againEvery = 30 * time.Second
)

// Store is the record on disk. One goroutine calls it.
type Store interface {
	Load(now time.Time) (*lastknown.Record, error)
	Write(entries []lastknown.Entry, at time.Time) error
}

// Pods is the set of desired pods.
type Pods interface {
	List() []*v1.Pod
	Get(uid types.UID) (*v1.Pod, pod.Source)
	// Recall stores the pods of the record, unless the source has answered: then it returns false.
	Recall(src pod.Source, pods []*v1.Pod) bool
}

// Objects has the objects that pods refer to.
type Objects interface {
	State(namespaces []string) objects.State
	// Recall makes the pods get the objects of the state s, until Answered is called.
	Recall(s objects.State)
	Answered()
}

// Config configures a Keeper. All fields but Recalled are required.
type Config struct {
	NodeName string
	Store    Store
	Pods     Pods
	Objects  Objects
	// Node returns the Node as the API server last sent it to this agent; nil: this agent has not received it.
	Node func() *v1.Node
	// After is how long the API server may take to answer before the node starts from the record.
	After time.Duration
	// Recalled is called when the node starts from the record, before the pods of the record are passed to Pods.
	Recalled func(node *v1.Node)
	Log      *slog.Logger
}

// Keeper starts a node from the record and keeps the record.
type Keeper struct {
	cfg     Config
	reads   reads
	drivers keptDrivers
	changed chan struct{} // capacity 1
	// answered is closed when the API server has sent the pods of this node.
	answered chan struct{}
	once     sync.Once
	// loaded has the IDs of the entries that were in the record when Run loaded it.
	loaded map[lastknown.ID]bool

	mu      sync.Mutex
	contact error     // why the API server does not answer; nil: it answers, or no request has been sent yet
	refused error     // why the API server does not give the node an identity, although it answers; nil: it does not answer, or has given one
	since   time.Time // if the node runs from the record: when the API server answered last; otherwise zero
	node    *v1.Node  // the Node of the record, if the node has started from it
	problem string    // the last problem, which has been logged; "": none
}

// New returns a Keeper. It does no IO and starts nothing.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, reads: reads{seen: map[lastknown.ID]seen{}}, changed: make(chan struct{}, 1), answered: make(chan struct{})}
}

// Changed tells the Keeper that the API server has sent something new, which is to be written to the record.
func (k *Keeper) Changed() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// Contact tells the Keeper the result of a request for the node's pods. A nil err means that the API server has answered; otherwise err
// says why it has not.
func (k *Keeper) Contact(err error) {
	k.mu.Lock()
	k.contact = err
	k.mu.Unlock()
	if err == nil {
		k.once.Do(func() { close(k.answered) })
	}
}

// Refused tells the Keeper that the API server answers, and does not give the node an identity, with the reason. The node then does not start
// from the record: the cluster may have given its pods to other nodes. A nil err means that the server does not answer, or that the node
// has an identity.
func (k *Keeper) Refused(err error) {
	k.mu.Lock()
	k.refused = err
	k.mu.Unlock()
}

// Status says whether the node runs its pods from the record on disk, because the API server does not answer.
type Status struct {
	// Since is when the API server last answered. It is zero if the node does not run its pods from the record.
	Since time.Time
	// Problem says why the node has not started from the record, or why the record is not up to date; "": there is no problem.
	Problem string
}

// Status returns whether the node now runs its pods from the record on disk, and the last problem with the record.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return Status{Since: k.since, Problem: k.problem}
}

// Node returns the Node of the record if the node has started from it, otherwise nil. It must not be changed. As soon as the agent
// knows the Node from the API server, callers use that Node instead.
func (k *Keeper) Node() *v1.Node {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.node
}

// Run starts the node from the record if the API server does not answer, and then keeps the record until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	patience := time.NewTimer(k.cfg.After)
	defer patience.Stop()
	rec, err := k.load()
	select {
	case <-ctx.Done():
		return nil
	case <-k.answered:
	case <-patience.C:
		k.startFrom(ctx, rec, err)
	}
	if !k.awaitAnswer(ctx) {
		return nil
	}
	var settling sync.WaitGroup
	settling.Go(func() { k.drivers.settle(ctx) })
	k.keep(ctx)
	settling.Wait()
	return nil
}

// startFrom starts the node from the record. If the record cannot be used, startFrom tries again until the API server answers,
// because the reason may pass: the machine's clock may be set later, or a missing key may appear.
func (k *Keeper) startFrom(ctx context.Context, rec *lastknown.Record, err error) {
	for {
		if err == nil {
			err = k.barred()
		}
		if err == nil {
			k.say("", nil)
			k.recall(rec)
			return
		}
		k.say("this node does not start its pods from the record of what the API server last said", err)
		select {
		case <-ctx.Done():
			return
		case <-k.answered:
			return
		case <-time.After(againEvery):
		}
		rec, err = k.load()
	}
}

// barred returns an error if the API server answers, but refuses this node.
func (k *Keeper) barred() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if apierrors.IsUnauthorized(k.contact) || apierrors.IsForbidden(k.contact) {
		return errors.Join(errors.New("the API server answers and refuses this node: repair the node's credentials (kubeconfig)"), k.contact)
	}
	if k.refused != nil {
		return fmt.Errorf("the API server answers, and this node has no identity: %w", k.refused)
	}
	return nil
}

// say logs a problem once, until it changes, and keeps it for Status.
func (k *Keeper) say(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	k.mu.Lock()
	news := text != k.problem
	k.problem = text
	k.mu.Unlock()
	switch {
	case !news || err == nil:
	case errors.Is(err, lastknown.ErrNone):
		k.cfg.Log.Info(what+": there is none yet", "err", err)
	default:
		k.cfg.Log.Error(what, "err", err)
	}
}

// awaitAnswer waits for the API server's first answer, which ends the time offline. It returns false if ctx has ended.
func (k *Keeper) awaitAnswer(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-k.answered:
	}
	k.mu.Lock()
	since := k.since
	k.since, k.problem = time.Time{}, ""
	k.mu.Unlock()
	k.reads.setOffline(false)
	k.drivers.setOffline(false)
	k.cfg.Objects.Answered()
	if !since.IsZero() {
		k.cfg.Log.Info("the API server answers: from now on its word counts, no longer the record", "recordOf", since)
	}
	return true
}

// keep keeps the record up to date with the state that the API server sends, until ctx ends.
func (k *Keeper) keep(ctx context.Context) {
	timer := time.NewTimer(writeAfter)
	defer timer.Stop()
	next, last := time.Now().Add(writeAfter), time.Time{}
	for {
		pending := false
		select {
		case <-ctx.Done():
			k.write() // the next agent may have to start without the API server, for example after a power cut
			return
		case <-k.changed:
			at := time.Now().Add(writeAfter)
			if soonest := last.Add(writeEvery); at.Before(soonest) {
				at = soonest
			}
			if at.Before(next) {
				next = at
			}
			pending = true
		case <-timer.C:
		}
		if !pending {
			last = time.Now()
			next = last.Add(confirmEvery)
			if !k.write() {
				next = last.Add(againEvery)
			}
		}
		timer.Reset(time.Until(next))
	}
}

// write brings the record up to date, unless the API server does not answer at present. It returns false if it has failed.
func (k *Keeper) write() bool {
	k.mu.Lock()
	contact := k.contact
	k.mu.Unlock()
	if contact != nil {
		return true // the agent now learns nothing newer than the record, and a write would give the record a newer time
	}
	err := k.cfg.Store.Write(k.entries(), time.Now())
	if err == nil {
		k.recovered()
		return true
	}
	k.say("the record of what the API server says is not up to date: without the API server, this node would start with an older record", err)
	return errors.Is(err, lastknown.ErrTooLarge) // trying again does not help
}

func (k *Keeper) recovered() {
	k.mu.Lock()
	before := k.problem
	k.problem = ""
	k.mu.Unlock()
	if before != "" {
		k.cfg.Log.Info("the record of what the API server says is up to date again")
	}
}
