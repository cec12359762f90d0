package evict_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wherry-node/wherry/internal/core/evict"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

func TestImages(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	const gi = int64(1) << 30
	images := []evict.Image{
		{ID: "used-lately", Detected: ago(time.Hour), LastUsed: ago(10 * time.Minute)},
		{ID: "used-long-ago", Detected: ago(time.Hour), LastUsed: ago(50 * time.Minute)},
		{ID: "never-used", Detected: ago(20 * time.Minute)},
		{ID: "never-used-older", Detected: ago(30 * time.Minute)},
		{ID: "new", Detected: ago(time.Minute)},
		{ID: "in-use", InUse: true, Detected: ago(time.Hour), LastUsed: now},
		{ID: "kept", Kept: true, Detected: ago(time.Hour)},
		{ID: "", Detected: ago(time.Hour)},
	}
	policy := evict.ImagePolicy{HighPercent: 85, LowPercent: 80, MinAge: 2 * time.Minute}
	const all = "never-used-older never-used used-long-ago used-lately"
	for name, c := range map[string]struct {
		change     func(*evict.ImageInput)
		old, space string
		free       int64
	}{
		"room enough":    {func(in *evict.ImageInput) { in.Disk.Available = 16 * gi }, "", "", 0},
		"at the high":    {func(in *evict.ImageInput) { in.Disk.Available = 15 * gi }, "", all, 5 * gi},
		"full":           {func(in *evict.ImageInput) { in.Disk.Available = 0 }, "", all, 20 * gi},
		"more than all":  {func(in *evict.ImageInput) { in.Disk.Available = 200 * gi }, "", "", 0},
		"not measured":   {func(in *evict.ImageInput) { in.Disk = nil }, "", "", 0},
		"switched off":   {func(in *evict.ImageInput) { in.Policy.HighPercent, in.Disk.Available = 100, 0 }, "", "", 0},
		"all of them":    {func(in *evict.ImageInput) { in.All = true }, "", all, 1 << 60},
		"age":            {func(in *evict.ImageInput) { in.Policy.MaxAge = 25 * time.Minute }, "never-used-older used-long-ago", "", 0},
		"age, and space": {func(in *evict.ImageInput) { in.Policy.MaxAge, in.Disk.Available = 25*time.Minute, 0 }, "never-used-older used-long-ago", "never-used used-lately", 20 * gi},
	} {
		p := policy
		in := evict.ImageInput{Policy: &p, Images: slices.Clone(images), Disk: &pressure.Observation{Available: 50 * gi, Capacity: 100 * gi}, Now: now}
		c.change(&in)
		plan := evict.Images(in)
		if got := ids(plan.Old); got != c.old {
			t.Errorf("%s: removes for age %q, want %q", name, got, c.old)
		}
		if got := ids(plan.ForSpace); got != c.space || plan.Free != c.free {
			t.Errorf("%s: removes for space %q until %d are free, want %q, %d", name, got, plan.Free, c.space, c.free)
		}
	}
	in := evict.ImageInput{Policy: &policy, Images: images, Disk: &pressure.Observation{}, Now: now}
	if plan := evict.Images(in); !plan.NoCapacity || len(plan.ForSpace) > 0 {
		t.Errorf("a disk of capacity 0: %+v", plan)
	}
}

func ids(images []evict.Image) string {
	var out []string
	for _, i := range images {
		out = append(out, i.ID)
	}
	return strings.Join(out, " ")
}

// FuzzImages checks with arbitrary images and disks that Images never chooses an image that is kept or in use, and never plans to free a
// negative amount.
func FuzzImages(f *testing.F) {
	f.Add([]byte("wherry images"))
	f.Fuzz(func(t *testing.T, data []byte) {
		w := &feed{data}
		p := evict.ImagePolicy{HighPercent: w.n(101), LowPercent: w.n(101), MinAge: time.Duration(w.odd()), MaxAge: time.Duration(w.odd())}
		in := evict.ImageInput{Policy: &p, All: w.n(4) == 0, Now: time.Unix(1_000_000, 0)}
		if w.n(4) > 0 {
			in.Disk = &pressure.Observation{Available: w.odd(), Capacity: w.odd()}
		}
		for range w.n(8) {
			in.Images = append(in.Images, evict.Image{
				ID: string(rune('a' + w.n(26))), Kept: w.n(3) == 0, InUse: w.n(3) == 0, Bytes: uint64(w.odd()),
				Detected: in.Now.Add(time.Duration(w.odd())), LastUsed: in.Now.Add(time.Duration(w.odd())),
			})
		}
		plan := evict.Images(in)
		if plan.Free < 0 || plan.Percent > 100 {
			t.Fatalf("%d%% full, frees %d", plan.Percent, plan.Free)
		}
		for _, i := range slices.Concat(plan.Old, plan.ForSpace) {
			if i.Kept || i.InUse {
				t.Fatalf("removes %+v", i)
			}
		}
		if len(plan.Old)+len(plan.ForSpace) > len(in.Images) {
			t.Fatal("an image is chosen twice")
		}
	})
}
