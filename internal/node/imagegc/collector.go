package imagegc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/wherry-node/wherry/internal/base/rounds"
	"github.com/wherry-node/wherry/internal/core/evict"
	"github.com/wherry-node/wherry/internal/core/pod"
	"github.com/wherry-node/wherry/internal/core/pressure"
)

// Every is the time between two collections of unused images.
const Every = 5 * time.Minute

// sayAgain is the shortest time between two events of one reason. A Node gets only a few warnings per hour, and other parts of the agent need
// them too.
const sayAgain = 15 * time.Minute

// These are the reasons of the node's events, as upstream's kubelet writes them.
const (
	reasonNoCapacity = "InvalidDiskCapacity"
	reasonNotEnough  = "FreeDiskSpaceFailed"
	reasonFailed     = "ImageGCFailed"
)

// Images is the runtime's image store.
type Images interface {
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	// RemoveImage removes an image, unless it is being pulled (removed is false then). A pod that needs the image waits until the
	// removal has ended.
	RemoveImage(ctx context.Context, img *runtimeapi.Image) (removed bool, err error)
}

// Config configures a Collector. Functions may be called concurrently.
type Config struct {
	// Policy is the first policy; SetPolicy replaces it.
	Policy evict.ImagePolicy
	Images Images
	// Observed returns the newest inspection of every pod. Desired returns the pods of the sources. Ready returns true once every
	// source has answered and the runtime has been listed; until then nothing is removed.
	Observed func() []*pod.Observed
	Desired  func() []*v1.Pod
	Ready    func() bool
	// Keep reports whether the configuration says that an image of this name is never removed; nil: the configuration names none.
	Keep func(name string) bool
	// Disk measures the images' file system; false: it is not known.
	Disk func(ctx context.Context) (pressure.Observation, bool)
	// NodeEvent records an event on the node.
	NodeEvent func(eventType, reason, message string)
	// Collected is called for each image that was removed, with evict.ReasonAge or evict.ReasonSpace; nil: not called.
	Collected func(reason string)
	// File is the path of the history file, which stores when images were last used; "": there is no such file.
	File string
	Log  *slog.Logger
}

// Collector removes unused images. Create it with New, then call Run once.
type Collector struct {
	cfg    Config
	policy atomic.Pointer[evict.ImagePolicy] // the policy is never changed; a new one replaces it

	held    chan struct{} // has an element during a collection; only the goroutine that put it there uses the fields below
	history *history
	failed  string               // the error of the last collection; "": it did not fail
	said    map[string]time.Time // when the last event of a reason was recorded
	refused map[string]string    // images that could not be removed, with the error
}

// New returns a Collector; it does no IO.
func New(cfg Config) *Collector {
	c := &Collector{cfg: cfg, held: make(chan struct{}, 1), said: map[string]time.Time{}, refused: map[string]string{}}
	c.policy.Store(&cfg.Policy)
	return c
}

// SetPolicy replaces the policy, for the next collection.
func (c *Collector) SetPolicy(p evict.ImagePolicy) { c.policy.Store(&p) }

// hold waits until no other collection runs. It stops waiting when ctx ends, because a runtime may take minutes to remove an image.
func (c *Collector) hold(ctx context.Context) error {
	select {
	case c.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the runtime still removes images of another collection: %w", ctx.Err())
	}
}

func (c *Collector) release() { <-c.held }

// Begin collects images every 5 minutes in the background until ctx ends. It returns at once; join waits until the last collection has
// ended.
func (c *Collector) Begin(ctx context.Context) (join func()) {
	first := true
	return rounds.New(func(ctx context.Context) time.Duration {
		if first {
			c.begin(ctx)
			first = false
		} else {
			c.Collect(ctx)
		}
		return Every
	}).Begin(ctx)
}

// Run calls Begin, and returns when ctx and the last collection have ended. Unlike Begin, it blocks.
func (c *Collector) Run(ctx context.Context) error { return rounds.Until(ctx, c.Begin) }

// begin reads the history file, which says when images were last used.
func (c *Collector) begin(ctx context.Context) {
	if c.hold(ctx) != nil {
		return // the first collection reads the history file
	}
	defer c.release()
	if c.history == nil {
		c.history = c.load(time.Now())
	}
}

