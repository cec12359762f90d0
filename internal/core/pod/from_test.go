package pod

import (
	"maps"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// FuzzFrom checks From with any annotations of a pod. The result is static exactly if the source is not the API; other
// annotations and fields stay; the object from the source is not changed.
func FuzzFrom(f *testing.F) {
	for _, src := range []Source{SourceAPI, SourceFile, SourceURL, SourcePush} {
		for _, key := range []string{AnnotationSource, AnnotationHash, AnnotationSeen, AnnotationMirror, annotationPrefix, annotationPrefix + "x", "other"} {
			for _, value := range []string{"", "api", "file", "http", "push", "none", "x"} {
				f.Add(uint8(src), key, value, "kubernetes.io/config.source", "file")
			}
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, key, value, key2, value2 string) {
		src := Source(n%4) + SourceAPI
		p := &v1.Pod{}
		p.Name, p.Annotations = "a", map[string]string{key: value, key2: value2}
		before := p.DeepCopy()
		got := From(src, p)
		if IsStatic(got) != (src != SourceAPI) {
			t.Errorf("source %s: static %v, annotations %v", src, IsStatic(got), got.Annotations)
		}
		if IsMirror(got) {
			t.Errorf("source %s: a mirror, annotations %v", src, got.Annotations)
		}
		if !reflect.DeepEqual(p, before) {
			t.Error("the source's object was changed")
		}
		others := func(p *v1.Pod) map[string]string {
			out := maps.Clone(p.Annotations)
			maps.DeleteFunc(out, func(k, _ string) bool { return strings.HasPrefix(k, annotationPrefix) })
			return out
		}
		if !maps.Equal(others(got), others(p)) {
			t.Errorf("other annotations: %v, were %v", got.Annotations, p.Annotations)
		}
		if again := From(src, got); again != got {
			t.Error("a pod that is right already is copied again")
		}
	})
}

// The test checks that From does not copy a pod that has no annotation about sources, so that such a pod takes no more memory.
func TestFromCopiesOnlyWhatItChanges(t *testing.T) {
	t.Parallel()
	p := &v1.Pod{}
	p.Annotations = map[string]string{"a": "b"}
	if From(SourceAPI, p) != p {
		t.Error("copied")
	}
}
