package vm

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

func sample() Config {
	return Config{
		Dir: "/v", Image: Image{Kernel: "/i/vmlinuz", Initrd: "/i/initrd", Disk: "/i/disk.img"}, HostName: "n1", ReadOnly: []string{"/v/payload.img"},
		Namespace: "ns1", Tap: "tap0", CPUs: 4, NUMANodes: 2, MemoryMiB: 3072, Accel: TCG,
	}
}

// has reports whether args contain the option, followed by exactly this value.
func has(args []string, option, value string) bool {
	for i := range len(args) - 1 {
		if args[i] == option && args[i+1] == value {
			return true
		}
	}
	return false
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	c := sample()
	path, args := c.commandLine()
	if path != "nsenter" || !slices.Equal(args[:3], []string{"--net=/run/netns/ns1", "--", program}) {
		t.Errorf("in a namespace the program is %s %q", path, args[:3])
	}
	for _, want := range [][2]string{
		{"-accel", "tcg,thread=multi"}, {"-cpu", "max,la57=off"}, {"-smp", "4"}, {"-m", "3072M"},
		{"-numa", "node,nodeid=0,memdev=m0,cpus=0-1"}, {"-numa", "node,nodeid=1,memdev=m1,cpus=2-3"},
		{"-object", "memory-backend-ram,id=m1,size=1536M"},
		{"-drive", "if=none,format=raw,id=root,file=/v/disk.img,cache=writeback"},
		{"-drive", "if=none,format=raw,id=ro0,file=/v/payload.img,readonly=on"},
		{"-netdev", "tap,id=net,script=no,downscript=no,ifname=tap0"},
	} {
		if !has(args, want[0], want[1]) {
			t.Errorf("no %s %s in %q", want[0], want[1], args)
		}
	}
	if line := c.kernelArguments(); !strings.Contains(line, "no_timer_check") || !strings.Contains(line, "systemd.hostname=n1") {
		t.Errorf("the kernel's arguments under emulation: %s", line)
	}
}

func TestCommandLineOfOtherMachines(t *testing.T) {
	t.Parallel()
	c := sample()
	c.Namespace, c.Tap, c.NUMANodes, c.Accel = "", "", 1, KVM
	path, args := c.commandLine()
	if path != program || !has(args, "-accel", "kvm") || !has(args, "-cpu", "host") {
		t.Errorf("with KVM: %s %q", path, args)
	}
	for _, option := range []string{"-numa", "-object", "-netdev"} {
		if slices.Contains(args, option) {
			t.Errorf("%s in the command line of a machine without a network and with one node of memory", option)
		}
	}
	if strings.Contains(c.kernelArguments(), "no_timer_check") {
		t.Error("the timer check is off under KVM")
	}
}

func TestWhatCannotBeAMachine(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"is not absolute":      func(c *Config) { c.Dir = "v" },
		"is too long":          func(c *Config) { c.Dir = "/" + strings.Repeat("v", 100) },
		"has a comma":          func(c *Config) { c.Dir = "/a,b" },
		"among 3 NUMA nodes":   func(c *Config) { c.NUMANodes = 3 },
		"among 0 NUMA nodes":   func(c *Config) { c.NUMANodes = 0 },
		"come together":        func(c *Config) { c.Tap = "" },
		"neither kvm nor tcg":  func(c *Config) { c.Accel = "xen" },
		"0 CPUs and 3072 MiB ": func(c *Config) { c.CPUs = 0 },
	} {
		c := sample()
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if _, err := New(sample()); err != nil {
		t.Errorf("a machine that can be: %v", err)
	}
}

// The function prints reports whether a guest prints the first line of the Linux kernel. If KVM does not work, a guest may hang after
// its firmware, so text of the firmware does not count.
func TestTheKernelsFirstLineIsWaitedForAndNotLonger(t *testing.T) {
	t.Parallel()
	if !prints(t.Context(), kernelLine, time.Minute, "/bin/sh", "-c", "echo firmware; echo '[    0.000000] Linux version 6.1'; exec sleep 1000") {
		t.Error("a kernel was not heard")
	}
	for name, script := range map[string]string{
		"that hangs": "exec sleep 1000", "that ends in silence": "exit 0", "whose firmware prints and hangs": "echo Probing EDD; exec sleep 1000",
	} {
		if prints(t.Context(), kernelLine, 200*time.Millisecond, "/bin/sh", "-c", script) {
			t.Errorf("a program %s was taken for a kernel", name)
		}
	}
	if prints(t.Context(), kernelLine, time.Minute, "/bin/sh", "-c", "exec cat /dev/zero") {
		t.Error("a program that prints without end was taken for a kernel")
	}
	if prints(context.Background(), kernelLine, time.Minute, "/no/such/program") {
		t.Error("a program that does not exist was heard")
	}
}
