package decide_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/decide"
	"github.com/wherry-node/wherry/internal/core/pod"
)

// A pod that needs a volume which the node cannot have fails, unless it is static: nobody would make another one for another node.
func TestVolumeLimitAndStaticPods(t *testing.T) {
	t.Parallel()
	for source, fails := range map[pod.Source]bool{pod.SourceAPI: true, pod.SourceFile: false, pod.SourcePush: false} {
		m := &decide.Memory{}
		m.Admitted = true
		m.Retry = []decide.Retry{{Op: pod.OpSetUp, Lack: pod.LackVolumeLimit, Until: time.Unix(2000, 0), Delay: time.Minute}}
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", Annotations: map[string]string{pod.AnnotationSource: source.String()}},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}},
		}
		policy := decide.DefaultPolicy()
		plan := decide.Decide(&decide.Input{Pod: p, Memory: m, Observed: &pod.Observed{}, Node: decide.Node{SourcesReady: true, NetworkReady: true}, Policy: &policy, Now: time.Unix(1000, 0)})
		if got := plan.Stop != nil; got != fails {
			t.Errorf("a pod of the source %v: it fails: %v, want %v", source, got, fails)
		}
	}
}
