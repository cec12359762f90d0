package decide_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/proof/script"
)

// nonzero prints the nonzero fields of a struct, and times as seconds since the epoch.
func nonzero(b *strings.Builder, indent string, v reflect.Value) {
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if f.IsZero() {
			continue
		}
		if v.Type().Field(i).Anonymous {
			nonzero(b, indent, f)
			continue
		}
		switch x := f.Interface().(type) {
		case time.Time:
			fmt.Fprintf(b, "%s%s: +%s\n", indent, name, x.Sub(epoch))
			continue
		case *decide.Stop:
			fmt.Fprintf(b, "%s%s:\n", indent, name)
			nonzero(b, indent+"  ", f.Elem())
			continue
		case *pod.Allocation:
			fmt.Fprintf(b, "%s%s: of %d containers\n", indent, name, len(x.Containers))
			continue
		case *time.Duration:
			fmt.Fprintf(b, "%s%s: %s\n", indent, name, *x)
			continue
		}
		if f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct {
			for j := range f.Len() {
				fmt.Fprintf(b, "%s%s:\n", indent, name)
				nonzero(b, indent+"  ", f.Index(j))
			}
			continue
		}
		fmt.Fprintf(b, "%s%s: %v\n", indent, name, f.Interface())
	}
}

// TestMemory compares the memory after sequences of outcomes and plans with testdata/memory.txt.
func TestMemory(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, tt := range memoryCases() {
		m, pol := decide.Memory{}, decide.DefaultPolicy()
		fmt.Fprintf(&b, "# %s\n", tt.name)
		if tt.before != nil {
			tt.before(&m)
		}
		for i, o := range tt.outcomes {
			if o.Ended.IsZero() {
				o.Began, o.Ended = epoch.Add(time.Duration(10*i)*time.Second), epoch.Add(time.Duration(10*i+1)*time.Second)
			}
			if decide.Note(&m, tt.pod, o, &pol) {
				fmt.Fprintln(&b, "  to be kept")
			}
		}
		for _, p := range tt.plans {
			kept := decide.Remember(&m, &p)
			again := decide.Remember(&m, &p)
			fmt.Fprintf(&b, "  to be kept: %v\n", kept)
			if again {
				t.Errorf("%s: remembered twice", tt.name)
			}
		}
		if tt.then != nil {
			tt.then(&m)
		}
		nonzero(&b, "    ", reflect.ValueOf(m))
	}
	script.Golden(t, "testdata/memory.txt", b.String(), *update)
}

type memoryCase struct {
	name     string
	pod      *v1.Pod
	before   func(m *decide.Memory)
	outcomes []pod.Outcome
	plans    []decide.Plan
	then     func(m *decide.Memory)
}

