package volume

import (
	"context"
	"errors"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		if w, err := v.walk(t.Context(), uid, "/dir", usageTTL); err != nil || w.bytes != 1 {
			t.Fatalf("walked %+v, %v", w, err)
		}
	}
	if len(v.walks.pods) != 1 || len(v.walks.pods["stays"]) != 1 {
		t.Errorf("kept are %v, want the walk of the pod that stays", v.walks.pods)
	}
}

// If writing the hosts file of one pod hangs, other pods are not delayed.
func TestHostsFilesAreIndependent(t *testing.T) {
	t.Parallel()
	v := New(Config{RootDir: t.TempDir(), Host: &removing{}})
	unlock, err := v.ofHosts.lock(t.Context(), "hangs")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for uid, want := range map[types.UID]error{"hangs": context.Canceled, "other": nil} {
		if err := os.MkdirAll(v.layout.pod(uid), 0o750); err != nil {
			t.Fatal(err)
		}
		in := &MountInput{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}, Container: &v1.Container{Name: "c"}, Hosts: []byte("127.0.0.1 localhost\n")}
		ctx := t.Context()
		if want != nil {
			ctx = canceled
		}
		if _, err := v.podFiles(ctx, in); !errors.Is(err, want) {
			t.Errorf("pod %s: error %v, want %v", uid, err, want)
		}
	}
}
