package referents

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/objects"
	"github.com/wherry-node/wherry/internal/edge/podset"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A tenant's pod that claims to come from a file does not get objects that came with the node's manifests.
func TestForgedSourceFindsNoLocalSecret(t *testing.T) {
	t.Parallel()
	r := New(Config{Local: objects.NewLocal(func(types.UID) {}), API: &objects.Objects{}})
	set := podset.New("node", []pod.Source{pod.SourceAPI, pod.SourceFile}, func(types.UID) {})
	forged := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "a", Annotations: map[string]string{pod.AnnotationSource: "file"}}}
	set.Upsert(pod.SourceAPI, forged)
	set.Upsert(pod.SourceFile, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "ns", UID: "b"}})
	for uid, want := range map[types.UID]bool{"a": false, "b": true} {
		if p, _ := set.Get(uid); r.isLocal(p) != want {
			t.Errorf("%s: looks among the node's own objects: %v", uid, !want)
		}
	}
}
