package imagegc

import (
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// maxFile is the largest size of the history file in bytes; that is enough for some 100,000 images.
const maxFile = 16 << 20

// history records when images were first seen and last used.
type history struct {
	images  map[string]*record // records by the key of the image
	changed bool               // images differs from the history file
}

// record is the history file's entry for an image.
type record struct {
	Detected time.Time `json:"detected"`
	// LastUsed is zero for an image that was never used. For an image in use, InUse counts instead, so that the file need not be written
	// again while nothing changes.
	LastUsed time.Time `json:"lastUsed,omitzero"`
	InUse    bool      `json:"inUse,omitempty"`
}

// see records that an image is present, and returns when it was first seen and last used.
func (h *history) see(key string, inUse bool, now time.Time) (detected, lastUsed time.Time) {
	r := h.images[key]
	if r == nil {
		r = &record{Detected: now}
		h.images[key], h.changed = r, true
	}
	if r.InUse != inUse {
		h.changed = true
	}
	if r.InUse || inUse {
		r.LastUsed = now
	}
	r.InUse = inUse
	return r.Detected, r.LastUsed
}

// keep removes the records of images that are not listed. An empty list changes nothing, because it may be an error of the
// runtime.
func (h *history) keep(list []*runtimeapi.Image) {
	if len(list) == 0 {
		return
	}
	present := make(map[string]bool, len(list))
	for _, img := range list {
		present[keyOf(img)] = true
	}
	for k := range h.images {
		if !present[k] {
			delete(h.images, k)
			h.changed = true
		}
	}
}

// load reads the history file. For an image that was in use when the file was written, load sets LastUsed to now. If the file cannot
// be read, Detected of every image is now.
func (c *Collector) load(now time.Time) *history {
	h := &history{images: map[string]*record{}}
	if c.cfg.File == "" {
		return h
	}
	if err := h.read(c.cfg.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.cfg.Log.Warn("when images were last used is not known; it counts from now", "file", c.cfg.File, "err", err)
		return &history{images: map[string]*record{}}
	}
	for _, r := range h.images {
		if r.Detected.After(now) { // the time is in the future: the clock was set back
			r.Detected = now
		}
		if r.LastUsed.After(now) || r.InUse {
			r.LastUsed = now
		}
	}
	return h
}

func (h *history) read(path string) error {
	data, err := hostfs.ReadUntrusted(path, 1, maxFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &h.images); err != nil {
		return err
	}
	for k, r := range h.images {
		if r == nil {
			delete(h.images, k)
		}
	}
	if h.images == nil {
		h.images = map[string]*record{}
	}
	return nil
}

// save writes the history file if something has changed.
func (c *Collector) save() {
	if c.cfg.File == "" || !c.history.changed {
		return
	}
	data, err := json.Marshal(c.history.images)
	if err == nil {
		err = hostfs.ReplaceFile(c.cfg.File, data, 0o600)
	}
	if err != nil {
		c.cfg.Log.Warn("when images were last used is not kept for the next agent", "file", c.cfg.File, "err", err)
		return
	}
	c.history.changed = false
}
