package objects

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/core/pod"
)

func localMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"k": value}}
}

// A changed ConfigMap refreshes the volumes of the pods that refer to it, and of no others.
func TestLocalObjectsAreLive(t *testing.T) {
	t.Parallel()
	var notified []types.UID
	l := NewLocal(func(uid types.UID) { notified = append(notified, uid) })
	for _, name := range []string{"a", "b"} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
		p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "of-" + name}}}}}
		l.Track(p)
	}
	steps := []struct {
		what string
		do   func()
		want []types.UID
	}{
		{"one comes", func() { l.Replace(pod.SourcePush, []*v1.ConfigMap{localMap("of-a", "1")}, nil) }, []types.UID{"a"}},
		{"nothing changes", func() { l.Replace(pod.SourcePush, []*v1.ConfigMap{localMap("of-a", "1")}, nil) }, nil},
		{"it changes", func() { l.Replace(pod.SourcePush, []*v1.ConfigMap{localMap("of-a", "2")}, nil) }, []types.UID{"a"}},
		{"one that nobody refers to", func() { l.Replace(pod.SourceURL, []*v1.ConfigMap{localMap("c", "1")}, nil) }, nil},
		{"an earlier source has it too", func() { l.Replace(pod.SourceFile, []*v1.ConfigMap{localMap("of-a", "3")}, nil) }, []types.UID{"a"}},
		{"the hidden one goes", func() { l.Replace(pod.SourcePush, nil, nil) }, nil},
		{"the last one goes, another comes", func() { l.Replace(pod.SourceFile, []*v1.ConfigMap{localMap("of-b", "1")}, nil) }, []types.UID{"a", "b"}},
		{"nobody cares any more", func() { l.Forget("b"); l.Replace(pod.SourceFile, nil, nil) }, nil},
	}
	for _, s := range steps {
		notified = nil
		s.do()
		slices.Sort(notified)
		if d := cmp.Diff(s.want, notified); d != "" {
			t.Errorf("%s: notified (-want +got):\n%s", s.what, d)
		}
	}
}

func TestLocalObjectsByName(t *testing.T) {
	t.Parallel()
	l := NewLocal(func(types.UID) {})
	secret := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x"}, Data: map[string][]byte{"k": []byte("s")}}
	l.Replace(pod.SourceFile, []*v1.ConfigMap{localMap("x", "c")}, []*v1.Secret{secret})
	if cm, err := l.ConfigMap("ns", "x"); err != nil || cm.Data["k"] != "c" {
		t.Errorf("ConfigMap: %v, %v", cm, err)
	}
	if s, err := l.Secret("ns", "x"); err != nil || string(s.Data["k"]) != "s" {
		t.Errorf("Secret: %v, %v", s, err)
	}
	for _, miss := range []func() error{
		func() error { _, err := l.ConfigMap("other", "x"); return err },
		func() error { _, err := l.Secret("ns", "y"); return err },
	} {
		if err := miss(); !apierrors.IsNotFound(err) {
			t.Errorf("an absent object: %v, want not found", err)
		}
	}
}
