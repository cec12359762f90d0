package imagegc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/core/evict"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// node is a runtime's image store on a disk of 1000 bytes, and the pods that use the images.
type node struct {
	images  []*runtimeapi.Image
	refuse  map[string]error // errors with which the runtime refuses to remove images, by image ID
	pulling map[string]bool
	listErr error
	other   int64 // bytes that other data takes
	no      bool  // the disk reports a capacity of 0
	used    []*pod.Observed
	pods    []*v1.Pod
	events  []string
	counted []string
	hang    bool          // a removal returns only when its context ends
	late    time.Duration // the space of an image is free so long after its removal
	deletes []deletion
}

// deletion is the space of a removed image, which is free from a time on.
type deletion struct {
	at   time.Time
	size int64
}

func (n *node) ListImages(context.Context) ([]*runtimeapi.Image, error) {
	return slices.Clone(n.images), n.listErr
}

func (n *node) RemoveImage(ctx context.Context, img *runtimeapi.Image) (bool, error) {
	if n.hang {
		<-ctx.Done()
		return false, ctx.Err()
	}
	if err := n.refuse[img.Id]; err != nil {
		return false, err
	}
	if n.pulling[img.Id] {
		return false, nil
	}
	n.images = slices.DeleteFunc(n.images, func(i *runtimeapi.Image) bool { return i.Id == img.Id })
	if n.late > 0 {
		n.deletes = append(n.deletes, deletion{time.Now().Add(n.late), int64(img.Size)})
	}
	return true, nil
}

func (n *node) disk(context.Context) (pressure.Observation, bool) {
	if n.no {
		return pressure.Observation{}, true
	}
	free := 1000 - n.other
	for _, i := range n.images {
		free -= int64(i.Size)
	}
	for _, d := range n.deletes {
		if time.Now().Before(d.at) {
			free -= d.size
		}
	}
	return pressure.Observation{Available: max(free, 0), Capacity: 1000}, true
}

func (n *node) add(name string, size uint64) {
	n.images = append(n.images, &runtimeapi.Image{Id: "sha256:" + name, RepoTags: []string{"docker.io/library/" + name + ":1"}, Size: size})
}

// left returns the names of the images that were not removed.
func (n *node) left() string {
	var out []string
	for _, i := range n.images {
		out = append(out, strings.TrimPrefix(i.Id, "sha256:"))
	}
	return strings.Join(out, " ")
}

func (n *node) collector(file string, change func(*Config)) *Collector {
	cfg := Config{
		Policy: evict.ImagePolicy{HighPercent: 85, LowPercent: 80, MinAge: 2 * time.Minute}, Images: n,
		Observed: func() []*pod.Observed { return n.used }, Desired: func() []*v1.Pod { return n.pods }, Ready: func() bool { return true },
		Disk: n.disk, NodeEvent: func(_, reason, message string) { n.events = append(n.events, reason+": "+message) },
		Collected: func(reason string) { n.counted = append(n.counted, reason) }, File: file, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	return New(cfg)
}

// Unused images are removed for space, the longest unused first and no more than necessary. These images are not removed: one
// that a container uses, one that a pod names for a container or a volume, a pinned one, one that the configuration keeps, and
// one that is being pulled.
func TestCollectForSpace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &node{pulling: map[string]bool{"sha256:pulled": true}}
		for _, name := range []string{"running", "dead", "named", "volume", "pinned", "kept", "pulled", "old", "older", "new"} {
			n.add(name, 90)
		}
		n.images[4].Pinned = true
		n.used = []*pod.Observed{{Containers: []pod.Container{{ImageID: "sha256:running"}, {ImageRef: "docker.io/library/dead:1", State: pod.StateExited}}}}
		n.pods = []*v1.Pod{
			{Spec: v1.PodSpec{Containers: []v1.Container{{Image: "named:1"}}, Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "docker.io/library/volume:1"}}}}}},
			{Spec: v1.PodSpec{Containers: []v1.Container{{Image: "old:1"}}}},
			{Spec: v1.PodSpec{Containers: []v1.Container{{Image: "older:1"}}}, Status: v1.PodStatus{Phase: v1.PodSucceeded}},
		}
		c := n.collector("", func(cfg *Config) {
			cfg.Keep = func(name string) bool { return strings.HasPrefix(name, "docker.io/library/kept") }
		})
		c.Collect(t.Context()) // lists all images; none is old enough
		if len(n.images) != 10 {
			t.Fatalf("left at once: %s", n.left())
		}
		time.Sleep(10 * time.Minute)
		n.pods = n.pods[:1] // the image old was in use until now
		n.events = nil
		n.other = 0 // the disk is 90% full now, so 100 bytes are to be freed
		c.Collect(t.Context())
		if got, want := n.left(), "running dead named volume pinned kept pulled old"; got != want {
			t.Errorf("left: %s, want %s", got, want)
		}
		if len(n.events) > 0 || len(n.counted) != 2 {
			t.Errorf("events %q, counted %q", n.events, n.counted)
		}
		if images, bytes, err := c.RemoveUnused(t.Context()); images != 1 || bytes != 90 || err != nil || strings.Contains(n.left(), "old") {
			t.Errorf("all unused: %d images, %d bytes, %v; left %s", images, bytes, err, n.left())
		}
	})
}