func memoryCases() []memoryCase {
	bad := errors.New("it failed")
	app := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app", Image: "img"}}}}
	other := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app", Image: "img2"}}}}
	ok := func(op pod.Op, id string) pod.Outcome { return pod.Outcome{Action: pod.Action{Op: op, ID: id}} }
	failed := func(op pod.Op, id string) pod.Outcome {
		return pod.Outcome{Action: pod.Action{Op: op, ID: id}, Err: bad, Reason: "Reason", Message: "message"}
	}
	of := func(op pod.Op, id string, change func(*pod.Outcome)) pod.Outcome {
		o := pod.Outcome{Action: pod.Action{Op: op, Container: "app", ID: id, Attempt: 3}}
		if change != nil {
			change(&o)
		}
		return o
	}
	fails := func(o *pod.Outcome) { o.Err = bad }
	says := func(o *pod.Outcome) { o.Err, o.Reason, o.Message = bad, "ErrImagePull", "not found" }
	unknown := func(o *pod.Outcome) { o.Err, o.Unknown = bad, true }
	canceled := func(o *pod.Outcome) { o.Err, o.Canceled = bad, true }
	made := func(o *pod.Outcome) { o.ID = "app-3" }
	madeNotStarted := func(o *pod.Outcome) { o.ID, o.Err = "app-3", bad }
	hour := func(o *pod.Outcome) { o.Began, o.Ended = epoch.Add(time.Hour), epoch.Add(time.Hour+time.Second) }
	grace := 5 * time.Second
	cases := []memoryCase{
		{name: "set up", outcomes: []pod.Outcome{ok(pod.OpSetUp, "")}},
		{name: "set-up failed", outcomes: []pod.Outcome{ok(pod.OpSetUp, ""), failed(pod.OpSetUp, "")}},
		{name: "set-up failed twice", outcomes: []pod.Outcome{failed(pod.OpSetUp, ""), failed(pod.OpSetUp, "")}},
		{name: "set-up failed and then did not", outcomes: []pod.Outcome{failed(pod.OpSetUp, ""), ok(pod.OpSetUp, "")}},
		{name: "set-up unknown", outcomes: []pod.Outcome{{Action: pod.Action{Op: pod.OpSetUp}, Unknown: true}}},
		{name: "set up after torn down", outcomes: []pod.Outcome{ok(pod.OpTearDown, ""), ok(pod.OpSetUp, "")}},
		{name: "torn down", outcomes: []pod.Outcome{ok(pod.OpSetUp, ""), ok(pod.OpTearDown, "")}},
		{name: "tear-down failed", outcomes: []pod.Outcome{ok(pod.OpSetUp, ""), failed(pod.OpTearDown, "")}},
		{name: "forgotten", outcomes: []pod.Outcome{ok(pod.OpForget, "")}},
		{name: "forget failed", outcomes: []pod.Outcome{failed(pod.OpForget, "")}},
		{name: "a sandbox", outcomes: []pod.Outcome{{Action: pod.Action{Op: pod.OpRunSandbox, Attempt: 2}, ID: "sb"}}},
		{name: "a sandbox failed", outcomes: []pod.Outcome{{Action: pod.Action{Op: pod.OpRunSandbox, Attempt: 2}, Err: bad}}},
		{name: "a sandbox failed half way", outcomes: []pod.Outcome{{Action: pod.Action{Op: pod.OpRunSandbox, Attempt: 2}, Err: bad, ID: "sb"}}},
		{name: "a sandbox unknown", outcomes: []pod.Outcome{{Action: pod.Action{Op: pod.OpRunSandbox, Attempt: 2}, Err: bad, Unknown: true}}},
		{name: "a sandbox of a lower attempt", outcomes: []pod.Outcome{{Action: pod.Action{Op: pod.OpRunSandbox, Attempt: 2}}, {Action: pod.Action{Op: pod.OpRunSandbox, Attempt: 1}}}},
		{name: "a sandbox an hour after another", outcomes: []pod.Outcome{
			{Action: pod.Action{Op: pod.OpRunSandbox}}, {Action: pod.Action{Op: pod.OpRunSandbox, Attempt: 1}, Began: epoch.Add(time.Hour), Ended: epoch.Add(time.Hour)}}},
		{name: "a sandbox stopped", outcomes: []pod.Outcome{ok(pod.OpStopSandbox, "sb"), ok(pod.OpStopSandbox, "sb"), ok(pod.OpStopSandbox, "sb2")}},
		{name: "a sandbox not stopped", outcomes: []pod.Outcome{failed(pod.OpStopSandbox, "sb")}},
		{name: "a sandbox stopped and removed", outcomes: []pod.Outcome{ok(pod.OpStopSandbox, "sb"), ok(pod.OpStopSandbox, "sb2"), ok(pod.OpRemoveSandbox, "sb")}},
		{name: "a sandbox stopped and not removed", outcomes: []pod.Outcome{ok(pod.OpStopSandbox, "sb"), failed(pod.OpRemoveSandbox, "sb")}},
		{name: "a container removed", outcomes: []pod.Outcome{ok(pod.OpRemoveContainer, "c")}},
		{name: "old waits are dropped", outcomes: []pod.Outcome{failed(pod.OpTearDown, ""), failed(pod.OpRemoveContainer, "c"), func() pod.Outcome { o := failed(pod.OpSetUp, ""); hour(&o); return o }()}},
		{name: "pulled", pod: app, outcomes: []pod.Outcome{of(pod.OpPullImage, "", func(o *pod.Outcome) { o.ID = "sha256:1" })}},
		{name: "not pulled", pod: app, outcomes: []pod.Outcome{of(pod.OpPullImage, "", says)}},
		{name: "not pulled, without a word", pod: app, outcomes: []pod.Outcome{of(pod.OpPullImage, "", fails)}},
		{name: "not pulled twice", pod: app, outcomes: []pod.Outcome{of(pod.OpPullImage, "", says), of(pod.OpPullImage, "", says)}},
		{name: "not pulled, and no spec", outcomes: []pod.Outcome{of(pod.OpPullImage, "", says)}},
		{name: "pulled at last", pod: app, outcomes: []pod.Outcome{of(pod.OpPullImage, "", says), of(pod.OpPullImage, "", nil)}},
		{name: "pulled, waits for another reason", pod: app, outcomes: []pod.Outcome{of(pod.OpStartContainer, "", fails), of(pod.OpPullImage, "", nil)}},
		{name: "a pull cancelled", pod: app, outcomes: []pod.Outcome{of(pod.OpPullImage, "", says), of(pod.OpPullImage, "", canceled)}},
		{name: "started", outcomes: []pod.Outcome{of(pod.OpStartContainer, "", made)}},
		{name: "started again after a failure", outcomes: []pod.Outcome{of(pod.OpStartContainer, "", madeNotStarted), of(pod.OpStartContainer, "", made)}},
		{name: "not created", outcomes: []pod.Outcome{of(pod.OpStartContainer, "", fails)}},
		{name: "not created twice", outcomes: []pod.Outcome{of(pod.OpStartContainer, "", fails), of(pod.OpStartContainer, "", fails)}},
		{name: "created and not started", outcomes: []pod.Outcome{of(pod.OpStartContainer, "", madeNotStarted)}},
		{name: "adopted and not started", outcomes: []pod.Outcome{of(pod.OpStartContainer, "app-3", fails)}},
		{name: "a start unknown", outcomes: []pod.Outcome{of(pod.OpStartContainer, "", unknown)}},
		{name: "a start of one created unknown", outcomes: []pod.Outcome{of(pod.OpStartContainer, "app-3", unknown)}},
		{name: "a lower attempt", outcomes: []pod.Outcome{of(pod.OpStartContainer, "", made), of(pod.OpStartContainer, "", func(o *pod.Outcome) { o.Action.Attempt, o.ID = 1, "app-1" })}},
		{name: "the image is asked for again", pod: app, outcomes: []pod.Outcome{of(pod.OpPullImage, "", nil), of(pod.OpStartContainer, "", made)}},
		{name: "postStart", outcomes: []pod.Outcome{of(pod.OpPostStart, "app-3", nil)}},
		{name: "postStart failed", outcomes: []pod.Outcome{of(pod.OpPostStart, "app-3", fails)}},
		{name: "postStart cancelled", outcomes: []pod.Outcome{of(pod.OpPostStart, "app-3", canceled)}},
		{name: "preStop", outcomes: []pod.Outcome{of(pod.OpPreStop, "app-3", nil)}},
		{name: "preStop, and the clock went back", outcomes: []pod.Outcome{of(pod.OpPreStop, "app-3", func(o *pod.Outcome) { o.Began, o.Ended = epoch.Add(time.Minute), epoch.Add(time.Second) })}},
		{name: "stopped", outcomes: []pod.Outcome{of(pod.OpStopContainer, "app-3", nil)}},
		{name: "not stopped", outcomes: []pod.Outcome{of(pod.OpStopContainer, "app-3", fails)}},
		{name: "a stop unknown", outcomes: []pod.Outcome{of(pod.OpStopContainer, "app-3", func(o *pod.Outcome) { o.Unknown = true })}},
		{name: "stopped, then not", outcomes: []pod.Outcome{of(pod.OpStopContainer, "app-3", nil), of(pod.OpStopContainer, "app-3", fails)}},
		{name: "another stopped", outcomes: []pod.Outcome{of(pod.OpStopContainer, "app-3", nil), of(pod.OpStopContainer, "app-3", nil), of(pod.OpStopContainer, "app-4", fails)}},
		{name: "the newest outcome counts", outcomes: []pod.Outcome{of(pod.OpStopContainer, "app-3", func(o *pod.Outcome) { hour(o) }), of(pod.OpStopContainer, "app-3", nil)}},
	}
	size, big := pod.Size{CPURequest: 100}, pod.Size{CPURequest: 200}
	sized := func(size pod.Size, o pod.Outcome) pod.Outcome { o.Action.Size = size; return o }
	resize := func(container, id string, change func(*pod.Outcome)) pod.Outcome {
		o := pod.Outcome{Action: pod.Action{Op: pod.OpResize, Container: container, ID: id, Size: size}}
		if change != nil {
			change(&o)
		}
		return o
	}
	resized := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
	cases = append(cases,
		memoryCase{name: "the image of before is not that of now", pod: other, outcomes: []pod.Outcome{of(pod.OpPullImage, "", says)}, then: func(m *decide.Memory) {
			pol := decide.DefaultPolicy()
			decide.Note(m, app, of(pod.OpPullImage, "", nil), &pol)
			decide.Note(m, other, of(pod.OpPullImage, "", says), &pol)
		}},
		memoryCase{name: "another image than the container's, for another reason", pod: app, outcomes: []pod.Outcome{of(pod.OpPullImage, "", func(o *pod.Outcome) {
			o.Err, o.Reason, o.ID = bad, "ErrImageNeverPull", "volume-image"
		})}},
		memoryCase{name: "started, and nobody says which", outcomes: []pod.Outcome{of(pod.OpStartContainer, "", nil)}},
		memoryCase{name: "a start unknown, without an error", outcomes: []pod.Outcome{of(pod.OpStartContainer, "", func(o *pod.Outcome) { o.Unknown = true })}},
		memoryCase{name: "started with a size", outcomes: []pod.Outcome{sized(size, of(pod.OpStartContainer, "", made))}},
		memoryCase{name: "a created one has the size that its maker gave it", outcomes: []pod.Outcome{sized(size, of(pod.OpStartContainer, "app-3", made))}},
		memoryCase{name: "not created, no size", outcomes: []pod.Outcome{sized(size, of(pod.OpStartContainer, "", fails))}},
		memoryCase{name: "a group", outcomes: []pod.Outcome{sized(size, ok(pod.OpSetUp, "")), sized(size, ok(pod.OpSetUp, "")), sized(big, ok(pod.OpSetUp, ""))}},
		memoryCase{name: "a group made again", outcomes: []pod.Outcome{sized(size, ok(pod.OpSetUp, "")), ok(pod.OpTearDown, ""), sized(size, ok(pod.OpSetUp, ""))}},
		memoryCase{name: "a group without a size", outcomes: []pod.Outcome{sized(size, ok(pod.OpSetUp, "")), ok(pod.OpSetUp, "")}},
		memoryCase{name: "a group resized", outcomes: []pod.Outcome{resize("", "", nil)}},
		memoryCase{name: "a container resized", outcomes: []pod.Outcome{resize("app", "app-3", nil)}},
		memoryCase{name: "a resize unknown", pod: resized, outcomes: []pod.Outcome{resize("app", "app-3", func(o *pod.Outcome) { o.Unknown = true })}},
		memoryCase{name: "a resize cancelled", pod: resized, outcomes: []pod.Outcome{resize("app", "app-3", canceled)}},
		memoryCase{name: "a resize failed, and no spec", outcomes: []pod.Outcome{resize("app", "app-3", fails)}},
		memoryCase{name: "a resize failed", pod: resized, outcomes: []pod.Outcome{resize("app", "app-3", fails), resize("app", "app-3", fails)}},
		memoryCase{name: "a resize failed for another reason", pod: resized, outcomes: []pod.Outcome{resize("app", "app-3", fails), resize("app", "app-3", says)}},
		memoryCase{name: "a resize in progress failed", outcomes: []pod.Outcome{resize("app", "app-3", nil)}, then: func(m *decide.Memory) {
			m.Resize = decide.Resize{InProgress: true, Generation: 3, Since: epoch}
			pol := decide.DefaultPolicy()
			o := resize("app", "app-3", fails)
			o.Ended = epoch.Add(time.Minute)
			decide.Note(m, resized, o, &pol)
			o.Ended = epoch.Add(time.Hour)
			decide.Note(m, resized, o, &pol)
		}},
	)
	plans := []memoryCase{
		{name: "resized", plans: []decide.Plan{{Resized: true}}, before: func(m *decide.Memory) { m.Resize.Accept(3, epoch) }},
		{name: "resized, and nothing was in progress", plans: []decide.Plan{{Resized: true}}},
		{name: "an end without any grace", plans: []decide.Plan{{Ending: true, StopBegan: epoch.Add(time.Second)}}},
		{name: "a plan with nothing to remember", plans: []decide.Plan{{}}},
		{name: "the pod's own deadline", plans: []decide.Plan{{Stop: &decide.Stop{Reason: "DeadlineExceeded", Since: epoch}}}},
		{name: "the first reason counts", plans: []decide.Plan{{Stop: &decide.Stop{Reason: "DeadlineExceeded"}}, {Stop: &decide.Stop{Reason: "Other"}}}},
		{name: "an end", plans: []decide.Plan{{Ending: true, StopBegan: epoch.Add(time.Second), StopGrace: 30 * time.Second}}},
		{name: "an end with less grace", plans: []decide.Plan{
			{Ending: true, StopBegan: epoch.Add(time.Second), StopGrace: 30 * time.Second}, {Ending: true, StopBegan: epoch.Add(time.Second), StopGrace: time.Second}}},
		{name: "no end", plans: []decide.Plan{{StopBegan: epoch.Add(time.Second), StopGrace: 30 * time.Second}}},
		{name: "ended to start again", plans: []decide.Plan{{Replaced: []decide.Replacement{{Name: "app", ID: "app-3", Cause: pod.CauseChanged}}}}},
		{name: "ended to start again, for another cause", plans: []decide.Plan{
			{Replaced: []decide.Replacement{{Name: "app", ID: "app-3", Cause: pod.CauseLiveness}}},
			{Replaced: []decide.Replacement{{Name: "app", ID: "app-3", Cause: pod.CauseChanged}}}}},
		{name: "ended to start again, said twice", plans: []decide.Plan{
			{Replaced: []decide.Replacement{{Name: "app", ID: "app-3", Cause: pod.CauseLiveness}}},
			{Replaced: []decide.Replacement{{Name: "app", ID: "app-3", Cause: pod.CauseLiveness}}}}},
		{name: "told to end alone, and nothing new after it", plans: []decide.Plan{
			{Ends: []decide.End{{Name: "app", ID: "app-3"}, {Name: "app", ID: "app-3"}}}}},
		{name: "told to end alone", plans: []decide.Plan{{Ends: []decide.End{{Name: "app", ID: "app-3", Cause: pod.CauseLiveness, Began: epoch.Add(time.Second), Grace: time.Minute}}}}},
		{name: "told to end alone, and the next instance too", plans: []decide.Plan{
			{Ends: []decide.End{{Name: "app", ID: "app-3", Cause: pod.CauseLiveness, Began: epoch.Add(time.Second), Grace: time.Minute}}},
			{Ends: []decide.End{{Name: "app", ID: "app-4", Began: epoch.Add(2 * time.Second), Grace: time.Second}}}}},
		{name: "what decides is not what people read", plans: []decide.Plan{{Do: []pod.Action{{Op: pod.OpStopContainer, Container: "app", ID: "app-3", Why: decide.WhyChanged}}}}},
		{name: "finished", plans: []decide.Plan{{Finished: true}, {}}},
		{name: "orphaned", plans: []decide.Plan{{Orphaned: true}, {}}},
		{name: "restarting all", plans: []decide.Plan{{RestartingAll: true}}},
		{name: "restarted all", plans: []decide.Plan{{RestartingAll: true}, {}}},
		{name: "an end of a container", plans: []decide.Plan{{Crashes: []decide.Crash{{Name: "app", ID: "app-3", Until: epoch.Add(time.Second), Next: time.Minute}}}}},
		{name: "the ends of two", plans: []decide.Plan{
			{Crashes: []decide.Crash{{Name: "app", ID: "app-3", Until: epoch.Add(time.Second), Next: time.Minute}}},
			{Crashes: []decide.Crash{{Name: "app", ID: "app-3", Until: epoch.Add(time.Second), Next: time.Minute}, {Name: "job", ID: "job-1", Until: epoch.Add(time.Second)}}}}},
		{name: "the same end, later", plans: []decide.Plan{
			{Crashes: []decide.Crash{{Name: "app", ID: "app-3", Until: epoch.Add(time.Second), Next: time.Minute}}},
			{Crashes: []decide.Crash{{Name: "app", ID: "app-3", Until: epoch.Add(2 * time.Second), Next: time.Minute}}}}},
		{name: "the same end, with another wait", plans: []decide.Plan{
			{Crashes: []decide.Crash{{Name: "app", ID: "app-3", Until: epoch.Add(time.Second), Next: time.Minute}}},
			{Crashes: []decide.Crash{{Name: "app", ID: "app-3", Until: epoch.Add(time.Second), Next: 2 * time.Minute}}}}},
		{name: "the same times of another", plans: []decide.Plan{
			{Crashes: []decide.Crash{{Name: "app", ID: "app-3", Until: epoch.Add(time.Second), Next: time.Minute}}},
			{Crashes: []decide.Crash{{Name: "app", ID: "app-4", Until: epoch.Add(time.Second), Next: time.Minute}}}}},
	}
	full := func(m *decide.Memory) { *m = fullMemory(grace) }
	second := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "job"}}, InitContainers: []v1.Container{{Name: "init"}, {Name: "app"}}}}
	return append(append(cases, plans...),
		memoryCase{name: "refreshed", outcomes: []pod.Outcome{ok(pod.OpSetUp, ""), failed(pod.OpTearDown, ""), of(pod.OpStartContainer, "", fails), failed(pod.OpSetUp, "")},
			then: func(m *decide.Memory) { m.SetUp = true; m.Refresh() }},
		memoryCase{name: "refreshed before anything was set up", outcomes: []pod.Outcome{failed(pod.OpSetUp, "")}, then: (*decide.Memory).Refresh},
		memoryCase{name: "another image owes nothing", pod: other, outcomes: []pod.Outcome{of(pod.OpPullImage, "", says)}, then: func(m *decide.Memory) {
			pol := decide.DefaultPolicy()
			pol.PullBackOffInitial = time.Second
			o := of(pod.OpPullImage, "", says)
			o.Ended = epoch.Add(time.Minute)
			decide.Note(m, app, o, &pol)
		}},
		memoryCase{name: "what a checkpoint keeps", then: func(m *decide.Memory) { full(m); *m = m.Kept() }},
		memoryCase{name: "a checkpoint is read", then: func(m *decide.Memory) { *m = *loaded(epoch.Add(time.Hour)) }},
		memoryCase{name: "a checkpoint is read, and the clock was set back", then: func(m *decide.Memory) { *m = *loaded(epoch.Add(-time.Hour)) }},
		memoryCase{name: "a checkpoint of a pod that goes on is read", then: func(m *decide.Memory) { pol := decide.DefaultPolicy(); *m = *decide.Load(m, epoch, &pol) }},
		memoryCase{name: "the next life knows only the attempts", then: func(m *decide.Memory) {
			full(m)
			m.Ensure("never tried")
			*m = *m.Next()
		}},
		memoryCase{name: "where a container stands, by a pull", pod: second, outcomes: []pod.Outcome{of(pod.OpPullImage, "", nil)}},
		memoryCase{name: "where a container stands, by a start", pod: second, outcomes: []pod.Outcome{of(pod.OpStartContainer, "", made)}},
		memoryCase{name: "an instance that ended is removed", then: noteEnds(of(pod.OpRemoveContainer, "app-3", nil))},
		memoryCase{name: "an instance that ended is not removed", then: noteEnds(of(pod.OpRemoveContainer, "app-3", fails))},
		memoryCase{name: "a container that ended starts again", then: noteEnds(of(pod.OpStartContainer, "", made))},
		memoryCase{name: "a container that ended does not start again", then: noteEnds(of(pod.OpStartContainer, "", fails))},
		memoryCase{name: "a container that ended may have started again", then: noteEnds(of(pod.OpStartContainer, "", func(o *pod.Outcome) { o.Unknown = true }))},
	)
}

