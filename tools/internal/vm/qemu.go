package vm

import (
	"fmt"
	"path/filepath"
	"strings"
)

// program is the emulator.
const program = "qemu-system-x86_64"

// Config describes a machine. Everything that it writes is in Dir.
type Config struct {
	Dir string
	// Image is the guest's system. The machine uses a copy of its disk.
	Image Image
	// HostName is the guest's host name.
	HostName string
	// ReadOnly are disk images that the guest sees as additional read-only disks, /dev/vdb and so on.
	ReadOnly []string
	// Namespace is a network namespace (of `ip netns`) with the tap device Tap; if both are empty, there is no network.
	Namespace, Tap string
	// CPUs and MemoryMiB are divided among NUMANodes.
	CPUs, NUMANodes, MemoryMiB int
	// Accel is kvm or tcg (emulation).
	Accel string
}

// These are the accelerators.
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

// MAC is the address of the guest's network device.
const MAC = "52:54:00:77:00:02"

// commandLine returns the program and its arguments that run the machine.
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
	// Writes that the guest has synchronised are in this machine's page cache, so they survive the end of the emulator, as they
	// would survive a power cut.
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
	// nsenter replaces itself by the emulator. `ip netns exec` would hide the cgroup mounts from it.
	return "nsenter", append([]string{"--net=/run/netns/" + c.Namespace, "--", program}, args...)
}

func (c *Config) accelerator() string {
	if c.Accel == KVM {
		return KVM
	}
	return "tcg,thread=multi"
}

func (c *Config) cpu() string {
	if c.Accel == KVM {
		return "host"
	}
	return "max"
}

// kernelArguments returns the arguments of the guest's kernel. They disable the timer check at its start, which fails under
// emulation on a busy machine and stops the kernel.
func (c *Config) kernelArguments() string {
	args := "root=/dev/vda rw console=ttyS0,115200 quiet loglevel=4 panic=5 systemd.show_status=false systemd.hostname=" + c.HostName
	if c.Accel == TCG {
		args += " no_timer_check tsc=unstable"
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
