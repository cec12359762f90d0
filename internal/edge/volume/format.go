package volume

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/wherry-node/wherry/internal/base/hostfs"
)

// formatWithin is the time limit of mkfs and fsck, which may take long on a large disk.
const formatWithin = 30 * time.Minute

// defaultFS is the type of the file system that the agent makes on an empty device if the volume names no type.
const defaultFS = "ext4"

// Exit codes of blkid(8) and fsck(8).
const (
	blkidNothing    = 2 // the device has neither a file system nor a partition table
	fsckCorrected   = 1
	fsckUncorrected = 4
)

// disk is a block device that is mounted as a file system.
type disk struct {
	device   string // path of the device
	dir      string // where it is mounted
	fsType   string // "": the one that the device has, or else defaultFS
	options  []string
	readOnly bool
}

// mountDisk mounts a device. It makes a file system on a device without any content. If there is a file system, and the volume is not
// read-only, mountDisk checks the file system and repairs small damage. It never formats a device with any other content, for example a
// partition table.
func (v *Volumes) mountDisk(ctx context.Context, d *disk) error {
	if strings.ContainsFunc(d.fsType, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' }) {
		return fmt.Errorf("fsType %q is not the name of a file system", d.fsType)
	}
	has, err := v.contentOf(ctx, d)
	if err != nil {
		return err
	}
	if d.fsType == "" {
		if d.fsType = has; has == "" {
			d.fsType = defaultFS
		}
	}
	switch {
	case has == "" && d.readOnly:
		return fmt.Errorf("device %s has no file system, and the volume is read-only: format the device, or use it in a pod that may write first", d.device)
	case has == "":
		v.cfg.Log.Info("make a file system on a device without content", "device", d.device, "type", d.fsType)
		if _, err := v.runTool(ctx, d.dir, formatWithin, mkfsArgs(d.fsType, d.device)...); err != nil {
			return fmt.Errorf("make file system on %s: %w", d.device, err)
		}
	case !d.readOnly:
		if err := v.checkDisk(ctx, d); err != nil {
			return err
		}
	}
	options := d.options
	if d.readOnly {
		options = append(options[:len(options):len(options)], "ro")
	}
	if _, err := v.runTool(ctx, d.dir, mountWithin, mountArgs(d.fsType, d.device, d.dir, options)...); err != nil {
		if has != "" && has != d.fsType {
			return fmt.Errorf("mount device %s, which has a file system of the type %s, as %s: %w", d.device, has, d.fsType, err)
		}
		return fmt.Errorf("mount device %s: %w", d.device, err)
	}
	return nil
}

// contentOf returns the type of the file system on a device, or "" for a device without content. Other content is an error.
func (v *Volumes) contentOf(ctx context.Context, d *disk) (string, error) {
	ran, err := v.runTool(ctx, d.dir, mountWithin, "blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", d.device)
	if ran.Code == blkidNothing && ran.Output == "" {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the content of device %s: %w", d.device, err)
	}
	fsType, partitions := readBlkid(ran)
	switch {
	case partitions != "":
		return "", fmt.Errorf("device %s has a partition table (%s): name one of its partitions, or clear the device", d.device, partitions)
	case fsType == "":
		return "", fmt.Errorf("device %s has content that is no file system: clear the device if nobody needs that: %.200q", d.device, ran.Output)
	}
	return fsType, nil
}

// readBlkid returns the types that blkid -o export printed: that of the file system, and that of the partition table.
func readBlkid(ran hostfs.Ran) (fsType, partitions string) {
	for line := range strings.Lines(ran.Output) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name {
		case "TYPE":
			fsType = value
		case "PTTYPE":
			partitions = value
		}
	}
	return fsType, partitions
}

// mkfsArgs returns the command line that makes a file system. All of an ext file system is for the pod: none of it is reserved for root.
func mkfsArgs(fsType, device string) []string {
	switch fsType {
	case "ext3", "ext4":
		return []string{"mkfs." + fsType, "-F", "-m0", device}
	case "xfs":
		return []string{"mkfs." + fsType, "-f", device}
	}
	return []string{"mkfs." + fsType, device}
}

// growDisk makes the mounted file system of a device as large as the device.
func (v *Volumes) growDisk(ctx context.Context, d *disk) error {
	has, err := v.contentOf(ctx, d)
	if err != nil {
		return err
	}
	var argv []string
	switch has {
	case "ext2", "ext3", "ext4":
		argv = []string{"resize2fs", d.device}
	case "xfs":
		argv = []string{"xfs_growfs", d.dir}
	case "btrfs":
		argv = []string{"btrfs", "filesystem", "resize", "max", d.dir}
	default:
		return fmt.Errorf("device %s has a file system of the type %q, which the node cannot grow (only ext2, ext3, ext4, xfs, btrfs): grow it by hand", d.device, has)
	}
	if _, err := v.runTool(ctx, d.dir, formatWithin, argv...); err != nil {
		return fmt.Errorf("grow the file system of %s: %w", d.device, err)
	}
	return nil
}

// checkDisk checks the file system of a device with fsck, which repairs small damage. It returns an error if fsck cannot repair the
// damage, or was interrupted because ctx ended. Any other failure is only logged, for example that there is no fsck for the type of
// the file system. The caller then mounts the file system unchecked.
func (v *Volumes) checkDisk(ctx context.Context, d *disk) error {
	ran, err := v.runTool(ctx, d.dir, formatWithin, "fsck", "-a", d.device)
	switch {
	case err == nil:
	case ran.Code == fsckCorrected:
		v.cfg.Log.Info("fsck repaired a file system", "device", d.device, "output", ran.Output)
	case ran.Code == fsckUncorrected || ran.Code < 0 && ctx.Err() != nil:
		return fmt.Errorf("the file system on %s is damaged, repair it by hand: %w", d.device, err)
	default:
		v.cfg.Log.Warn("cannot check a file system, it is mounted unchecked", "device", d.device, "err", err)
	}
	return nil
}