// loaded returns the memory of an agent that reads a checkpoint at the time at.
func loaded(at time.Time) *decide.Memory {
	pol := decide.DefaultPolicy()
	kept := decide.Memory{
		Grant:      decide.Grant{Admitted: true, StartTime: epoch.Add(time.Minute)},
		PodSettled: decide.PodSettled{StopBegan: epoch.Add(2 * time.Minute), StopGrace: time.Minute},
		Ends: decide.Ends{
			{Name: "late", ID: "late-0", Cause: pod.CauseLiveness, Began: epoch.Add(time.Minute), Grace: time.Minute, Decided: epoch.Add(-time.Minute)},
			{Name: "early", ID: "early-0", Cause: pod.CauseLiveness, Began: epoch.Add(time.Hour), Grace: time.Minute, Decided: epoch.Add(time.Hour)},
		},
	}
	kept.Ensure("soon").CrashUntil = epoch.Add(-time.Hour + pol.BackOffMax)
	kept.Ensure("late").CrashUntil = epoch.Add(3 * time.Minute)
	return decide.Load(&kept, at, &pol)
}

// noteEnds returns a step that notes an outcome while the instances app-2 and app-3 of one container, and another container, are
// ending.
func noteEnds(o pod.Outcome) func(*decide.Memory) {
	return func(m *decide.Memory) {
		pol := decide.DefaultPolicy()
		for _, id := range []string{"app-2", "app-3", "job-1"} {
			name, _, _ := strings.Cut(id, "-")
			m.Ends = append(m.Ends, decide.End{Name: name, ID: id, Cause: pod.CauseLiveness, Began: epoch, Grace: time.Second})
		}
		o.Ended = epoch.Add(time.Minute)
		decide.Note(m, nil, o, &pol)
	}
}

