package replay

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// mostDifferences limits how many unknown fields the function differs lists. deepest limits how deep it searches a file for them.
const (
	mostDifferences = 10
	deepest         = 16
)

// differs describes how a file of another schema version differs: it returns a text that names the fields that are unknown to this program.
func differs(data []byte) string {
	var file any
	if err := json.Unmarshal(data, &file); err != nil {
		return "the file cannot be read"
	}
	var unknown []string
	compare("", file, reflect.TypeFor[Turn](), 0, &unknown)
	slices.Sort(unknown)
	unknown = slices.Compact(unknown)
	if len(unknown) == 0 {
		return "it has no field that this program does not know, so the meaning of a field differs"
	}
	more := ""
	if n := len(unknown) - mostDifferences; n > 0 {
		unknown, more = unknown[:mostDifferences], fmt.Sprintf(" and %d more", n)
	}
	return "it has fields that this program does not know: " + strings.Join(unknown, ", ") + more
}

// compare adds to unknown the path of each field of the JSON value v for which the Go type t has no field.
func compare(path string, v any, t reflect.Type, depth int, unknown *[]string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if depth > deepest || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return // the nesting is too deep, or the type has its own UnmarshalJSON
	}
	switch v := v.(type) {
	case map[string]any:
		for name, below := range v {
			at := strings.TrimPrefix(path+"."+name, ".")
			switch t.Kind() {
			case reflect.Struct:
				if f, ok := fieldOf(t, name); ok {
					compare(at, below, f.Type, depth+1, unknown)
					continue
				}
				*unknown = append(*unknown, at)
			case reflect.Map:
				compare(at, below, t.Elem(), depth+1, unknown)
			default:
				*unknown = append(*unknown, at)
			}
		}
	case []any:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Array {
			return
		}
		for _, below := range v {
			compare(path, below, t.Elem(), depth+1, unknown)
		}
	}
}

// fieldOf returns the field of a struct, or of a struct embedded in it, that encoding/json uses for a name.
func fieldOf(t reflect.Type, name string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "-" || f.Anonymous && tag == "" {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		if strings.EqualFold(tag, name) {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
