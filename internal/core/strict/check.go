package strict

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Problem describes a value that does not fit its type, or a field that is unknown.
type Problem struct {
	Path    string // for example spec.containers[0].image; empty if the problem is the whole value
	Detail  string // what is wrong and how to correct it
	Unknown bool   // the field does not exist
	Nearest string // most similar known field, for an unknown field; "": none
}

// Types caches the JSON fields of struct types between checks. One goroutine may use it at a time.
type Types map[reflect.Type]map[string]reflect.Type

// maxProblems bounds how many problems Check returns, because each costs a search for a similar name, and a file may have millions.
const maxProblems = 200

// Check compares a decoded value with the type that obj points to, and returns the differences, at most 200. Numbers must be
// json.Numbers.
func (t Types) Check(v any, obj any) []Problem {
	var out []Problem
	t.walk(v, reflect.TypeOf(obj).Elem(), nil, &out)
	return out
}

func (t Types) walk(v any, typ reflect.Type, at *field.Path, out *[]Problem) {
	bad := func(format string, args ...any) {
		*out = append(*out, Problem{Path: PathText(at), Detail: fmt.Sprintf(format, args...)})
	}
	if v == nil || len(*out) >= maxProblems { // null stands for the zero value, which every type allows
		return
	}
	if typ.Kind() == reflect.Pointer {
		t.walk(v, typ.Elem(), at, out)
		return
	}
	if u, ok := reflect.New(typ).Interface().(json.Unmarshaler); ok {
		text, err := json.Marshal(v)
		if err == nil && typ == reflect.TypeFor[resource.Quantity]() {
			err = checkQuantity(text)
		}
		if err == nil {
			err = u.UnmarshalJSON(text)
		}
		switch {
		case err == nil:
		case typ == reflect.TypeFor[metav1.Duration]():
			bad("%.200s is no duration: write a string with a number and its unit, such as 30s or 5m", text)
		default:
			bad("%.200s is no %s: %v", text, typ.Name(), err)
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

func (t Types) object(v any, typ reflect.Type, at *field.Path, out *[]Problem) {
	m, ok := v.(map[string]any)
	if !ok {
		*out = append(*out, Problem{Path: PathText(at), Detail: "expected an object, found " + found(v)})
		return
	}
	fields := t.fields(typ)
	for _, k := range sortedKeys(m) {
		ft, ok := fields[k]
		switch {
		case len(*out) >= maxProblems:
			return
		case !ok:
			*out = append(*out, unknown(at.Child(k), sortedKeys(fields)))
		default:
			t.walk(m[k], ft, at.Child(k), out)
		}
	}
}

func (t Types) slice(v any, typ reflect.Type, at *field.Path, out *[]Problem) {
	if typ.Elem().Kind() == reflect.Uint8 {
		var b []byte
		s, ok := v.(string)
		text, err := json.Marshal(s)
		if err == nil {
			err = json.Unmarshal(text, &b)
		}
		if !ok || err != nil {
			*out = append(*out, Problem{Path: PathText(at), Detail: "not base64; encode it, or write it as plain text below stringData (Secret) or data (ConfigMap)"})
		}
		return
	}
	list, ok := v.([]any)
	if !ok {
		*out = append(*out, Problem{Path: PathText(at), Detail: "expected a list, found " + found(v) + "; begin each item with \"- \""})
		return
	}
	for i, item := range list {
		if len(*out) >= maxProblems {
			return
		}
		if item == nil && typ.Elem().Kind() == reflect.Struct {
			*out = append(*out, Problem{Path: PathText(at.Index(i)), Detail: "empty item; remove it"})
			continue
		}
		t.walk(item, typ.Elem(), at.Index(i), out)
	}
}

// scalar returns why a value does not have a simple type, or "".
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
	case reflect.Float32, reflect.Float64:
		if _, ok := v.(json.Number); !ok {
			return "expected a number, found " + found(v)
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

// found describes a value for an error message. It does not show the content of objects, which may be secret.
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

// fields returns the JSON names of a struct's fields, including those of inlined structs.
func (t Types) fields(typ reflect.Type) map[string]reflect.Type {
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

// unknown returns the problem of a field that does not exist.
func unknown(at *field.Path, known []string) Problem {
	p := Problem{Path: PathText(at), Unknown: true}
	name := p.Path[strings.LastIndexByte(p.Path, '.')+1:]
	p.Nearest, p.Detail = Nearest(name, known), UnknownField(name, known)
	return p
}

// UnknownField returns the message for a field that does not exist, with a similar known name.
func UnknownField(name string, known []string) string {
	if best := Nearest(name, known); best != "" {
		return fmt.Sprintf("unknown field; did you mean %q?", best)
	}
	return "unknown field; remove it"
}

// Nearest returns the known name that is most similar to name, ignoring case. It returns "" if no name is similar, or if name is too long.
func Nearest(name string, known []string) (best string) {
	if len(name) > maxName {
		return ""
	}
	least := 2 + len(name)/4
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := edits(strings.ToLower(name), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// maxName bounds the length of the names that Nearest compares.
const maxName = 128

// edits returns the number of letters to insert, delete or exchange that turn a into b.
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

// PathText returns a path as text, for example spec.containers[0].image. It returns "" for the root.
func PathText(p *field.Path) string {
	if p == nil {
		return ""
	}
	return strings.TrimPrefix(p.String(), ".")
}