// fullMemory has a value in every field.
func fullMemory(grace time.Duration) decide.Memory {
	m := decide.Memory{Containers: []decide.ContainerMemory{{}}, PodTries: decide.PodTries{Retry: []decide.Retry{{}}}, Ends: decide.Ends{{}}, Stop: &decide.Stop{}}
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		for i := range v.NumField() {
			n := 0 // each field gets a different number, which does not depend on the other fields
			for _, b := range []byte(v.Type().Field(i).Name) {
				n = (n*31 + int(b)) % 9973
			}
			if v.Type().Field(i).Anonymous {
				fill(v.Field(i))
				continue
			}
			switch f := v.Field(i); x := f.Addr().Interface().(type) {
			case *bool:
				*x = true
			case *string:
				*x = v.Type().Field(i).Name
			case *time.Time:
				*x = epoch.Add(time.Duration(n) * time.Second)
			case *time.Duration:
				*x = time.Duration(n) * time.Second
			case *uint32:
				*x = uint32(n)
			case *uint16:
				*x = uint16(n)
			case *pod.Kind:
				*x = pod.KindEphemeral
			case *pod.Op:
				*x = pod.OpSetUp
			case *[]string:
				*x = []string{"a"}
			case **time.Duration:
				*x = &grace
			case **decide.Stop:
				fill(f.Elem())
			case *[]decide.Retry:
				fill(f.Index(0))
			case *pod.Cause:
				*x = pod.CauseLiveness
			case *decide.Ends:
				fill(f.Index(0))
			case *[]decide.ContainerMemory:
				fill(f.Index(0))
			case **pod.Allocation:
				*x = &pod.Allocation{Containers: make([]pod.NamedResources, 3)}
			case *decide.Resize, *pod.Size:
				fill(f)
			case *int64:
				*x = int64(n)
			}
		}
	}
	fill(reflect.ValueOf(&m).Elem())
	return m
}

