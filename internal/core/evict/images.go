package evict

import (
	"cmp"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/core/inorder"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// ImagePolicy is the configuration of image collection.
type ImagePolicy struct {
	// HighPercent is how full the images' file system may become before images are removed for space, and LowPercent is how full it should
	// be afterwards (imageGCHighThresholdPercent, imageGCLowThresholdPercent). A HighPercent of 100 disables removal for space.
	HighPercent, LowPercent int
	// MinAge is the age that an image must have before it is removed for space, counted from when the node first saw the image
	// (imageMinimumGCAge). MaxAge is how long an unused image is kept (imageMaximumGCAge); 0: without limit.
	MinAge, MaxAge time.Duration
}

// Image is an image of the runtime, as the collection sees it.
type Image struct {
	ID, Handler string
	Names       []string // tags and digests
	Bytes       uint64
	// Kept is set if the runtime has pinned the image, or the configuration says that it is never removed.
	Kept bool
	// InUse: a container uses the image, or a pod of the node may start a container with it.
	InUse bool
	// Detected is when the node first saw the image. LastUsed is when it was last in use; zero: never.
	Detected, LastUsed time.Time
}

// since returns the time from which on the image has been unused.
func (i *Image) since() time.Time {
	if i.LastUsed.After(i.Detected) {
		return i.LastUsed
	}
	return i.Detected
}

// These are the reasons for removing an image, as the label of the metric names them.
const (
	ReasonAge   = "age"
	ReasonSpace = "space"
)

// ImageInput contains everything that the choice of images depends on.
type ImageInput struct {
	Policy *ImagePolicy
	Images []Image
	// Disk is the images' file system; nil: it could not be measured.
	Disk *pressure.Observation
	// All: the node is short of disk space, so every unused image is removed.
	All bool
	Now time.Time
}

// ImagePlan says which images to remove.
type ImagePlan struct {
	// Old are the images to remove because of their age. ForSpace are the images to remove for space: the caller removes them in this
	// order and stops when Free more bytes are available. (Images share layers, so the sum of their sizes is larger than what their
	// removal frees.)
	Old, ForSpace []Image
	Free          int64
	// Percent is how full the file system is; -1: not known. NoCapacity: the file system reports a capacity of 0.
	Percent    int
	NoCapacity bool
}

// Images chooses the images to remove: "the kubelet deletes images in order based on the last time they were used, starting with
// the oldest first". The age of an image that was never used counts from when it was first seen.
func Images(in ImageInput) ImagePlan {
	p := ImagePlan{Percent: -1}
	var unused []Image
	for _, i := range in.Images {
		if !i.Kept && !i.InUse && i.ID != "" {
			unused = append(unused, i)
		}
	}
	inorder.Sort(unused, func(a, b Image) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.Detected.Compare(b.Detected), strings.Compare(a.ID+a.Handler, b.ID+b.Handler))
	})
	left := unused[:0:0]
	for _, i := range unused {
		if in.Policy.MaxAge > 0 && in.Now.Sub(i.since()) > in.Policy.MaxAge {
			p.Old = append(p.Old, i)
			continue
		}
		if in.Now.Sub(i.Detected) >= in.Policy.MinAge {
			left = append(left, i)
		}
	}
	switch {
	case in.All:
		p.ForSpace, p.Free = left, maxAmount
	case in.Disk == nil:
	case in.Disk.Capacity <= 0:
		p.NoCapacity = true
	default:
		if p.free(in); p.Free > 0 {
			p.ForSpace = left
		}
	}
	return p
}

// free calculates how much space has to be freed.
func (p *ImagePlan) free(in ImageInput) {
	capacity := min(in.Disk.Capacity, maxAmount)
	available := min(max(in.Disk.Available, 0), capacity)
	p.Percent = 100 - percent(available, capacity)
	if in.Policy.HighPercent < 100 && p.Percent >= in.Policy.HighPercent {
		left := int64(100 - in.Policy.LowPercent)
		p.Free = max(capacity/100*left+capacity%100*left/100-available, 0)
	}
}

func percent(part, whole int64) int {
	for whole > 1<<50 {
		part, whole = part>>1, whole>>1
	}
	return int(part * 100 / whole)
}
