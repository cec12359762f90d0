package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-node/wherry/internal/edge/volume"
)

// The kernel may let a scan wait for ever. Each attempt of a pod fails after a time, but there is one waiting scan for all attempts, so that they do not use
// up the threads of the process.
func TestScanThatHangs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for name, tt := range map[string]struct {
		src  v1.VolumeSource
		want string
	}{
		"iSCSI":         {v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: portal, IQN: iqn, Lun: 3}}, "scan unit 3"},
		"Fibre Channel": {v1.VolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{"36005"}}}, "scan"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &sanHost{portals: map[string]map[int]string{portal: {}}, scanned: map[string]map[string]string{}, hang: make(chan struct{})}
				f := newSAN(t, h)
				p := aPod(vol("v", tt.src))
				for range 3 {
					if err := f.SetUp(t.Context(), volume.Pod{Pod: p}); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("error %v", err)
					}
				}
				if !slices.Equal(h.asked, []string{tt.want}) {
					t.Errorf("begun while the first scan waits: %q", h.asked)
				}
				close(h.hang)
				synctest.Wait()
				if err := f.SetUp(t.Context(), volume.Pod{Pod: p}); err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error when the kernel scans again: %v", err)
				}
				if len(h.asked) != 2 {
					t.Errorf("begun: %q, want another scan", h.asked)
				}
			})
		})
	}
}

// Pods that need different Fibre Channel disks share one scan.
func TestPodsShareAScan(t *testing.T) {
	t.Parallel()
	needRoot(t)
	synctest.Test(t, func(t *testing.T) {
		h := &sanHost{scanned: map[string]map[string]string{}, hang: make(chan struct{})}
		f := newSAN(t, h)
		var wg sync.WaitGroup
		for _, id := range []string{"one", "two"} {
			p := aPod(vol("v", v1.VolumeSource{FC: &v1.FCVolumeSource{WWIDs: []string{id}}}))
			p.UID = types.UID(id)
			wg.Go(func() {
				if err := f.SetUp(t.Context(), volume.Pod{Pod: p}); err == nil {
					t.Errorf("pod %s has a disk", id)
				}
			})
			synctest.Wait() // the pod waits for the scan
		}
		close(h.hang)
		wg.Wait()
		if !slices.Equal(h.asked, []string{"scan"}) {
			t.Errorf("begun: %q", h.asked)
		}
	})
}

// The removal of a disk that does not answer waits in the kernel. The node tries again, but does not begin another removal meanwhile.
func TestRemovalThatHangs(t *testing.T) {
	t.Parallel()
	needRoot(t)
	synctest.Test(t, func(t *testing.T) {
		h := &sanHost{links: map[string]map[string]string{"by-id": {"scsi-36005": "/dev/sdx"}}, hang: make(chan struct{})}
		f := newSAN(t, h)
		dir := filepath.Join(f.root, "plugins/kubernetes.io/fc/36005") // of an earlier agent
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := f.UnstageUnused(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v", err)
			}
		}
		if !slices.Equal(h.asked, []string{"remove /dev/sdx"}) {
			t.Errorf("begun: %q", h.asked)
		}
		close(h.hang)
		synctest.Wait()
		if err := f.UnstageUnused(t.Context()); err != nil {
			t.Error(err)
		}
		f.nothingLeft(t, h)
	})
}