// TestMemoryCopies checks that later changes of a memory change neither its clone nor its kept copy.
func TestMemoryCopies(t *testing.T) {
	t.Parallel()
	m := fullMemory(time.Second)
	clone, kept := m.Clone(), m.Kept()
	if diff := cmp.Diff(m, clone); diff != "" {
		t.Errorf("a clone is not the same: %s", diff)
	}
	var before strings.Builder
	nonzero(&before, "", reflect.ValueOf(clone))
	nonzero(&before, "", reflect.ValueOf(kept))
	*m.Stop.Grace, m.Stop.Reason = time.Hour, "changed"
	m.Retry[0].ID, m.Containers[0].Name, m.StoppedSandboxes[0], m.Ends[0].ID = "changed", "changed", "changed", "changed"
	var after strings.Builder
	nonzero(&after, "", reflect.ValueOf(clone))
	nonzero(&after, "", reflect.ValueOf(kept))
	if before.String() != after.String() {
		t.Errorf("a copy changed with its original:\n%s", cmp.Diff(before.String(), after.String()))
	}
	var none decide.Memory
	if c := none.Clone(); c.Stop != nil || none.Kept().Stop != nil {
		t.Error("a reason to stop out of nothing")
	}
	if none.Ensure("a") != none.Container("a") || none.Container("b") != nil || none.Ensure("b") == none.Ensure("a") {
		t.Error("the memory of a container is not found again")
	}
}

