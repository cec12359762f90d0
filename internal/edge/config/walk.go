package config

import (
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"strings"
)

// leaves iterates over the fields of a configuration type that hold a value, with their paths in the file.
func leaves(t reflect.Type) iter.Seq2[string, reflect.Type] {
	return func(yield func(string, reflect.Type) bool) { walkType(t, "", yield) }
}

func walkType(t reflect.Type, prefix string, yield func(string, reflect.Type) bool) bool {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		path := prefix + name
		if name == "" && strings.Contains(options, "inline") {
			path = strings.TrimSuffix(prefix, ".")
		}
		if isBranch(ft) {
			below := path + "."
			if path == "" {
				below = ""
			}
			if !walkType(ft, below, yield) {
				return false
			}
			continue
		}
		if !yield(path, ft) {
			return false
		}
	}
	return true
}

// isBranch reports whether a type has further fields, rather than a value with a format of its own.
func isBranch(t reflect.Type) bool {
	marshals := reflect.TypeFor[json.Marshaler]()
	return t.Kind() == reflect.Struct && !t.Implements(marshals) && !reflect.PointerTo(t).Implements(marshals)
}

// lookup returns the value at a path; ok is false if a pointer on the path is nil.
func lookup(v reflect.Value, path string) (reflect.Value, bool) {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return reflect.Value{}, false
		}
		v = v.Elem()
	}
	if path == "" {
		return v, true
	}
	for i := range v.NumField() {
		name, options, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name == "" && strings.Contains(options, "inline") {
			if found, ok := lookup(v.Field(i), path); ok {
				return found, true
			}
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		if name == path {
			return lookup(v.Field(i), "")
		}
		if rest, ok := strings.CutPrefix(path, name+"."); ok {
			return lookup(v.Field(i), rest)
		}
	}
	return reflect.Value{}, false
}

// printed returns a value as the file has it, without quotation marks.
func printed(v reflect.Value) string {
	data, err := json.Marshal(v.Interface())
	if err != nil {
		return fmt.Sprint(v.Interface())
	}
	return strings.Trim(string(data), `"`)
}
