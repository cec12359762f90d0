package agent_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// dumper prints the content of a value: it follows pointers, including atomic ones, and prints unexported fields. It leaves out
// functions and channels, values that it has printed before, and the types in skip.
type dumper struct {
	out  strings.Builder
	seen map[uintptr]bool
	skip []string // types whose values are not printed: package.Type, or a package path for all its types
}

func (d *dumper) value(path string, v reflect.Value) {
	if !v.IsValid() {
		return
	}
	t := v.Type()
	if slices.Contains(d.skip, t.String()) || t.PkgPath() != "" && slices.Contains(d.skip, t.PkgPath()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || d.seen[v.Pointer()] {
			return
		}
		d.seen[v.Pointer()] = true
		d.value(path, v.Elem())
	case reflect.Interface:
		if !v.IsNil() {
			fmt.Fprintf(&d.out, "%s is a %s\n", path, v.Elem().Type())
			d.value(path, v.Elem())
		}
	case reflect.Struct:
		if strings.HasPrefix(t.String(), "atomic.Pointer[") { // its fields hide the value: follow the pointer
			if to := v.FieldByName("v").UnsafePointer(); to != nil {
				d.value(path, reflect.NewAt(t.Field(0).Type.Elem().Elem(), to))
			}
			return
		}
		for i := range v.NumField() {
			d.value(path+"."+t.Field(i).Name, v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			d.value(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, k := range keys {
			d.value(fmt.Sprintf("%s[%v]", path, k), v.MapIndex(k))
		}
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		fmt.Fprintf(&d.out, "%s nil=%t\n", path, v.IsNil())
	default:
		fmt.Fprintf(&d.out, "%s = %v\n", path, v)
	}
}
