package stats

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// diskReader measures the filesystems for one summary, each of them once, at the instant at.
type diskReader struct {
	s      *Stats
	ctx    context.Context
	at     time.Time
	spaces map[string]*statsapi.FsStats
}

// diskWithin is the time limit for all disk measurements of one summary.
const diskWithin = 2 * time.Minute

func (s *Stats) disks(ctx context.Context, at time.Time) *diskReader {
	return &diskReader{s: s, ctx: ctx, at: at, spaces: map[string]*statsapi.FsStats{}}
}

// device returns the name of the device that path lies on, or the device number if it has no name.
func (d *diskReader) device(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return deviceName(d.s.cfg.HostRoot, fmt.Sprintf("%d:%d", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))))
}

// space returns size and free space of the filesystem at path, without the used amount. It returns a copy, or nil if
// the filesystem could not be measured.
func (d *diskReader) space(path string) *statsapi.FsStats {
	if d.s.cfg.Disk == nil || path == "" {
		return nil
	}
	have, ok := d.spaces[path]
	if !ok {
		capacity, available, inodes, inodesFree, err := d.s.cfg.Disk.DiskSpace(path)
		if err != nil {
			d.s.cfg.Log.Warn("stats are incomplete", "err", err)
		} else {
			have = &statsapi.FsStats{Time: d.s.shown(d.at), CapacityBytes: &capacity, AvailableBytes: &available, Inodes: &inodes, InodesFree: &inodesFree}
		}
		d.spaces[path] = have
	}
	if have == nil {
		return nil
	}
	return ptr(*have)
}

func (d *diskReader) runtime() *statsapi.RuntimeStats {
	images, containers := d.s.imageFs(d.ctx)
	if images == nil {
		return nil
	}
	return &statsapi.RuntimeStats{ImageFs: d.usageOn(images), ContainerFs: d.usageOn(containers)}
}

// usageOn combines a usage that the runtime reports with the size of the filesystem.
func (d *diskReader) usageOn(u *runtimeapi.FilesystemUsage) *statsapi.FsStats {
	if u == nil {
		return nil
	}
	out := d.space(u.GetFsId().GetMountpoint())
	if out == nil {
		out = &statsapi.FsStats{}
	}
	out.Time = d.s.shown(stamp(u.GetTimestamp()))
	out.UsedBytes, out.InodesUsed = value(u.GetUsedBytes()), value(u.GetInodesUsed())
	return out
}

// pod writes the disk usage of a pod and of its containers into out.
func (d *diskReader) pod(p *podReading, out *statsapi.PodStats) {
	total := d.space(d.s.cfg.RootDir)
	add := func(part *statsapi.FsStats) {
		if total != nil && part != nil {
			total.UsedBytes, total.InodesUsed = sum(total.UsedBytes, part.UsedBytes), sum(total.InodesUsed, part.InodesUsed)
		}
	}
	for i := range p.containers {
		c := &out.Containers[i]
		c.Rootfs = d.usageOn(p.containers[i].writable)
		c.Logs = d.logs(p.ref.UID, &p.containers[i])
		add(c.Rootfs)
		add(c.Logs)
	}
	add(d.files(p))
	for _, v := range d.volumes(p) {
		one := statsapi.VolumeStats{Name: v.Name, FsStats: statsapi.FsStats{
			Time: d.s.shown(v.Time), CapacityBytes: &v.CapacityBytes, AvailableBytes: &v.AvailableBytes, UsedBytes: &v.UsedBytes,
			Inodes: &v.Inodes, InodesFree: &v.InodesFree, InodesUsed: &v.InodesUsed,
		}}
		if v.PVCName != "" {
			one.PVCRef = &statsapi.PVCReference{Namespace: v.PVCNamespace, Name: v.PVCName}
		}
		if v.Abnormal != nil {
			one.VolumeHealthStats = &statsapi.VolumeHealthStats{Abnormal: *v.Abnormal}
		}
		out.VolumeStats = append(out.VolumeStats, one)
		if v.Ephemeral {
			add(&one.FsStats)
		}
	}
	if total != nil && total.UsedBytes != nil {
		out.EphemeralStorage = total
	}
}

func (d *diskReader) logs(uid types.UID, c *containerReading) *statsapi.FsStats {
	if d.s.cfg.LogDir == "" {
		return nil
	}
	out := d.space(d.s.cfg.LogDir)
	if out == nil {
		return nil
	}
	used, err := d.s.measureLogs(d.ctx, uid, c)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.s.cfg.Log.Warn("stats are incomplete", "err", err)
		}
		return nil
	}
	out.UsedBytes, out.InodesUsed = &used.Bytes, &used.Inodes
	return out
}

// files measures the hosts file and the termination messages of the pod, because containers write to them.
func (d *diskReader) files(p *podReading) *statsapi.FsStats {
	if d.s.cfg.Volumes == nil {
		return nil
	}
	bytes, inodes, err := d.s.cfg.Volumes.FilesUsage(p.ref.UID)
	if err != nil {
		d.s.cfg.Log.Warn("cannot measure the files of a pod; stats are incomplete", "pod", p.ref.String(), "err", err)
	}
	return &statsapi.FsStats{UsedBytes: &bytes, InodesUsed: &inodes}
}

func (d *diskReader) volumes(p *podReading) []Volume {
	if d.s.cfg.Volumes == nil {
		return nil
	}
	list, err := d.s.cfg.Volumes.VolumeUsage(d.ctx, p.ref.UID)
	if err != nil {
		d.s.cfg.Log.Warn("cannot measure the volumes of a pod; stats are incomplete", "pod", p.ref.String(), "err", err)
	}
	return list
}