// If the images that were removed for their age have made enough room, no other image is removed for space.
func TestNoImageIsRemovedForSpaceThatOldImagesHaveMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &node{other: 100}
		n.add("ancient", 300)
		n.add("recent", 500)
		n.pods = []*v1.Pod{{Spec: v1.PodSpec{Containers: []v1.Container{{Image: "recent:1"}}}}}
		c := n.collector("", func(cfg *Config) { cfg.Policy.MaxAge = time.Hour })
		c.Collect(t.Context()) // lists both images; recent is in use until the next collection
		time.Sleep(61 * time.Minute)
		n.pods, n.late = nil, time.Second
		c.Collect(t.Context())
		if got := n.left(); got != "recent" {
			t.Errorf("left: %q, want recent: the removal of ancient was enough", got)
		}
	})
}

// An event says how full the disk is and what failed. An image that cannot be removed does not prevent the removal of others.
func TestCollectThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &node{refuse: map[string]error{"sha256:stuck": errors.New("in use by a snapshot")}, other: 900}
		n.add("stuck", 50)
		n.add("free", 50)
		c := n.collector("", nil)
		c.Collect(t.Context())
		time.Sleep(15 * time.Minute)
		n.events = nil
		c.Collect(t.Context())
		if got := n.left(); got != "stuck" {
			t.Errorf("left: %s", got)
		}
		if len(n.events) != 2 || !strings.HasPrefix(n.events[0], "FreeDiskSpaceFailed: Insufficient free disk space on the node's image filesystem (100% of 1000 B used). ") ||
			!strings.HasPrefix(n.events[1], "ImageGCFailed: ") {
			t.Errorf("events %q", n.events)
		}
		n.no, n.events = true, nil
		c.Collect(t.Context())
		if len(n.events) == 0 || n.events[0] != "InvalidDiskCapacity: invalid capacity 0 on image filesystem" {
			t.Errorf("events %q", n.events)
		}
		time.Sleep(15 * time.Minute)
		n.no, n.other, n.events = false, 0, nil
		c.Collect(t.Context())
		n.listErr = errors.New("the runtime is away")
		c.Collect(t.Context())
		if len(n.events) != 0 {
			t.Errorf("one failure: events %q", n.events)
		}
		c.Collect(t.Context())
		if len(n.events) != 1 || n.events[0] != "ImageGCFailed: the runtime is away" {
			t.Errorf("two failures: events %q", n.events)
		}
	})
}

