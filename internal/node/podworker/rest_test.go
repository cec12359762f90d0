package podworker

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// known is what a worker remembers about a pod between two turns.
type known struct {
	Memory *decide.Memory
	Probed decide.ProbeResults
}

// idle returns what a worker remembers about a pod whose containers run.
func idle() known {
	size := pod.Size{CPURequest: 2, MemoryLimit: 1 << 30}
	m := &decide.Memory{
		Grant:      decide.Grant{Admitted: true, StartTime: time.Now(), Allocated: &pod.Allocation{}},
		PodLearned: decide.PodLearned{GroupSize: size, GroupSized: true},
		PodTries: decide.PodTries{LastOutcome: time.Now(), SetUp: true, SandboxAttempt: 1, SandboxAttemptKnown: true,
			Retry: []decide.Retry{{Op: pod.OpRunSandbox, Delay: time.Second, Until: time.Now()}}},
		Containers: []decide.ContainerMemory{
			{Name: "main", ContainerLearned: decide.ContainerLearned{SizedID: "c1", Size: size},
				ContainerTries: decide.ContainerTries{Pulled: true, PulledImage: "i:1", ImageRef: "sha256:1", HighestAttempt: 2, AttemptKnown: true}},
			{Name: "side"},
		},
	}
	return known{m, decide.ProbeResults{{Name: "main", ID: "c1", Started: true, Ready: true}, {Name: "side", ID: "c2", Started: true}}}
}

// parts returns the structs whose fields a pod at rest must not lose.
func parts(k known) []reflect.Value {
	var out []reflect.Value
	var add func(v reflect.Value)
	add = func(v reflect.Value) {
		out = append(out, v)
		for i := range v.NumField() {
			if v.Type().Field(i).Anonymous {
				add(v.Field(i))
			}
		}
	}
	add(reflect.ValueOf(k.Memory).Elem())
	add(reflect.ValueOf(&k.Memory.Resize).Elem())
	add(reflect.ValueOf(&k.Memory.Retry[0]).Elem())
	for i := range k.Memory.Containers {
		add(reflect.ValueOf(&k.Memory.Containers[i]).Elem())
		add(reflect.ValueOf(&k.Probed[i]).Elem())
	}
	return out
}

// The compact form of a pod at rest loses nothing: the test sets every field of the memory to some value, and the same value
// comes back.
func TestRestLosesNothing(t *testing.T) {
	t.Parallel()
	if k := idle(); rest(k.Memory, k.Probed) == nil {
		t.Error("the memory of an idle pod is not put to rest")
	}
	fields := 0
	for part := range parts(idle()) {
		of := parts(idle())[part].Type()
		for i := range of.NumField() {
			if of.Field(i).Anonymous {
				continue // parts returns the embedded struct too, so its fields are visited there
			}
			fields++
			for _, other := range []bool{true, false} { // true: set another nonzero value; false: set the zero value
				k := idle()
				if f := parts(k)[part].Field(i); other {
					disturb(t, of.Field(i).Name, f)
				} else {
					f.SetZero()
				}
				w := &Worker{memory: k.Memory, work: &work{probed: k.Probed}}
				w.settle()
				w.rouse()
				if d := cmp.Diff(k, known{w.memory, w.work.probed}); d != "" {
					t.Errorf("%s.%s: (-before +after rest)\n%s", of.Name(), of.Field(i).Name, d)
				}
			}
		}
	}
	if fields < 50 {
		t.Errorf("%d fields were tried", fields)
	}
}

// disturb changes the value of a field.
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
