package source

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// problem is a value that does not fit its type.
type problem struct {
	at     string
	detail string
}

// fieldTable remembers the JSON fields of struct types while one manifest is read.
type fieldTable map[reflect.Type]map[string]reflect.Type

// check compares a value with the API type that obj points to, and names every place where they differ. (The usual
// decoders stop at the first, and do not say where a bad quantity stands.)
func (t fieldTable) check(v any, obj any) []problem {
	var out []problem
	t.walk(v, reflect.TypeOf(obj).Elem(), nil, &out)
	return out
}

func (t fieldTable) walk(v any, typ reflect.Type, at *field.Path, out *[]problem) {
	bad := func(format string, args ...any) {
		*out = append(*out, problem{pathText(at), fmt.Sprintf(format, args...)})
	}
	if v == nil { // null is the zero value
		return
	}
	if typ.Kind() == reflect.Pointer {
		t.walk(v, typ.Elem(), at, out)
		return
	}
	if u, ok := reflect.New(typ).Interface().(json.Unmarshaler); ok {
		text, err := json.Marshal(v)
		if err == nil {
			err = u.UnmarshalJSON(text)
		}
		if err != nil {
			bad("%s is no %s: %v", text, typ.Name(), err)
		}
		return
	}
	switch typ.Kind() {
	case reflect.Struct:
		t.object(v, typ, at, out)
	case reflect.Map:
		m, ok := v.(map[string]any)
		if !ok {
			bad("expected an object, found %s", found(v))
			return
		}
		for _, k := range sortedKeys(m) {
			t.walk(m[k], typ.Elem(), at.Key(k), out)
		}
	case reflect.Slice:
		t.slice(v, typ, at, out)
	default:
		if why := scalar(v, typ); why != "" {
			bad("%s", why)
		}
	}
}

func (t fieldTable) object(v any, typ reflect.Type, at *field.Path, out *[]problem) {
	m, ok := v.(map[string]any)
	if !ok {
		*out = append(*out, problem{pathText(at), "expected an object, found " + found(v)})
		return
	}
	fields := t.fields(typ)
	for _, k := range sortedKeys(m) {
		ft, ok := fields[k]
		if !ok {
			*out = append(*out, problem{pathText(at.Child(k)), unknownField(k, sortedKeys(fields))})
			continue
		}
		t.walk(m[k], ft, at.Child(k), out)
	}
}

func (t fieldTable) slice(v any, typ reflect.Type, at *field.Path, out *[]problem) {
	if typ.Elem().Kind() == reflect.Uint8 {
		var b []byte
		s, ok := v.(string)
		text, err := json.Marshal(s)
		if err == nil {
			err = json.Unmarshal(text, &b)
		}
		if !ok || err != nil {
			*out = append(*out, problem{pathText(at), "not base64; encode it, or write it as plain text below stringData (Secret) or data (ConfigMap)"})
		}
		return
	}
	list, ok := v.([]any)
	if !ok {
		*out = append(*out, problem{pathText(at), "expected a list, found " + found(v) + "; begin each item with \"- \""})
		return
	}
	for i, item := range list {
		if item == nil && typ.Elem().Kind() == reflect.Struct {
			*out = append(*out, problem{pathText(at.Index(i)), "empty item; remove it"})
			continue
		}
		t.walk(item, typ.Elem(), at.Index(i), out)
	}
}

// scalar says why a value is not of a simple type.
func scalar(v any, typ reflect.Type) string {
	switch typ.Kind() {
	case reflect.String:
		if _, ok := v.(string); !ok {
			return "expected a string, found " + found(v) + "; put it in quotes"
		}
	case reflect.Bool:
		if _, ok := v.(bool); !ok {
			return "expected true or false, found " + found(v)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		n, ok := v.(json.Number)
		if !ok {
			return "expected a whole number, found " + found(v)
		}
		if _, err := strconv.ParseInt(n.String(), 10, typ.Bits()); err != nil {
			return fmt.Sprintf("expected a whole number of %d bits, found %s", typ.Bits(), n)
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, ok := v.(json.Number)
		if !ok {
			return "expected a whole number, found " + found(v)
		}
		if _, err := strconv.ParseUint(n.String(), 10, typ.Bits()); err != nil {
			return fmt.Sprintf("expected a positive whole number, found %s", n)
		}
	}
	return ""
}

// found says what kind of value is there, without the values of objects: those may be secret.
func found(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("the string %q", v)
	case json.Number:
		return "the number " + v.String()
	case bool:
		return fmt.Sprint(v)
	case []any:
		return "a list"
	}
	return "an object"
}

// fields are the JSON names of a struct's fields, those of inlined structs among them.
func (t fieldTable) fields(typ reflect.Type) map[string]reflect.Type {
	if m, ok := t[typ]; ok {
		return m
	}
	m := map[string]reflect.Type{}
	for f := range typ.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "" || strings.Contains(options, "inline"):
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			for k, v := range t.fields(inner) {
				m[k] = v
			}
		case name != "" && name != "-":
			m[name] = f.Type
		}
	}
	t[typ] = m
	return m
}

// unknownField says so, and what may have been meant.
func unknownField(name string, known []string) string {
	best, distance := "", min(3, (len(name)+1)/2)
	for _, k := range known {
		if d := edits(strings.ToLower(name), strings.ToLower(k)); d < distance {
			best, distance = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("unknown field; did you mean %q?", best)
	}
	return "unknown field; remove it"
}

// edits is the number of letters to insert, delete or exchange to make b of a.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}

func sortedKeys[K ~string, V any](m map[K]V) []K {
	out := make([]K, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