// See records which images are present, so that their age counts from the moment when the node first listed them and not from the
// next collection. It does not block: if a collection runs, it does nothing.
func (c *Collector) See(images []*runtimeapi.Image) {
	select {
	case c.held <- struct{}{}:
	default:
		return
	}
	defer c.release()
	if c.history == nil {
		return // the first collection reads the history file
	}
	now := time.Now()
	for _, img := range images {
		if k := keyOf(img); c.history.images[k] == nil {
			c.history.see(k, false, now)
		}
	}
}

// Collect removes images by age and by space, as the policy says. It takes at most five minutes (Every); the next collection
// continues.
func (c *Collector) Collect(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, Every)
	defer cancel()
	_, err := c.collect(bounded, false)
	if c.hold(ctx) != nil {
		return
	}
	defer c.release()
	if err == nil {
		c.failed = ""
		return
	}
	level := slog.LevelWarn
	if c.failed == err.Error() {
		level = slog.LevelDebug // the log has said so
	}
	c.cfg.Log.Log(ctx, level, "images not collected; trying again in 5 minutes", "err", err)
	if c.failed != "" { // one failure may be accidental, so only the second is reported
		c.say(reasonFailed, err)
	}
	c.failed = err.Error()
}

// say records an event on the node, unless it has recorded one of this reason less than sayAgain ago. The caller holds c.held.
func (c *Collector) say(reason string, err error) {
	now := time.Now()
	if last, ok := c.said[reason]; ok && now.Sub(last) < sayAgain {
		return
	}
	c.said[reason] = now
	c.cfg.NodeEvent(v1.EventTypeWarning, reason, err.Error())
}

// RemoveUnused removes every unused image that is old enough. It returns the number of images, and their size according to the
// runtime.
func (c *Collector) RemoveUnused(ctx context.Context) (images int, bytes uint64, err error) {
	freed, err := c.collect(ctx, true)
	return freed.images, freed.bytes, err
}

// maxErrors bounds how many images the error of a collection names, because all images of a node may fail for the same reason.
const maxErrors = 10

// freed is the number of images that a collection has removed, and their size.
type freed struct {
	images int
	bytes  uint64
}

func (c *Collector) collect(ctx context.Context, all bool) (freed, error) {
	var out freed
	if err := c.hold(ctx); err != nil {
		return out, err
	}
	defer c.release()
	if !c.cfg.Ready() {
		return out, nil
	}
	list, err := c.cfg.Images.ListImages(ctx)
	if err != nil {
		return out, err
	}
	now := time.Now()
	in := evict.ImageInput{Policy: c.policy.Load(), Images: c.look(list, now), All: all, Now: now}
	if !all {
		if disk, ok := c.cfg.Disk(ctx); ok {
			in.Disk = &disk
		}
	}
	plan := evict.Images(in)
	known := make(map[string]*runtimeapi.Image, len(list))
	for _, img := range list {
		known[keyOf(img)] = img
	}
	c.forgetRefused(list)
	var errs []error
	remove := func(i evict.Image, reason string) {
		removed, err := c.remove(ctx, known[key(i.ID, i.Handler)], reason)
		if err != nil && len(errs) < maxErrors {
			errs = append(errs, err)
		}
		if removed {
			out.images, out.bytes = out.images+1, out.bytes+i.Bytes
		}
	}
	for _, i := range plan.Old {
		remove(i, evict.ReasonAge)
	}
	switch {
	case plan.NoCapacity:
		err := errors.New("invalid capacity 0 on image filesystem")
		c.say(reasonNoCapacity, err)
		errs = append(errs, err)
	case plan.Free > 0:
		errs = append(errs, c.forSpace(ctx, &plan, in.Disk, remove, &out))
	}
	c.history.keep(list)
	c.save()
	return out, errors.Join(errs...)
}

// A runtime or a file system may free the space of an image only after the answer to its removal. The collector waits for that up to deletedWithin,
// and measures every deletedStep.
const (
	deletedWithin = 2 * time.Second
	deletedStep   = 200 * time.Millisecond
)

