package volume_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// A pod whose hostPath or local volume is on a file system that does not answer can be deleted: the work on its volumes ends with an error. Only one call waits for
// the file system, however often the work is tried again.
func TestPathThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(f *fixture, dead string) v1.Volume{
		"hostPath": func(_ *fixture, dead string) v1.Volume {
			return vol("v", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dead, Type: ptr(v1.HostPathDirectory)}})
		},
		"local volume": func(f *fixture, dead string) v1.Volume {
			f.claims.bind("d", local(dead))
			return claim("v", "d", false)
		},
		"hostPath volume of a claim": func(f *fixture, dead string) v1.Volume {
			f.claims.bind("d", v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dead, Type: ptr(v1.HostPathDirectoryOrCreate)}})
			return claim("v", "d", false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				dead := filepath.Join(t.TempDir(), "dead")
				p := aPod(of(f, dead))
				release := make(chan struct{})
				var calls atomic.Int32
				f.SetStat(func(path string) {
					if path == dead {
						calls.Add(1)
						<-release
					}
				})
				for range 3 {
					began := time.Now()
					err := f.SetUp(context.WithoutCancel(t.Context()), volume.Pod{Pod: p})
					wantError(t, err, "v", "has not answered")
					var e *volume.Error
					if took := time.Since(began); errors.As(err, &e) && e.Lack != pod.LackMount || took > time.Minute {
						t.Errorf("after %v, lack %v: %v", took, e.Lack, err)
					}
				}
				if err := f.TearDown(t.Context(), pod.RefOf(p)); err != nil || calls.Load() != 1 {
					t.Errorf("tear down: %v; %d calls wait", err, calls.Load())
				}
				close(release)
				synctest.Wait()
				err := f.SetUp(context.WithoutCancel(t.Context()), volume.Pod{Pod: p})
				if strings.Contains(name, "claim") != (err == nil) || calls.Load() != 2 { // the others need the directory, which does not exist
					t.Errorf("when it answers: %v, %d calls", err, calls.Load())
				}
			})
		})
	}
}

// deadHost does not answer when a file below a directory is opened.
type deadHost struct {
	hostfs.Host
	dead    string
	calls   atomic.Int32
	release chan struct{}
}

func (h *deadHost) OpenBeneath(root, path string) (*os.File, error) {
	if root == h.dead {
		h.calls.Add(1)
		<-h.release
	}
	return h.Host.OpenBeneath(root, path)
}

// A container with a subPath on a file system that does not answer does not start, and its pod can be deleted.
func TestSubPathThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	needRoot(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		h := &deadHost{dead: t.TempDir(), release: make(chan struct{})}
		f.Volumes = volume.New(volume.Config{RootDir: f.root, Host: h, Objects: f.api, Claims: f.claims})
		p := aPod(vol("h", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: h.dead}}))
		p.Spec.Containers[0].VolumeMounts[0].SubPath = "sub"
		setUp(t, f, p)
		for range 3 {
			_, err := f.mount(t, p)
			wantError(t, err, "h", `subPath "sub": the file system has not answered`)
		}
		if h.calls.Load() != 1 {
			t.Errorf("%d calls wait for the file system, want 1", h.calls.Load())
		}
		close(h.release)
		synctest.Wait()
		if _, err := f.mount(t, p); err != nil {
			t.Errorf("when it answers: %v", err)
		}
	})
}
