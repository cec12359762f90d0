package vm

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"time"
)

// probeBound is how long a kernel under KVM may take to print its first line. Where KVM works it takes a few tenths of a second.
const probeBound = 5 * time.Second

// Accelerator returns kvm if guests run under it here, else tcg. That /dev/kvm can be opened says too little: inside of some virtual machines
// it opens, and a guest gets no further than its firmware, which prints too. So a kernel is begun, and what counts is its first line.
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

// kernelLine begins the first line of every Linux kernel.
const kernelLine = "Linux version "

// prints reports whether a program writes the text to its standard output within bound, and the first 64 KiB. The program is killed in any
// case.
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
