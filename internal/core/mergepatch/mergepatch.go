package mergepatch

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Struct returns the patch that turns one struct into another of the same type. If they are equal, the patch is empty. Both arguments are
// pointers. Quantities and times are compared by value ("1" equals "1000m"), and an empty list equals nil.
func Struct(from, to any) map[string]any {
	return structs(reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem())
}

func structs(from, to reflect.Value) map[string]any {
	out := map[string]any{}
	for i := range to.NumField() {
		f, t := from.Field(i), to.Field(i)
		if equal(f, t) {
			continue
		}
		if name, optional := field(to.Type().Field(i)); name != "" {
			out[name] = change(f, t, optional)
		}
	}
	return out
}

// change returns the patch for one value that differs.
func change(from, to reflect.Value, optional bool) any {
	if optional && empty(to) {
		return nil
	}
	switch {
	case to.Kind() == reflect.Pointer && !from.IsNil() && !to.IsNil() && plain(to.Type().Elem()):
		return structs(from.Elem(), to.Elem())
	case plain(to.Type()):
		return structs(from, to)
	case to.Kind() == reflect.Map:
		return maps(from, to)
	}
	return to.Interface()
}

func maps(from, to reflect.Value) map[string]any {
	out := map[string]any{}
	for _, k := range from.MapKeys() {
		if !to.MapIndex(k).IsValid() {
			out[k.String()] = nil
		}
	}
	for _, k := range to.MapKeys() {
		if f, t := from.MapIndex(k), to.MapIndex(k); !f.IsValid() || !equal(f, t) {
			out[k.String()] = t.Interface()
		}
	}
	return out
}

// plain reports whether a type is a struct that JSON encodes field by field, unlike a time or a quantity.
func plain(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	return !reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]())
}

// field returns the JSON name of a field, and whether JSON omits its zero value.
func field(f reflect.StructField) (name string, optional bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name, strings.Contains(options, "omitempty")
}

// empty reports whether omitempty omits a value.
func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		return false
	}
	return v.IsZero()
}

// Replace returns the patch that replaces a whole list that the API would otherwise merge by a key.
func Replace[T any](list []T) []any {
	out := []any{map[string]any{"$patch": "replace"}}
	for i := range list {
		out = append(out, &list[i])
	}
	return out
}

// Keyed returns the patch of a list that the API merges by a key. name is the key's JSON name, and id returns its value. The patch
// contains each new or changed element with all its fields, and null for each removed field; then it contains a deletion for each removed
// element.
func Keyed[T any](name string, id func(*T) string, from, to []T) []any {
	find := func(list []T, key string) *T {
		for i := range list {
			if id(&list[i]) == key {
				return &list[i]
			}
		}
		return nil
	}
	var out []any
	for i := range to {
		t := &to[i]
		if f := find(from, id(t)); f == nil {
			out = append(out, t)
		} else if !Equal(f, t) {
			out = append(out, element(reflect.ValueOf(f).Elem(), reflect.ValueOf(t).Elem()))
		}
	}
	for i := range from {
		if key := id(&from[i]); find(to, key) == nil {
			out = append(out, map[string]any{"$patch": "delete", name: key})
		}
	}
	return out
}

// element returns all fields of to, and null for each field that only from has.
func element(from, to reflect.Value) map[string]any {
	out := map[string]any{}
	for i := range to.NumField() {
		name, optional := field(to.Type().Field(i))
		switch f, t := from.Field(i), to.Field(i); {
		case name == "":
		case !optional || !empty(t):
			out[name] = t.Interface()
		case !empty(f):
			out[name] = nil
		}
	}
	return out
}