// TestRevive checks that a static pod that ended, or was refused, because of a shutdown begins its next life with the next agent. A pod
// that ended for any other reason must stay ended.
func TestRevive(t *testing.T) {
	t.Parallel()
	for reason, lives := range map[string]bool{"Terminated": true, "NodeShutdown": true, "Evicted": false, "DeadlineExceeded": false} {
		m := &decide.Memory{Grant: decide.Grant{Admitted: true}}
		m.Halt(&decide.Stop{Reason: reason})
		if got := m.Revive(); (got.Stop == nil) != lives || got.Admitted == lives {
			t.Errorf("%s: the memory of the next agent is %+v", reason, got)
		}
	}
	m := &decide.Memory{Grant: decide.Grant{Admitted: true}}
	if m.Revive() != m {
		t.Error("a pod that nobody ended has another memory")
	}
}

// The test checks that a second call of Halt does not replace the reason to stop the pod, and can only shorten the grace period.
func TestHaltKeepsTheFirstReasonAndTheShortestGrace(t *testing.T) {
	t.Parallel()
	grace := func(d time.Duration) *time.Duration { return &d }
	for _, tt := range []struct {
		name          string
		first, second *time.Duration
		want          *time.Duration
		kept          bool
	}{
		{"a hard eviction after a soft one", grace(time.Hour), grace(0), grace(0), true},
		{"a hard eviction of a pod whose deadline has passed", nil, grace(0), grace(0), true},
		{"a soft eviction after a hard one", grace(0), grace(time.Hour), grace(0), false},
		{"a deadline that passes in an eviction", grace(time.Minute), nil, grace(time.Minute), false},
		{"the same again", grace(time.Minute), grace(time.Minute), grace(time.Minute), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var m decide.Memory
			first := &decide.Stop{Reason: "First", Grace: tt.first}
			if !m.Halt(first) {
				t.Error("the first reason is not kept")
			}
			if kept := m.Halt(&decide.Stop{Reason: "Second", Grace: tt.second}); kept != tt.kept {
				t.Errorf("the checkpoint has to be written: %v, want %v", kept, tt.kept)
			}
			if m.Stop.Reason != "First" {
				t.Errorf("the reason is %s, want the first", m.Stop.Reason)
			}
			if diff := cmp.Diff(tt.want, m.Stop.Grace); diff != "" {
				t.Errorf("grace period (-want +got):\n%s", diff)
			}
			if m.Stop.AtOnce || first.AtOnce {
				t.Error("the pod is killed at once")
			}
			if diff := cmp.Diff(tt.first, first.Grace); diff != "" {
				t.Errorf("the first Stop was written to (-want +got):\n%s", diff)
			}
		})
	}
}

// A pod that the node ends, and has to kill at once for a second reason, is killed at once. A later reason gives it no time back.
func TestHaltAtOnceStays(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]*time.Duration{"soft": new(time.Hour), "hard": new(time.Duration(0)), "deadline": nil} {
		var m decide.Memory
		was := &decide.Stop{Reason: "First", Grace: first}
		m.Halt(was)
		if !m.Halt(&decide.Stop{Reason: "Second", Grace: new(time.Duration(0)), AtOnce: true}) || !m.Stop.AtOnce || m.Stop.Reason != "First" || *m.Stop.Grace != 0 {
			t.Errorf("%s: the pod ends with %+v, want at once, for the first reason", name, m.Stop)
		}
		if was.AtOnce {
			t.Errorf("%s: the first Stop was written to", name)
		}
		if m.Halt(&decide.Stop{Reason: "Third", Grace: new(time.Duration(0))}) || !m.Stop.AtOnce {
			t.Errorf("%s: a third reason makes it %+v", name, m.Stop)
		}
	}
}
