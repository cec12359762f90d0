package volumesim

import (
	"context"
	"errors"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/wherry-node/wherry/internal/core/csispec"
	"github.com/wherry-node/wherry/internal/edge/volume"
)

// driver is the CSI driver as one agent calls it. It injects faults into the calls.
type driver struct {
	w *world
	a *agentLife
}

var _ volume.Driver = (*driver)(nil)

var (
	errBefore = errors.New("the driver fails")
	errAfter  = errors.New("the driver's answer is lost")
)

// callWithin is how long a call may take, as in package csi.
const callWithin = 2 * time.Minute

// call makes one call with a fault, and checks the rules before and after it.
func (d *driver) call(ctx context.Context, f func(context.Context) error) error {
	if err := d.a.step(); err != nil {
		return err
	}
	d.w.check()
	defer d.w.check()
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	time.Sleep(time.Duration(d.w.roll(2000)) * time.Millisecond)
	switch fault := d.w.roll(100); {
	case fault < d.w.faults: // the driver fails before it does the work
		return errBefore
	case fault < 2*d.w.faults:
		_ = f(ctx)
		return errAfter
	case fault < 2*d.w.faults+d.w.faults/4:
		<-ctx.Done()
		return ctx.Err()
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return f(ctx)
}

func (d *driver) Can() csispec.Capabilities { return csispec.Capabilities{Stage: true} }

func (d *driver) Stage(ctx context.Context, r *csi.NodeStageVolumeRequest) error {
	return d.call(ctx, func(ctx context.Context) error {
		if b := d.w.bug; b != nil && b.stagesTwice {
			d.w.late.Go(func() { _, _ = d.w.csi.NodeStageVolume(ctx, r) })
			time.Sleep(time.Millisecond)
		}
		_, err := d.w.csi.NodeStageVolume(ctx, r)
		return err
	})
}

func (d *driver) Unstage(ctx context.Context, r *csi.NodeUnstageVolumeRequest) error {
	return d.call(ctx, func(ctx context.Context) error {
		_, err := d.w.csi.NodeUnstageVolume(ctx, r)
		return err
	})
}

func (d *driver) Publish(ctx context.Context, r *csi.NodePublishVolumeRequest) error {
	return d.call(ctx, func(ctx context.Context) error {
		if b := d.w.bug; b != nil && b.publishesLate {
			d.w.late.Go(func() {
				time.Sleep(5 * time.Minute)
				_, _ = d.w.csi.NodePublishVolume(context.WithoutCancel(ctx), r)
			})
		}
		_, err := d.w.csi.NodePublishVolume(ctx, r)
		return err
	})
}

func (d *driver) Unpublish(ctx context.Context, r *csi.NodeUnpublishVolumeRequest) error {
	if b := d.w.bug; b != nil && b.forgetsUnpublish {
		_ = d.w.m.unmount(r.TargetPath)
		return nil
	}
	return d.call(ctx, func(ctx context.Context) error {
		_, err := d.w.csi.NodeUnpublishVolume(ctx, r)
		return err
	})
}

func (d *driver) Expand(ctx context.Context, r *csi.NodeExpandVolumeRequest) error { return nil }

func (d *driver) Stats(context.Context, *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	return &csi.NodeGetVolumeStatsResponse{}, nil
}
