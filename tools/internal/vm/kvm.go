package vm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"time"
)

// probeBound is how long a Linux kernel under KVM may take to print its first line. If KVM works, a kernel needs a few tenths of a second.
const probeBound = 5 * time.Second

// Accelerator returns KVM if guests can run under KVM on this machine, otherwise TCG. It starts the kernel file under KVM and waits for its
// first line, because in some virtual machines /dev/kvm can be opened but a guest hangs after its firmware has printed text.
func Accelerator(ctx context.Context, kernel string) string {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return TCG
	}
	_ = device.Close()
	if prints(ctx, kernelLine, probeBound, program, "-machine", "pc,accel=kvm", "-cpu", "host", "-m", "256M", "-nodefaults", "-no-user-config",
		"-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", kernel, "-append", "console=ttyS0 earlyprintk=ttyS0 panic=-1") {
		return KVM
	}
	return TCG
}

// kernelLine is the beginning of the first line that every Linux kernel prints.
const kernelLine = "Linux version "

// prints reports whether a program writes the text to its standard output within the time bound and within the first 64 KiB. The program is
// killed in any case.
func prints(ctx context.Context, text string, bound time.Duration, name string, args ...string) bool {
	ctx, cancel := Patient(ctx, bound, "wait for a sign of life")
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return false
	}
	var seen []byte
	for buf := make([]byte, 4096); len(seen) < 64<<10 && !bytes.Contains(seen, []byte(text)); {
		n, err := out.Read(buf)
		if seen = append(seen, buf[:n]...); err != nil {
			break
		}
	}
	cancel()
	_ = cmd.Wait()
	return bytes.Contains(seen, []byte(text))
}
