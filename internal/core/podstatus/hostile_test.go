package podstatus

import (
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
)

// fill sets every field Reason or Message in v, at any depth, to the given text, and gives every list one element. It returns how many
// such fields there are.
func fill(v reflect.Value, text string) (n int) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type().Elem().PkgPath() == "k8s.io/api/core/v1" {
			v.Set(reflect.New(v.Type().Elem()))
			n += fill(v.Elem(), text)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			n += fill(v.Index(0), text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.Type.Kind() == reflect.String && isText(f.Name) {
				v.Field(i).SetString(text)
				n++
				continue
			}
			n += fill(v.Field(i), text)
		}
	}
	return n
}

func isText(field string) bool { return field == "Reason" || field == "Message" }

// unbounded lists the fields Reason and Message in v, at any depth, whose text is too long, is not valid UTF-8, or contains control
// characters.
func unbounded(v reflect.Value, path string) (out []string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return unbounded(v.Elem(), path)
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, unbounded(v.Index(i), path)...)
		}
	case reflect.Struct:
		if v.Type().PkgPath() != "k8s.io/api/core/v1" {
			return nil
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if s := v.Field(i); f.Type.Kind() == reflect.String && isText(f.Name) {
				if s.Len() > pod.TextBytes || !utf8.ValidString(s.String()) || strings.ContainsAny(s.String(), "\x00\x1b\x7f\u009b") {
					out = append(out, path+"."+f.Name)
				}
				continue
			}
			out = append(out, unbounded(v.Field(i), path+"."+f.Name)...)
		}
	}
	return out
}

// TestEveryTextOfAStatusIsBounded fills every reason and message of a pod's status with a long or hostile text, and checks that boundTexts
// cuts and cleans all of them. Reflection finds the fields, so the test covers fields that Kubernetes adds later.
func TestEveryTextOfAStatusIsBounded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"long": strings.Repeat("x", 16<<20), "binary": strings.Repeat("\x00\xff\x1b[31m", 1<<20), "cut": strings.Repeat("ä\u009b", pod.TextBytes/2), "short": "\x1b]0;title\x07",
	} {
		var s v1.PodStatus
		texts := fill(reflect.ValueOf(&s).Elem(), text)
		if before := unbounded(reflect.ValueOf(s), ""); len(before) != texts || texts < 15 {
			t.Fatalf("%s: %d of %d texts are hostile", name, len(before), texts)
		}
		boundTexts(&s)
		if left := unbounded(reflect.ValueOf(s), ""); len(left) > 0 {
			t.Errorf("%s: not bounded: %s", name, strings.Join(left, ", "))
		}
	}
}
