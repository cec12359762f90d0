package volume

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// removing is a host on which a pod is removed while the agent walks its volume.
type removing struct {
	Host
	during func()
}

func (r *removing) DiskUsage(context.Context, string) (bytes, inodes uint64, err error) {
	r.during()
	return 1, 1, nil
}

// A walk that ends after its pod was removed stores nothing, because nobody would remove the entry.
func TestWalkOfARemovedPodIsForgotten(t *testing.T) {
	t.Parallel()
	host := &removing{}
	v := New(Config{RootDir: t.TempDir(), Host: host})
	for _, removed := range []bool{false, true} {
		uid := types.UID("stays")
		host.during = func() {}
		if removed {
			uid = "goes"
			host.during = func() { v.walks.forget(uid) }
		}
		if w, err := v.walk(t.Context(), uid, "/dir"); err != nil || w.bytes != 1 {
			t.Fatalf("walked %+v, %v", w, err)
		}
	}
	if len(v.walks.pods) != 1 || len(v.walks.pods["stays"]) != 1 {
		t.Errorf("kept are %v, want the walk of the pod that stays", v.walks.pods)
	}
}
