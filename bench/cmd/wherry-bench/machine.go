package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// describe returns a description of the machine, its other load, and the versions of the measured programs.
func describe(ctx context.Context, checkout string, programs map[string][]string, runtime string) []string {
	read := func(path string) string {
		b, _ := os.ReadFile(path)
		return string(b)
	}
	field := func(text, key string) string {
		for line := range strings.Lines(text) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
				return strings.TrimSpace(v)
			}
		}
		return "?"
	}
	// asked runs a program in dir and returns the first line of its output, or "?" if the program fails or prints nothing.
	asked := func(dir, program string, args ...string) string {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if err != nil || line == "" {
			return "?"
		}
		return line
	}
	bin := filepath.Join(checkout, "bin")
	if runtime == "debian" {
		bin = filepath.Join(checkout, ".wherry", "debian", "bin")
	}
	system := field(strings.ReplaceAll(read("/etc/os-release"), "=", ":"), "PRETTY_NAME")
	return []string{
		fmt.Sprintf("machine: %d x %s, %s memory, %s, kernel %s", strings.Count(read("/proc/cpuinfo"), "processor\t"),
			field(read("/proc/cpuinfo"), "model name"), field(read("/proc/meminfo"), "MemTotal"), strings.Trim(system, `"`),
			strings.TrimSpace(read("/proc/sys/kernel/osrelease"))),
		"load before: " + strings.TrimSpace(read("/proc/loadavg")),
		"upstream: " + asked("", programs[upstream][0], "--version"),
		"wherry: commit " + asked(checkout, "git", "describe", "--always", "--dirty"),
		"runtime: " + asked("", filepath.Join(bin, "containerd"), "--version"),
		"runc: " + asked("", filepath.Join(bin, "runc"), "--version"),
	}
}
