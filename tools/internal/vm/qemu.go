package vm

import (
	"fmt"
	"path/filepath"
	"strings"
)

// program is the name of the QEMU program.
const program = "qemu-system-x86_64"

// Config describes a virtual machine. The machine writes only into Dir.
type Config struct {
	Dir string
	// Image is the guest's system. The machine uses a copy of the image's disk.
	Image Image
	// HostName is the host name of the guest.
	HostName string
	// ReadOnly are disk images that the guest sees as additional read-only disks: /dev/vdb and so on.
	ReadOnly []string
	// Namespace is a network namespace (of `ip netns`) with a tap device, whose name is Tap. If both are "", the guest has no network.
	Namespace, Tap string
	// CPUs and MemoryMiB are divided evenly among NUMANodes NUMA nodes.
	CPUs, NUMANodes, MemoryMiB int
	// DiskMiB is the size in MiB to which Boot enlarges a new disk of the machine; a size that is not larger than the image's has no effect. The
	// guest's file system stays as it is (resize2fs).
	DiskMiB int
	// Accel is KVM or TCG.
	Accel string
}

// These are the accelerators of QEMU. TCG is emulation.
const (
	KVM = "kvm"
	TCG = "tcg"
)

func (c *Config) validate() error {
	switch {
	case !filepath.IsAbs(c.Dir):
		return fmt.Errorf("configure the machine: directory %q is not absolute", c.Dir)
	case len(c.path("console.sock")) > 100:
		return fmt.Errorf("configure the machine: directory %s is too long for a unix socket below it (100 bytes)", c.Dir)
	case strings.ContainsAny(c.Dir, ",\n"):
		return fmt.Errorf("configure the machine: directory %q has a comma, which separates options of QEMU", c.Dir)
	case c.CPUs < 1 || c.NUMANodes < 1 || c.CPUs%c.NUMANodes != 0 || c.MemoryMiB%c.NUMANodes != 0:
		return fmt.Errorf("configure the machine: %d CPUs and %d MiB cannot be divided among %d NUMA nodes", c.CPUs, c.MemoryMiB, c.NUMANodes)
	case (c.Namespace == "") != (c.Tap == ""):
		return fmt.Errorf("configure the machine: a namespace and a tap device come together, not %q and %q", c.Namespace, c.Tap)
	case c.Accel != KVM && c.Accel != TCG:
		return fmt.Errorf("configure the machine: the accelerator %q is neither %s nor %s", c.Accel, KVM, TCG)
	}
	return nil
}

func (c *Config) path(name string) string { return filepath.Join(c.Dir, name) }

// MAC is the MAC address of the guest's network device.
const MAC = "52:54:00:77:00:02"

// commandLine returns the path of the program that runs the machine, and its arguments.
func (c *Config) commandLine() (path string, args []string) {
	args = []string{
		"-machine", "pc", "-accel", c.accelerator(), "-cpu", c.cpu(), "-nodefaults", "-no-user-config", "-display", "none",
		"-smp", fmt.Sprint(c.CPUs), "-m", fmt.Sprintf("%dM", c.MemoryMiB),
		"-kernel", c.Image.Kernel, "-initrd", c.Image.Initrd, "-append", c.kernelArguments(),
		"-chardev", "socket,id=console,path=" + c.path("console.sock") + ",server=on,wait=off,logfile=" + c.path("console.log") + ",logappend=on",
		"-serial", "chardev:console",
		"-chardev", "socket,id=agent,path=" + c.path("agent.sock") + ",server=on,wait=off",
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
		"-qmp", "unix:" + c.path("qmp.sock") + ",server=on,wait=off",
		"-device", "virtio-rng-pci",
	}
	args = append(args, c.numa()...)
	// When the guest synchronises a write, the data is in the host's page cache. It survives a kill of QEMU, as it would survive a power cut
	// on a real disk.
	args = append(args, disk("root", c.path("disk.img"), false)...)
	for i, file := range c.ReadOnly {
		args = append(args, disk(fmt.Sprintf("ro%d", i), file, true)...)
	}
	if c.Tap != "" {
		args = append(args, "-netdev", "tap,id=net,script=no,downscript=no,ifname="+c.Tap, "-device", "virtio-net-pci,netdev=net,mac="+MAC)
	}
	if c.Namespace == "" {
		return program, args
	}
	// nsenter replaces itself by QEMU. `ip netns exec` is not used, because it would hide the cgroup mounts from QEMU.
	return "nsenter", append([]string{"--net=/run/netns/" + c.Namespace, "--", program}, args...)
}

func (c *Config) accelerator() string {
	if c.Accel == KVM {
		return KVM
	}
	return "tcg,thread=multi"
}

// cpu returns the model of the guest's CPUs. The emulated one has page tables of four levels; each further level costs an emulated machine time.
func (c *Config) cpu() string {
	if c.Accel == KVM {
		return "host"
	}
	return "max,la57=off"
}

// kernelArguments returns the arguments of the guest's kernel. The network interface keeps the kernel's name, eth0: upstream's tests of
// /stats/summary want this name. Under emulation they turn off the check of the timer, which fails on a busy
// machine and stops the boot, and the mitigations of bugs that an emulated CPU does not have. They also make the guest trust its TSC, which is
// the host's: the kernel would take the HPET otherwise, and each look at the clock would be a system call and an access to an emulated device.
func (c *Config) kernelArguments() string {
	args := "root=/dev/vda rw console=ttyS0,115200 quiet loglevel=4 panic=5 systemd.show_status=false net.ifnames=0 systemd.hostname=" + c.HostName
	if c.Accel == TCG {
		args += " no_timer_check tsc=reliable mitigations=off"
	}
	return args
}

func (c *Config) numa() []string {
	if c.NUMANodes == 1 {
		return nil
	}
	var args []string
	cpus, mib := c.CPUs/c.NUMANodes, c.MemoryMiB/c.NUMANodes
	for i := range c.NUMANodes {
		args = append(args, "-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%dM", i, mib),
			"-numa", fmt.Sprintf("node,nodeid=%d,memdev=m%d,cpus=%d-%d", i, i, i*cpus, (i+1)*cpus-1))
	}
	return args
}

func disk(id, file string, readOnly bool) []string {
	drive := "if=none,format=raw,id=" + id + ",file=" + file
	if readOnly {
		drive += ",readonly=on"
	} else {
		drive += ",cache=writeback"
	}
	return []string{"-drive", drive, "-device", "virtio-blk-pci,drive=" + id + ",serial=" + id}
}
