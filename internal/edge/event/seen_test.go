package event

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// of returns an event about a pod, at a time.
func of(pod, reason, message string, at time.Time) *recorded {
	return &recorded{ref: v1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: pod, UID: types.UID(pod)}, eventType: "Normal", reason: reason, message: message, at: at}
}

// sizes returns the number of entries of each cache.
func (s *seen) sizes() [3]int {
	return [3]int{len(s.events.entries), len(s.reasons.entries), len(s.objects.entries)}
}

// memory returns for how many entries all caches have memory.
func (s *seen) memory() int {
	return cap(s.events.entries) + cap(s.reasons.entries) + cap(s.objects.entries)
}

// An entry that tidy drops makes no difference: events are named, counted, combined and dropped as they are without tidy. The events come
// in random order, with pauses that are a little shorter or longer than the times after which entries go.
func TestTidyChangesNoEvent(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		tidied, kept := newSeen(), newSeen()
		at := time.Unix(1_800_000_000, 0)
		var dropped, again, combined, spam int
		for range 6000 {
			ev := of(fmt.Sprint("p", r.IntN(2)), fmt.Sprint("r", r.IntN(3)), fmt.Sprint("m", r.IntN(14)), at)
			got, want := tidied.note(ev), kept.note(ev)
			if got != want {
				t.Fatalf("seed %d: %s of %s at %s: with tidy %+v, without %+v", seed, ev.reason, ev.ref.Name, at, got, want)
			}
			for _, c := range []struct {
				is bool
				n  *int
			}{{want.again, &again}, {want.combined, &combined}, {want.spam, &spam}} {
				if c.is {
					*c.n++
				}
			}
			if pauses := []time.Duration{alikeFor, spamEvery, time.Hour, spamBurst * spamEvery, countedFor}; r.IntN(150) == 0 {
				at = at.Add(pauses[r.IntN(len(pauses))] + time.Duration(r.IntN(5)-2)*time.Second)
			} else {
				at = at.Add(time.Duration(r.IntN(20)) * time.Second)
			}
			before := tidied.sizes()
			tidied.tidy(at)
			if tidied.sizes() != before {
				dropped++
			}
		}
		if dropped < 10 || again < 20 || combined < 20 || spam < 20 {
			t.Errorf("seed %d: tidy dropped something %d times; %d events occurred again, %d were combined, %d were too many: the test compares too little", seed, dropped, again, combined, spam)
		}
	}
}

// accepts is an events API that accepts all events.
type accepts struct{ sent chan<- *v1.Event }

func (a accepts) Create(_ context.Context, ev *v1.Event, _ metav1.CreateOptions) error {
	a.sent <- ev
	return nil
}

func (a accepts) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions) error {
	return nil
}

// A node on which many pods have run and are gone, and on which nothing happens any more, keeps no memory of their events. The events of a
// pod that is still there are counted on.
func TestEventsOfPodsThatAreGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan *v1.Event, 10_000)
		r := New(Config{API: func(string) API { return accepts{sent} }})
		ctx, cancel := context.WithCancel(t.Context())
		join := r.Open(ctx)
		defer func() { cancel(); join() }()
		tell := func(pod string) {
			for _, reason := range []string{"Pulling", "Pulled", "Created", "Started", "Killing"} {
				r.Record(&of(pod, "", "", time.Time{}).ref, v1.EventTypeNormal, reason, "x")
			}
		}
		tell("stays")
		for i := range 600 {
			pod := fmt.Sprint("p", i)
			tell(pod)
			r.Forget(types.UID(pod)) // its events are still in the queue
			synctest.Wait()
		}
		if len(sent) != 601*5 {
			t.Errorf("%d events were sent, want %d", len(sent), 601*5)
		}
		tell("stays") // 600 pods later, this pod is remembered
		synctest.Wait()
		if len(sent) != 601*5 {
			t.Errorf("%d events more were created, want none: the five of the pod that stays are counted", len(sent)-601*5)
		}
		time.Sleep(time.Hour)
		r.Tidy()
		if got, memory := r.seen.sizes(), r.seen.memory(); got != [3]int{5, 0, 0} || memory > 15 {
			t.Errorf("an hour later there are %d events, reasons and objects, and memory for %d; want the five events of the pod that stays", got, memory)
		}
		tell("stays")
		synctest.Wait()
		if len(sent) != 601*5 {
			t.Error("an hour later, an event of the pod that stays is created anew")
		}
		time.Sleep(countedFor + 2*time.Second)
		r.Tidy()
		if memory := r.seen.memory(); memory != 0 {
			t.Errorf("a day later there is memory for %d entries, want none", memory)
		}
	})
}

// While events wait for the API server, their times are old. Tidy keeps what matters for them: the tenth text of a reason is combined with
// the others however late it is sent.
func TestTidyWhileEventsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sent := make(chan *v1.Event, 100)
		open := make(chan struct{})
		r := New(Config{API: func(string) API { return accepts{sent} }, Turn: func(context.Context) (func(), error) {
			<-open
			return func() {}, nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		join := r.Open(ctx)
		defer func() { cancel(); join() }()
		for i := range alike {
			r.Record(&of("a", "", "", time.Time{}).ref, v1.EventTypeNormal, "Failed", fmt.Sprint(i))
		}
		synctest.Wait() // the first event waits for its turn, the others wait in the queue
		time.Sleep(3 * time.Hour)
		r.Tidy()
		r.Forget("a")
		close(open)
		synctest.Wait()
		if len(sent) != alike {
			t.Fatalf("%d events were sent, want %d", len(sent), alike)
		}
		var last *v1.Event
		for range alike {
			last = <-sent
		}
		if want := fmt.Sprint("(combined from similar events): ", alike-1); last.Message != want {
			t.Errorf("the last event is %q, want %q", last.Message, want)
		}
		if got := len(r.seen.events.entries) + len(r.seen.reasons.entries); got != 0 {
			t.Errorf("%d entries of a pod that is gone are left", got)
		}
	})
}
