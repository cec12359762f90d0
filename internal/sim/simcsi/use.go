package simcsi

import (
	"strconv"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// These are attributes of a volume, all of them whole numbers.
const (
	AttributeSize          = "size"          // bytes
	AttributeUsed          = "used"          // bytes that are used when the volume is made
	AttributeUsedPerSecond = "usedPerSecond" // bytes by which the use grows in each second since then
	AttributeMade          = "made"          // when the volume was made, in seconds of Unix time; without it: when a node staged it
)

// volumeUse is how much of a volume is used.
type volumeUse struct {
	size, used, perSecond int64 // bytes
	made                  time.Time
}

// usage returns the usage at a time: never less than nothing, and never more than the volume has.
func (u *volumeUse) usage(now time.Time) []*csi.VolumeUsage {
	used := float64(u.used) + float64(u.perSecond)*now.Sub(u.made).Seconds()
	full := int64(max(0, min(used, float64(u.size))))
	return []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: u.size, Available: u.size - full, Used: full}}
}

// learnUse stores the size and the use of a volume if its attributes have a size. The caller holds the lock.
func (d *Driver) learnUse(volume string, attributes map[string]string) {
	number := func(key string) int64 {
		n, err := strconv.ParseInt(attributes[key], 10, 64)
		if err != nil {
			return 0
		}
		return max(0, n)
	}
	use := volumeUse{size: number(AttributeSize), used: number(AttributeUsed), perSecond: number(AttributeUsedPerSecond), made: time.Now()}
	if at := number(AttributeMade); at > 0 {
		use.made = time.Unix(at, 0)
	}
	if d.cfg.Sized && use.size > 0 {
		d.uses[volume] = use
	}
}
