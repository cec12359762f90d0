package mergepatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// These are the directives of a patch: members whose names begin with $.
const (
	directive    = "$patch"                    // of an object or of an element: replace, delete or merge
	retainKeys   = "$retainKeys"               // of an object: the members that stay
	elementOrder = "$setElementOrder/"         // before the name of a list: its order
	deleteValues = "$deleteFromPrimitiveList/" // before the name of a list: values that go
)

// Apply returns the object in doc after a strategic merge patch, as an API server does it. Both are JSON. like is a value of the object's type or a
// pointer to one; the tags of its fields (patchStrategy, patchMergeKey) say which lists are merged and by which key.
func Apply(doc, patch []byte, like any) ([]byte, error) {
	var from, to map[string]any
	if err := errors.Join(decode(doc, &from), decode(patch, &to)); err != nil {
		return nil, err
	}
	out, err := object(from, to, reflect.TypeOf(like))
	if err != nil {
		return nil, err
	}
	return json.Marshal(out)
}

// decode keeps numbers as they are written.
func decode(data []byte, into *map[string]any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(into)
}

// object applies a patch to an object of the type t; a nil t has no merged lists. The result shares memory with both.
func object(from, patch map[string]any, t reflect.Type) (map[string]any, error) {
	switch d := patch[directive]; d {
	case nil, "merge":
	case "replace":
		out := cloned(patch)
		delete(out, directive)
		return out, nil
	case "delete":
		return map[string]any{}, nil
	default:
		return nil, fmt.Errorf("%s: %v is unknown", directive, d)
	}
	out := cloned(from)
	if err := retain(out, patch[retainKeys]); err != nil {
		return nil, err
	}
	for name, to := range patch {
		var err error
		switch {
		case name == directive || name == retainKeys:
		case strings.HasPrefix(name, elementOrder), strings.HasPrefix(name, deleteValues):
			_, name, _ = strings.Cut(name, "/")
			if _, also := patch[name]; also || out[name] == nil {
				continue // the list's own patch, below, follows these directives, too
			}
			out[name], err = list(out[name], []any{}, patch, name, memberOf(t, name))
		case strings.HasPrefix(name, "$"):
			err = errors.New("the directive is unknown")
		case to == nil:
			delete(out, name)
		default:
			out[name], err = member(out[name], to, patch, name, memberOf(t, name))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return out, nil
}

func cloned(from map[string]any) map[string]any {
	out := make(map[string]any, len(from))
	for name, v := range from {
		out[name] = v
	}
	return out
}

// retain removes the members that a patch does not keep.
func retain(of map[string]any, keep any) error {
	if keep == nil {
		return nil
	}
	names, ok := keep.([]any)
	if !ok {
		return fmt.Errorf("%s: is no list", retainKeys)
	}
	for name := range of {
		if !slices.Contains(names, any(name)) {
			delete(of, name)
		}
	}
	return nil
}

// member returns a member after its patch.
func member(from, to any, patch map[string]any, name string, m tagged) (any, error) {
	switch to := to.(type) {
	case map[string]any:
		was, _ := from.(map[string]any)
		if m.merge {
			return object(was, to, m.of)
		}
		return object(nil, to, m.of)
	case []any:
		if m.list && m.merge {
			return list(from, to, patch, name, m)
		}
	}
	return to, nil
}

// tagged is what the tags of a field say.
type tagged struct {
	of    reflect.Type // of the object, or of the elements of the list
	list  bool
	merge bool
	key   string // of a list: what its elements are merged by; "": they are plain values
}

// memberOf returns what the type says about a member.
func memberOf(t reflect.Type, name string) tagged {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == nil:
		return tagged{merge: true}
	case t.Kind() == reflect.Map:
		return tagged{of: t.Elem(), merge: true}
	case t.Kind() != reflect.Struct:
		return tagged{merge: true}
	}
	f, ok := fieldNamed(t, name)
	if !ok {
		return tagged{merge: true}
	}
	strategies := strings.Split(f.Tag.Get("patchStrategy"), ",")
	m := tagged{of: f.Type, merge: !slices.Contains(strategies, "replace"), key: f.Tag.Get("patchMergeKey")}
	if f.Type.Kind() == reflect.Slice {
		m.of, m.list, m.merge = f.Type.Elem(), true, slices.Contains(strategies, "merge")
	}
	return m
}

// fieldNamed returns the field that has a name in JSON.
func fieldNamed(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		in, _ := field(f)
		if in == name && name != "" {
			return f, true
		}
		if f.Anonymous && in == "" && f.Type.Kind() == reflect.Struct {
			if inner, ok := fieldNamed(f.Type, name); ok {
				return inner, true
			}
		}
	}
	return reflect.StructField{}, false
}

// list merges a list with its patch: elements with the same key are merged, others are added or, with a directive, removed.
func list(old any, patch []any, of map[string]any, name string, m tagged) ([]any, error) {
	was, _ := old.([]any)
	id := identity(m.key)
	var add []any
	gone := map[string]bool{}
	replace := false
	for _, e := range patch {
		o, _ := e.(map[string]any)
		switch d := o[directive]; d {
		case nil, "merge":
			add = append(add, e)
		case "replace":
			replace = true
		case "delete":
			gone[id(e)] = true
		default:
			return nil, fmt.Errorf("%s: %v is unknown", directive, d)
		}
	}
	if replace {
		return append([]any{}, add...), nil
	}
	if values, ok := of[deleteValues+name].([]any); ok {
		for _, v := range values {
			gone[id(v)] = true
		}
	}
	var at = map[string]any{}
	for _, e := range was {
		if !gone[id(e)] {
			at[id(e)] = e
		}
	}
	for _, e := range add {
		o, is := e.(map[string]any)
		if !is || m.key == "" {
			at[id(e)] = e
			continue
		}
		if o[m.key] == nil {
			return nil, fmt.Errorf("an element has no %s", m.key)
		}
		before, _ := at[id(e)].(map[string]any)
		merged, err := object(before, o, m.of)
		if err != nil {
			return nil, err
		}
		at[id(e)] = merged
	}
	order := add
	if given, ok := of[elementOrder+name].([]any); ok {
		order = given
	}
	return ordered(at, was, order, id), nil
}

// identity returns a function that names an element of a list: by its key, or by its value if key is empty.
func identity(key string) func(any) string {
	return func(e any) string {
		if o, ok := e.(map[string]any); ok && key != "" {
			e = o[key]
		}
		return fmt.Sprintf("%T %v", e, e)
	}
}

// ordered returns the elements in their order: those that the patch names in its order, the others in their old order. Of the next ones of both,
// the one that was earlier in the old list stands first; one that is new stands before the others.
func ordered(at map[string]any, was, order []any, id func(any) string) []any {
	place := map[string]int{}
	for i, e := range was {
		place[id(e)] = i
	}
	named := map[string]bool{}
	var first, rest []string
	for _, e := range order {
		if k := id(e); at[k] != nil && !named[k] {
			named[k] = true
			first = append(first, k)
		}
	}
	for i, e := range was {
		if k := id(e); at[k] != nil && !named[k] && place[k] == i {
			rest = append(rest, k)
		}
	}
	out := []any{}
	for len(first) > 0 || len(rest) > 0 {
		from := &first
		if len(first) == 0 {
			from = &rest
		} else if len(rest) > 0 {
			if i, old := place[first[0]]; old && place[rest[0]] < i {
				from = &rest
			}
		}
		out = append(out, at[(*from)[0]])
		*from = (*from)[1:]
	}
	return out
}