// While the collections fail for the same reason, that is logged once, and each of the node's events comes every 15 minutes. A failure after a
// collection that succeeded is logged again.
func TestFailureThatLastsIsNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		n := &node{other: 900, refuse: map[string]error{"sha256:stuck": errors.New("in use by a snapshot")}}
		n.add("stuck", 50)
		c := n.collector("", func(cfg *Config) { cfg.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		hour := func() {
			for range 12 {
				c.Collect(t.Context())
				time.Sleep(Every)
			}
		}
		hour()
		if full, failed := count(n.events, "FreeDiskSpaceFailed"), count(n.events, "ImageGCFailed"); full != 4 || failed != 4 {
			t.Errorf("in an hour: %d and %d events: %q", full, failed, n.events)
		}
		if got := strings.Count(log.String(), "images not collected"); got != 2 { // in the first collection, the image is too new to be removed
			t.Errorf("%d lines in the log:\n%s", got, &log)
		}
		n.other = 0
		c.Collect(t.Context())
		n.no, n.events = true, nil
		hour()
		if zero := count(n.events, "InvalidDiskCapacity"); zero != 4 {
			t.Errorf("in an hour without a capacity: %d events: %q", zero, n.events)
		}
		if got := strings.Count(log.String(), "images not collected"); got != 3 {
			t.Errorf("%d lines in the log:\n%s", got, &log)
		}
	})
}

// count returns how many of the events have a reason.
func count(events []string, reason string) (n int) {
	for _, e := range events {
		if strings.HasPrefix(e, reason+": ") {
			n++
		}
	}
	return n
}

// Even if the disk reports a capacity of 0, the history file gets the time when an image was last used.
func TestUseIsStoredWithoutACapacity(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "use.json")
	n := &node{no: true}
	n.add("a", 10)
	n.collector(file, nil).Collect(t.Context())
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// If an image cannot be removed, its error is logged once. If the image disappears and is pulled again later, its error is logged again.
func TestAnErrorIsForgottenWithItsImage(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	n := &node{refuse: map[string]error{"sha256:stuck": errors.New("in use by a snapshot")}}
	n.add("stuck", 10)
	c := n.collector("", func(cfg *Config) { cfg.Log, cfg.Policy.MinAge = slog.New(slog.NewTextHandler(&log, nil)), 0 })
	remove := func(want int) {
		t.Helper()
		log.Reset()
		if _, _, err := c.RemoveUnused(t.Context()); (err != nil) != (len(n.images) > 0) {
			t.Error(err)
		}
		if got := strings.Count(log.String(), "in use by a snapshot"); got != want {
			t.Errorf("logged %d times, want %d: %s", got, want, log.String())
		}
	}
	remove(1)
	remove(0)
	images := n.images
	n.images = nil
	remove(0)
	n.images = images
	remove(1)
}

// The error of a collection has a bounded size, even if very many images cannot be removed.
func TestErrorsOfManyImagesAreBounded(t *testing.T) {
	t.Parallel()
	n := &node{refuse: map[string]error{}}
	for i := range 1000 {
		n.add(fmt.Sprint("i", i), 10)
		n.refuse[fmt.Sprint("sha256:i", i)] = errors.New("in use")
	}
	c := n.collector("", func(cfg *Config) { cfg.Policy.MinAge = 0 })
	if _, _, err := c.RemoveUnused(t.Context()); err == nil || strings.Count(err.Error(), "in use") != maxErrors {
		t.Errorf("error %v, want %d images", err, maxErrors)
	}
}

// A runtime that hangs in a removal blocks neither an eviction nor the next collection for ever.
func TestAHangingRemovalIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := &node{hang: true}
		n.add("a", 500)
		n.add("b", 450)
		c := n.collector("", nil)
		c.Collect(t.Context()) // lists the images
		time.Sleep(time.Hour)
		collected := make(chan struct{})
		go func() {
			c.Collect(t.Context())
			close(collected)
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		if _, _, err := c.RemoveUnused(ctx); err == nil || time.Since(began) != time.Minute {
			t.Errorf("RemoveUnused returned %v after %v, want an error after a minute", err, time.Since(began))
		}
		<-collected
		if took := time.Since(began); took > Every {
			t.Errorf("the collection took %v, want at most %v", took, Every)
		}
	})
}

