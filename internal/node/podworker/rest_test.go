package podworker

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// idle is the memory of a pod of one container that runs.
func idle() *decide.Memory {
	size := pod.Size{CPURequest: 2, MemoryLimit: 1 << 30}
	return &decide.Memory{
		Admitted: true, StartTime: time.Now(), LastOutcome: time.Now(), Allocated: &pod.Allocation{}, SetUp: true,
		Retry:          []decide.Retry{{Op: pod.OpRunSandbox, Delay: time.Second, Until: time.Now()}},
		SandboxAttempt: 1, SandboxAttemptKnown: true, GroupSize: size, GroupSized: true,
		Containers: []decide.ContainerMemory{
			{Name: "main", Pulled: true, PulledImage: "i:1", ImageRef: "sha256:1", HighestAttempt: 2, AttemptKnown: true, ProbedID: "c1", Started: true, Ready: true, SizedID: "c1", Size: size},
			{Name: "side", ProbedID: "c2", Started: true},
		},
	}
}

// A pod at rest keeps its memory, in less room, whatever is in it: of each field that can hold something nothing is lost.
func TestRestLosesNothing(t *testing.T) {
	t.Parallel()
	if rest(idle()) == nil {
		t.Error("the memory of an idle pod is not put to rest")
	}
	for _, of := range []func(*decide.Memory) reflect.Value{
		func(m *decide.Memory) reflect.Value { return reflect.ValueOf(m).Elem() },
		func(m *decide.Memory) reflect.Value { return reflect.ValueOf(&m.Resize).Elem() },
		func(m *decide.Memory) reflect.Value { return reflect.ValueOf(&m.Retry[0]).Elem() },
		func(m *decide.Memory) reflect.Value { return reflect.ValueOf(&m.Containers[0]).Elem() },
		func(m *decide.Memory) reflect.Value { return reflect.ValueOf(&m.Containers[1]).Elem() },
	} {
		fields := of(idle()).Type()
		for i := range fields.NumField() {
			for _, other := range []bool{true, false} { // another value, or none
				m := idle()
				if f := of(m).Field(i); other {
					disturb(t, fields.Field(i).Name, f)
				} else {
					f.SetZero()
				}
				w := &Worker{memory: m, work: &work{}}
				w.settle()
				w.rouse()
				if d := cmp.Diff(m, w.memory); d != "" {
					t.Errorf("%s.%s: (-before +after rest)\n%s", fields.Name(), fields.Field(i).Name, d)
				}
			}
		}
	}
}

// disturb gives a field another value than it has.
func disturb(t *testing.T, name string, f reflect.Value) {
	switch f.Kind() {
	case reflect.Bool:
		f.SetBool(!f.Bool())
	case reflect.String:
		f.SetString(f.String() + "x")
	case reflect.Int64:
		f.SetInt(f.Int() + 1)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		f.SetUint(f.Uint() + 1)
	case reflect.Pointer:
		f.Set(reflect.New(f.Type().Elem()))
	case reflect.Slice:
		f.Set(reflect.MakeSlice(f.Type(), 1, 1))
	case reflect.Struct:
		if f.Type() == reflect.TypeFor[time.Time]() {
			f.Set(reflect.ValueOf(time.Now().Add(time.Hour)))
			return
		}
		disturb(t, name, f.Field(0))
	default:
		t.Fatalf("field %s is of a kind that the test does not know: %s", name, f.Kind())
	}
}
