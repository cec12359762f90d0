package agenttest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"
)

// reach counts the values that the fields of root lead to. The result has, for each path of field names, the number of pointers that reach
// followed, and of entries of maps, slices and channels. All elements of a map or slice have the same path, and so have the values of a
// type that refers to itself: a linked list of a thousand elements counts as a thousand at one path. reach does not see values that only a
// closure or a goroutine refers to, and does not enter values of the types in but.
func reach(root any, but ...reflect.Type) map[string]int {
	w := &walk{sizes: map[string]int{}, seen: map[visit]bool{}, but: but}
	w.later(reflect.ValueOf(root), "", nil)
	for len(w.queue) > 0 {
		next := w.queue[0]
		w.queue = w.queue[1:]
		w.value(next.v, next.path, next.above)
	}
	return w.sizes
}

type walk struct {
	sizes map[string]int
	seen  map[visit]bool
	but   []reflect.Type
	queue []step
}

// visit identifies a value that reach has visited. The type is a part of it, because a struct and its first field have the same address.
type visit struct {
	at unsafe.Pointer
	t  reflect.Type
	n  int
}

// step is a value that is to be visited. The search is breadth-first, so that each value gets its shortest path.
type step struct {
	v     reflect.Value
	path  string
	above *ancestor
}

// ancestor is a type on the way to a value, with the path at which the type came first.
type ancestor struct {
	t    reflect.Type
	path string
	next *ancestor
}

func (w *walk) later(v reflect.Value, path string, above *ancestor) {
	if v.IsValid() {
		w.queue = append(w.queue, step{v, path, above})
	}
}

// first reports whether a value is visited for the first time, and records the visit.
func (w *walk) first(at unsafe.Pointer, t reflect.Type, n int) bool {
	k := visit{at, t, n}
	if at == nil || w.seen[k] {
		return false
	}
	w.seen[k] = true
	return true
}

func (w *walk) value(v reflect.Value, path string, above *ancestor) {
	t := v.Type()
	if slices.Contains(w.but, t) {
		return
	}
	switch v.Kind() {
	case reflect.Interface:
		w.later(v.Elem(), path, above)
	case reflect.Pointer:
		if !v.IsNil() && w.first(v.UnsafePointer(), t, 0) {
			for a := above; a != nil; a = a.next {
				if a.t == t {
					path = a.path
				}
			}
			w.sizes[path+" (values)"]++
			w.later(v.Elem(), path, &ancestor{t, path, above})
		}
	case reflect.Struct:
		if strings.HasPrefix(t.String(), "atomic.Pointer[") {
			w.atomic(v, path, above)
			return
		}
		for i := range v.NumField() {
			w.value(v.Field(i), path+"."+t.Field(i).Name, above)
		}
	case reflect.Map:
		w.entries(v, path, above)
	case reflect.Slice:
		if v.Len() > 0 && w.first(v.UnsafePointer(), t, v.Len()) {
			w.sizes[path] += v.Len()
			w.elements(v, path, above)
		}
	case reflect.Array:
		w.elements(v, path, above)
	case reflect.Chan:
		if w.first(v.UnsafePointer(), t, 0) {
			w.sizes[path] += v.Len()
		}
	}
}

func (w *walk) entries(v reflect.Value, path string, above *ancestor) {
	if !w.first(v.UnsafePointer(), v.Type(), 0) {
		return
	}
	w.sizes[path] += v.Len()
	if !refers(v.Type().Key()) && !refers(v.Type().Elem()) {
		return
	}
	for it := v.MapRange(); it.Next(); {
		w.later(it.Key(), path+"[key]", above)
		w.later(it.Value(), path+"[]", above)
	}
}

func (w *walk) elements(v reflect.Value, path string, above *ancestor) {
	if !refers(v.Type().Elem()) {
		return
	}
	for i := range v.Len() {
		w.later(v.Index(i), path+"[]", above)
	}
}

// atomic visits the value that an atomic.Pointer points to. The type of this value is the element type of the first field of the
// atomic.Pointer.
func (w *walk) atomic(v reflect.Value, path string, above *ancestor) {
	pointed := v.Type().Field(0).Type.Elem() // *T
	for i := range v.NumField() {
		if f := v.Field(i); f.Kind() == reflect.UnsafePointer && f.UnsafePointer() != nil {
			w.later(reflect.NewAt(pointed.Elem(), f.UnsafePointer()), path, above)
		}
	}
}

// refers reports whether a value of the type may refer to other values.
func refers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice, reflect.Chan:
		return true
	case reflect.Array:
		return refers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if refers(t.Field(i).Type) {
				return true
			}
		}
		return strings.HasPrefix(t.String(), "atomic.Pointer[")
	}
	return false
}

// grown returns the paths whose count has grown by more than most.
func grown(before, after map[string]int, most int) []string {
	var out []string
	for _, path := range slices.Sorted(maps.Keys(after)) {
		if more := after[path] - before[path]; more > most {
			out = append(out, fmt.Sprintf("%s: %d, was %d", path, after[path], before[path]))
		}
	}
	return out
}

// leaky has one unexported field for each way in which values can be kept.
type leaky struct {
	byName  struct{ names map[string]int }
	lists   []any
	chain   *link
	pointer atomic.Pointer[link]
	deep    map[string]*struct{ inner map[int]bool }
	queue   chan int
	quiet   map[string]int
	outside *elsewhere
}

type link struct {
	next *link
	of   *leaky
}

type elsewhere struct{ all []int }

func TestGrowthIsFoundByItsPath(t *testing.T) {
	t.Parallel()
	fill := func(n int) *leaky {
		l := &leaky{queue: make(chan int, n), deep: map[string]*struct{ inner map[int]bool }{}, quiet: map[string]int{"a": n}, outside: &elsewhere{make([]int, n)}}
		l.byName.names = map[string]int{}
		for i := range n {
			l.byName.names[fmt.Sprint(i)] = i
			l.chain = &link{next: l.chain, of: l}
			l.queue <- i
			l.deep[fmt.Sprint(i%2)] = &struct{ inner map[int]bool }{map[int]bool{}}
		}
		held := &link{}
		for i := range n {
			held = &link{next: held}
			l.deep["0"].inner[i] = true
		}
		l.pointer.Store(held)
		l.lists = []any{make([]*link, n)}
		return l
	}
	but := reflect.TypeFor[*elsewhere]()
	got := grown(reach(fill(10), but), reach(fill(60), but), 20)
	want := []string{
		".byName.names: 60, was 10", ".chain (values): 60, was 10", ".deep[].inner: 60, was 10", ".lists[]: 60, was 10",
		".pointer (values): 61, was 11", ".queue: 60, was 10",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
