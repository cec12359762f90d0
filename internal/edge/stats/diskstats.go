package stats

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// diskCounters are the kernel's counters of one block device since the machine started.
type diskCounters struct {
	reads, readsMerged, sectorsRead, readMillis         uint64
	writes, writesMerged, sectorsWritten, writtenMillis uint64
	inProgress, busyMillis, weightedMillis              uint64
}

// deviceCounters reads the line of a device such as /dev/vda in /proc/diskstats. It returns nil if there is no such line: a file
// system in memory has no block device.
func deviceCounters(host, device string) *diskCounters {
	text, ok := slurp(filepath.Join(host, "proc/diskstats"))
	if !ok {
		return nil
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 14 || "/dev/"+f[2] != device {
			continue
		}
		var n [11]uint64
		for i := range n {
			var err error
			if n[i], err = strconv.ParseUint(f[i+3], 10, 64); err != nil {
				return nil
			}
		}
		return &diskCounters{
			reads: n[0], readsMerged: n[1], sectorsRead: n[2], readMillis: n[3],
			writes: n[4], writesMerged: n[5], sectorsWritten: n[6], writtenMillis: n[7],
			inProgress: n[8], busyMillis: n[9], weightedMillis: n[10],
		}
	}
	return nil
}

// diskFamilies are the metrics of a whole block device.
type diskFamilies struct {
	readsMerged, sectorsRead, readSeconds, writesMerged, sectorsWritten, writeSeconds family
	current, seconds, weighted                                                        family
}

func newDiskFamilies(counter, gauge func(name, help string, extra ...string) family) diskFamilies {
	one := func(what, help string) family {
		return counter(fmt.Sprintf("container_fs_%s_total", what), help, "device")
	}
	return diskFamilies{
		readsMerged: one("reads_merged", "Reads merged with others"), sectorsRead: one("sector_reads", "Sectors read"), readSeconds: one("read_seconds", "Seconds that reads took"),
		writesMerged: one("writes_merged", "Writes merged with others"), sectorsWritten: one("sector_writes", "Sectors written"), writeSeconds: one("write_seconds", "Seconds that writes took"),
		current: gauge("container_fs_io_current", "I/O requests in progress", "device"), seconds: one("io_time_seconds", "Seconds in which I/O requests were in progress"),
		weighted: one("io_time_weighted_seconds", "Seconds in which I/O requests were in progress, multiplied by their number"),
	}
}

// device writes the metrics of a whole block device. withCounts adds the numbers of reads and writes, for a control group that
// has no such counters of its own.
func (v *scene) device(device string, withCounts bool, l labels) {
	c := deviceCounters(v.disks.s.cfg.HostRoot, device)
	if c == nil {
		return
	}
	f, row := &v.f.disk, l.with(device)
	for _, pair := range []struct {
		family family
		value  float64
	}{
		{f.readsMerged, float64(c.readsMerged)}, {f.sectorsRead, float64(c.sectorsRead)}, {f.readSeconds, float64(c.readMillis) / 1000},
		{f.writesMerged, float64(c.writesMerged)}, {f.sectorsWritten, float64(c.sectorsWritten)}, {f.writeSeconds, float64(c.writtenMillis) / 1000},
		{f.current, float64(c.inProgress)}, {f.seconds, float64(c.busyMillis) / 1000}, {f.weighted, float64(c.weightedMillis) / 1000},
	} {
		v.out.put(pair.family, v.r.at, pair.value, row...)
	}
	if withCounts {
		v.out.put(v.f.fsReads, v.r.at, float64(c.reads), row...)
		v.out.put(v.f.fsWrites, v.r.at, float64(c.writes), row...)
	}
}