// forSpace removes images until enough space is free. Images share layers, so the file system is measured after each.
func (c *Collector) forSpace(ctx context.Context, plan *evict.ImagePlan, before *pressure.Observation, remove func(evict.Image, string), out *freed) error {
	gained := int64(0)
	measure := func() {
		if before != nil {
			gained = c.gained(ctx, before, gained, plan.Free, out.bytes >= uint64(plan.Free)) //nolint:gosec // Free is positive
		}
	}
	if out.images > 0 { // those that were removed for their age may have been enough
		measure()
	}
	for _, i := range plan.ForSpace {
		if ctx.Err() != nil || gained >= plan.Free {
			break
		}
		remove(i, evict.ReasonSpace)
		measure()
	}
	if before == nil || gained >= plan.Free || ctx.Err() != nil {
		return nil
	}
	//lint:ignore ST1005 upstream's words, which tools read
	err := fmt.Errorf("Insufficient free disk space on the node's image filesystem (%d%% of %s used). Failed to free sufficient space by deleting unused images (freed %d bytes). "+
		"Investigate disk usage, as it could be used by active images, logs, volumes, or other data.", plan.Percent, size(before.Capacity), gained)
	c.say(reasonNotEnough, err)
	return err
}

// gained returns how much more space is available than before; was: so much at the last measurement. If the sizes of the removed images are enough to
// free what is wanted, it waits until that much is available.
func (c *Collector) gained(ctx context.Context, before *pressure.Observation, was, wanted int64, enough bool) int64 {
	for end := time.Now().Add(deletedWithin); ; {
		if now, ok := c.cfg.Disk(ctx); ok {
			was = now.Available - before.Available
		}
		if !enough || was >= wanted || !time.Now().Before(end) {
			return was
		}
		select {
		case <-ctx.Done():
			return was
		case <-time.After(deletedStep):
		}
	}
}

// size writes an amount in the form of upstream's event: 1.5 GiB.
func size(n int64) string {
	f, unit := float64(n), 0
	for f >= 1024 && unit < 4 {
		f, unit = f/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %ciB", f, " KMGT"[unit])
}

// forgetRefused forgets the errors of images that are no longer listed, so that the record does not grow without end.
func (c *Collector) forgetRefused(list []*runtimeapi.Image) {
	if len(c.refused) == 0 {
		return
	}
	present := make(map[string]bool, len(list))
	for _, img := range list {
		present[img.GetId()] = true
	}
	maps.DeleteFunc(c.refused, func(id, _ string) bool { return !present[id] })
}

// remove removes one image, and reports whether it did so. An image that is in use by now, or that is being pulled, stays.
func (c *Collector) remove(ctx context.Context, img *runtimeapi.Image, reason string) (bool, error) {
	if img == nil || ctx.Err() != nil || c.users().has(img) { // a pod may have begun to use the image after the plan was made
		return false, ctx.Err()
	}
	removed, err := c.cfg.Images.RemoveImage(ctx, img)
	if err != nil {
		err = fmt.Errorf("remove image %s: %w", nameOf(img), err)
		if c.refused[img.GetId()] != err.Error() {
			c.cfg.Log.Warn("an image cannot be removed; trying again with the next collection", "image", nameOf(img), "err", err)
		}
		c.refused[img.GetId()] = err.Error()
		return false, err
	}
	delete(c.refused, img.GetId())
	if !removed {
		return false, nil
	}
	c.cfg.Log.Info("image removed", "image", nameOf(img), "id", img.GetId(), "bytes", img.GetSize(), "why", reason)
	if c.cfg.Collected != nil {
		c.cfg.Collected(reason)
	}
	return true, nil
}

// nameOf returns a readable name of an image, for logs and errors.
func nameOf(img *runtimeapi.Image) string {
	for _, names := range [][]string{img.GetRepoTags(), img.GetRepoDigests()} {
		if len(names) > 0 {
			return pod.Text(names[0])
		}
	}
	return pod.Text(img.GetId())
}

// look describes the listed images for evict.Images, and records in the history which images are in use.
func (c *Collector) look(list []*runtimeapi.Image, now time.Time) []evict.Image {
	if c.history == nil {
		c.history = c.load(now)
	}
	users := c.users()
	out := make([]evict.Image, 0, len(list))
	for _, img := range list {
		i := evict.Image{
			ID: img.GetId(), Handler: img.GetSpec().GetRuntimeHandler(), Names: append(append([]string{}, img.GetRepoTags()...), img.GetRepoDigests()...),
			Bytes: img.GetSize(), Kept: img.GetPinned(), InUse: users.has(img),
		}
		for _, name := range i.Names {
			i.Kept = i.Kept || c.cfg.Keep != nil && c.cfg.Keep(name)
		}
		i.Detected, i.LastUsed = c.history.see(keyOf(img), i.InUse, now)
		out = append(out, i)
	}
	return out
}

func key(id, handler string) string { return id + "\n" + handler }

func keyOf(img *runtimeapi.Image) string { return key(img.GetId(), img.GetSpec().GetRuntimeHandler()) }
