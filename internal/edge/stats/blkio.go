package stats

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/wherry-node/wherry/internal/core/inorder"
)

// ioUsage has the I/O of a control group on one device.
type ioUsage struct {
	device                                  string // path of the device in /dev
	major, minor                            string
	bytes                                   []operation // bytes by operation, in the kernel's order
	readBytes, writtenBytes, reads, written uint64
	costs                                   [len(ioCosts)]*uint64 // microseconds; nil: the kernel does not report them
}

// ioCosts are the values that the kernel's I/O cost controller reports for a device (iocost, control groups v2 only), by the
// names of their metrics. In io.stat the names have the prefix "cost.".
var ioCosts = [...]struct{ name, help string }{
	{"usage", "Seconds of the device's time that the I/O cost, as the kernel estimates it"},
	{"wait", "Seconds that I/O waited because its share of the device was used up"},
	{"indebt", "Seconds in which the container owed the device time"},
	{"indelay", "Seconds for which the container was slowed down because it owed the device time"},
}

// operation is a kind of I/O by its name in control groups v1: Read, Write, Sync, Async, Discard, Total.
type operation struct {
	name  string
	bytes uint64
}

// maxDevices bounds the devices of a control group in the metrics. On a machine with more devices, the metrics have the first
// ones.
const maxDevices = 256

// io reads the control group's I/O by device.
func (r *reader) io() []ioUsage {
	byDevice := map[string]*ioUsage{}
	at := func(number string) *ioUsage {
		if d := byDevice[number]; d != nil || len(byDevice) == maxDevices {
			return d
		}
		major, minor, _ := strings.Cut(number, ":")
		d := &ioUsage{device: deviceName(r.tree.host, number), major: major, minor: minor}
		byDevice[number] = d
		return d
	}
	if r.tree.v2 {
		text, _ := r.text("", "io.stat")
		for line := range strings.Lines(text) {
			f := strings.Fields(line)
			for _, kv := range f[min(1, len(f)):] {
				key, value, _ := strings.Cut(kv, "=")
				n, err := strconv.ParseUint(value, 10, 64)
				if d := at(f[0]); err == nil && d != nil {
					d.set(key, n)
				}
			}
		}
	} else {
		r.blkio("blkio.throttle.io_service_bytes_recursive", func(number, operation string, n uint64) {
			if d := at(number); d != nil {
				d.transferred(operation, n)
			}
		})
		r.blkio("blkio.throttle.io_serviced_recursive", func(number, operation string, n uint64) {
			if d := at(number); d != nil {
				d.set(map[string]string{"Read": "rios", "Write": "wios"}[operation], n)
			}
		})
	}
	var out []ioUsage
	for _, d := range byDevice {
		out = append(out, *d)
	}
	inorder.Sort(out, func(a, b ioUsage) int { return strings.Compare(a.device, b.device) })
	return out
}

// blkio calls the function row for each line such as "8:0 Read 4096". It skips the line with the sum over all devices.
func (r *reader) blkio(file string, row func(number, operation string, n uint64)) {
	text, _ := r.text("blkio", file)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 {
			continue
		}
		if n, err := strconv.ParseUint(f[2], 10, 64); err == nil {
			row(f[0], f[1], n)
		}
	}
}

func (d *ioUsage) set(key string, n uint64) {
	switch key {
	case "rbytes":
		d.transferred("Read", n)
	case "wbytes":
		d.transferred("Write", n)
	case "rios":
		d.reads = n
	case "wios":
		d.written = n
	}
	if name, ok := strings.CutPrefix(key, "cost."); ok {
		for i := range ioCosts {
			if ioCosts[i].name == name {
				d.costs[i] = &n
			}
		}
	}
}

func (d *ioUsage) transferred(name string, bytes uint64) {
	d.bytes = append(d.bytes, operation{name, bytes})
	switch name {
	case "Read":
		d.readBytes = bytes
	case "Write":
		d.writtenBytes = bytes
	}
}

// deviceName returns the path of a device, for example /dev/vda for 253:0.
func deviceName(host, number string) string {
	link, err := os.Readlink(filepath.Join(host, "sys/dev/block", number))
	if err != nil {
		return number
	}
	return "/dev/" + filepath.Base(link)
}