// If the space of a removed image becomes free only a moment later, no image is removed in vain. If it does not become free, the collector goes on.
func TestSpaceThatIsFreeAMomentLater(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration]string{time.Second: "b c", time.Hour: ""} {
		synctest.Test(t, func(t *testing.T) {
			n := &node{other: 640, late: late}
			for _, name := range []string{"a", "b", "c"} {
				n.add(name, 80)
			}
			c := n.collector("", func(cfg *Config) { cfg.Policy.MinAge = 0 })
			c.Collect(t.Context()) // 880 bytes are in use, and 800 are wanted
			if n.left() != want {
				t.Errorf("free after %s: left are %q, want %q", late, n.left(), want)
			}
		})
	}
}

// An image that a container has mounted as a volume is in use, also if the pod's spec is not known.
func TestAnImageThatIsMountedIsKept(t *testing.T) {
	t.Parallel()
	n := &node{used: []*pod.Observed{{Containers: []pod.Container{{ImageID: "sha256:main", ImageVolumes: []string{"docker.io/library/name:1", "sha256:id"}}}}}}
	for _, name := range []string{"main", "name", "id", "unused"} {
		n.add(name, 50)
	}
	c := n.collector("", func(cfg *Config) { cfg.Policy.MinAge = 0 })
	if images, _, err := c.RemoveUnused(t.Context()); images != 1 || err != nil || n.left() != "main name id" {
		t.Errorf("%d images removed, %v; left: %s", images, err, n.left())
	}
}

// Before every source has answered, nothing is removed, because a pod that is not known yet may need the image.
func TestNothingIsRemovedBeforeThePodsAreKnown(t *testing.T) {
	t.Parallel()
	n := &node{other: 950}
	n.add("a", 50)
	ready := false
	c := n.collector("", func(cfg *Config) { cfg.Ready, cfg.Policy.MinAge = func() bool { return ready }, 0 })
	if images, _, err := c.RemoveUnused(t.Context()); images != 0 || err != nil || n.left() != "a" {
		t.Errorf("%d images removed, %v", images, err)
	}
	ready = true
	if images, _, err := c.RemoveUnused(t.Context()); images != 1 || err != nil {
		t.Errorf("%d images removed, %v", images, err)
	}
}

// An image is removed after it was unused for imageMaximumGCAge, even if the agent was restarted in that time. An image that was
// in use when the last agent ended counts as used until the next one began.
func TestAgeOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "use.json")
	synctest.Test(t, func(t *testing.T) {
		n := &node{pods: []*v1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1.PodSpec{Containers: []v1.Container{{Image: "used:1"}}}}}}
		n.add("unused", 10)
		n.add("used", 10)
		aged := func(cfg *Config) { cfg.Policy.MaxAge = time.Hour }
		n.collector(file, aged).Collect(t.Context())
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Minute)
		n.pods = nil
		c := n.collector(file, aged)
		c.Collect(t.Context())
		if n.left() != "unused used" {
			t.Fatalf("left after 50 minutes: %s", n.left())
		}
		time.Sleep(11 * time.Minute)
		c = n.collector(file, aged)
		c.Collect(t.Context())
		if n.left() != "used" {
			t.Errorf("left after 61 minutes: %s", n.left())
		}
		time.Sleep(50 * time.Minute)
		c.Collect(t.Context())
		if n.left() != "" {
			t.Errorf("left after 111 minutes: %s", n.left())
		}
		if err := os.WriteFile(file, []byte(`{"x": null, "y": 3`), 0o600); err != nil {
			t.Fatal(err)
		}
		n.add("again", 10)
		c = n.collector(file, aged)
		c.Collect(t.Context())
		if n.left() != "again" || info == nil {
			t.Errorf("left with a file that cannot be read: %s", n.left())
		}
	})
}

// The history file is not written again while its content would be the same.
func TestHistoryIsWrittenOnlyWhenItChanges(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "use.json")
	n := &node{}
	n.add("a", 10)
	n.used = []*pod.Observed{{Containers: []pod.Container{{ImageID: "sha256:a"}}}}
	c := n.collector(file, nil)
	c.Collect(t.Context())
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	c.Collect(t.Context())
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file was written again: %v", err)
	}
	n.used = nil
	c.Collect(t.Context())
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}
